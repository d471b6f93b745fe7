/* NVIDIA's driver, as far as exported libraries ask it, on the host, with two GPUs: their memory is the host's,
 * and a program is a library of the host, as tests/emulated_cuda.py compiles it. What needs a context fails
 * without one. The GPU of number EMULATED_OLD, if that is set, is of another architecture than programs. */
#include <dlfcn.h>
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS = 2, MOST = 256, NO_CONTEXT = 201 };

static int depth, current, blocks, modules, retained[GPUS];
static struct { uint64_t start, size; int gpu, managed; } memory[MOST];

static int missing(void) { return depth == 1 ? 0 : NO_CONTEXT; }

static int block_of(uint64_t address, size_t size) {
    for (int i = 0; i < blocks; i++)
        if (memory[i].start <= address && address + size <= memory[i].start + memory[i].size) return i;
    return -1;
}

int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuDeviceGetCount(int *count) { return *count = GPUS, 0; }
int cuDeviceGet(int *device, int number) { return *device = number, number < 0 || number >= GPUS ? 101 : 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = &retained[device];
    return retained[device]++ > 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) { return retained[device]-- != 1; }
int cuCtxPushCurrent_v2(void *context) {
    current = (int)((int *)context - retained);
    return depth++, !retained[current];
}
int cuCtxPopCurrent_v2(void **context) { return *context = &retained[current], depth-- != 1; }
int cuGetErrorName(int code, const char **name) { return *name = code == 2 ? "OUT_OF_MEMORY" : "EMULATED", 0; }

int cuModuleLoadData(void **module, const void *binary) {
    const Elf64_Ehdr *head = binary;
    const char *old = getenv("EMULATED_OLD");
    if (missing() || memcmp(head->e_ident, ELFMAG, SELFMAG)) return missing() ? missing() : 200;
    if (old && atoi(old) == current) return 209;
    char path[] = "/tmp/emulated-XXXXXX";
    FILE *file = fdopen(mkstemp(path), "wb");
    fwrite(binary, 1, head->e_shoff + (size_t)head->e_shnum * head->e_shentsize, file);
    fclose(file);
    *module = dlopen(path, RTLD_NOW);
    remove(path);
    modules += *module != NULL;
    return *module ? 0 : 209;
}

int cuModuleUnload(void *module) { return modules--, missing() ? missing() : dlclose(module); }

int cuModuleGetFunction(void **function, void *module, const char *name) {
    char symbol[256];
    snprintf(symbol, sizeof symbol, "run_%s", name);
    *function = dlsym(module, symbol);
    return *function ? missing() : 500;
}

int cuFuncSetAttribute(void *function, int attribute, int value) {
    return function && attribute == 8 && value > 48 << 10 && value <= 227 << 10 ? missing() : 1;
}

int cuMemAlloc_v2(uint64_t *address, size_t size) {
    if (missing() || !size || size > 1u << 30 || blocks == MOST) return missing() ? missing() : 2;
    *address = (uint64_t)(uintptr_t)malloc(size);
    memset((void *)(uintptr_t)*address, 0xCD, size);
    memory[blocks].start = *address;
    memory[blocks].gpu = current;
    memory[blocks].managed = 0;
    memory[blocks++].size = size;
    return 0;
}

int cuMemAllocManaged(uint64_t *address, size_t size, unsigned flags) {
    int code = flags == 1 ? cuMemAlloc_v2(address, size) : 1;
    if (!code) memory[blocks - 1].managed = 1;
    return code;
}

int cuMemFree_v2(uint64_t address) {
    int block = block_of(address, 1);
    if (missing() || block < 0) return 1;
    memory[block] = memory[--blocks];
    free((void *)(uintptr_t)address);
    return 0;
}

int cuMemcpyHtoD_v2(uint64_t address, const void *host, size_t size) {
    if (missing() || block_of(address, size) < 0) return 1;
    memcpy((void *)(uintptr_t)address, host, size);
    return 0;
}

int cuMemcpyDtoH_v2(void *host, uint64_t address, size_t size) {
    if (missing() || block_of(address, size) < 0) return 1;
    memcpy(host, (void *)(uintptr_t)address, size);
    return 0;
}

int cuPointerGetAttribute(void *value, int attribute, uint64_t address) {
    int block = block_of(address, 1);
    if (block < 0) return 1;
    if (attribute == 2) return *(unsigned *)value = 2, 0;
    if (attribute == 8) return *(unsigned char *)value = (unsigned char)memory[block].managed, 0;
    return attribute == 9 ? *(int *)value = memory[block].gpu, 0 : 1;
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **values, void **extra) {
    const unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
    if (missing() || stream || extra || !gx || !gy || !gz || shared > 227 << 10) return 1;
    return ((int (*)(void **, const unsigned *, const unsigned *))function)(values, grid, block);
}

/* For tests: how many allocations there are, and how many contexts and programs. */
int emulated_blocks(void) { return blocks; }
int left_open(void) { return retained[0] + retained[1] + modules; }
