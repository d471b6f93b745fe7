/* OpenCL's loader, before the real one: it counts the objects that are alive. What COUNTING_FAILS names makes
 * none. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int alive;

/* Makes an object, unless it fails, and sets the code that its last argument names. */
#define MAKES(name, parameters, arguments) \
    void *name parameters { \
        void *(*real) parameters = (void *(*) parameters)dlsym(RTLD_NEXT, #name); \
        const char *failing = getenv("COUNTING_FAILS"); \
        if (failing && !strcmp(failing, #name)) return *code = -6, NULL; \
        void *made = real arguments; \
        alive += made != NULL; \
        return made; \
    }
#define RELEASES(name) \
    int32_t name(void *object) { \
        alive--; \
        return ((int32_t(*)(void *))dlsym(RTLD_NEXT, #name))(object); \
    }

MAKES(clCreateContext, (const intptr_t *a, uint32_t b, void *const *c, void *d, void *e, int32_t *code),
      (a, b, c, d, e, code))
MAKES(clCreateCommandQueue, (void *a, void *b, uint64_t c, int32_t *code), (a, b, c, code))
MAKES(clCreateProgramWithSource, (void *a, uint32_t b, const char **c, const size_t *d, int32_t *code),
      (a, b, c, d, code))
MAKES(clCreateKernel, (void *a, const char *b, int32_t *code), (a, b, code))
RELEASES(clReleaseContext)
RELEASES(clReleaseCommandQueue)
RELEASES(clReleaseProgram)
RELEASES(clReleaseKernel)

int left_open(void) { return alive; }
