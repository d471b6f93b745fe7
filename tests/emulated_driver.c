/* NVIDIA's driver, as far as exported libraries ask it, on the host: memory is the host's, and a program is a
 * library of the host, as tests/emulated_cuda.py compiles it. What needs a context fails without one. */
#include <dlfcn.h>
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 256, NO_CONTEXT = 201 };

static int depth, opened, blocks;
static struct { uint64_t start, size; } memory[MOST];

static int missing(void) { return depth == 1 ? 0 : NO_CONTEXT; }

static int block_of(uint64_t address, size_t size) {
    for (int i = 0; i < blocks; i++)
        if (memory[i].start <= address && address + size <= memory[i].start + memory[i].size) return i;
    return -1;
}

int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuDeviceGet(int *device, int number) { return *device = number, number ? 101 : 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) {
    opened++;
    *context = &opened;
    return device || opened > 1;
}
int cuCtxPushCurrent_v2(void *context) { return depth++, context != &opened; }
int cuCtxPopCurrent_v2(void **context) { return *context = &opened, depth-- != 1; }
int cuGetErrorName(int code, const char **name) { return *name = code == 2 ? "OUT_OF_MEMORY" : "EMULATED", 0; }

int cuModuleLoadData(void **module, const void *binary) {
    const Elf64_Ehdr *head = binary;
    if (missing() || memcmp(head->e_ident, ELFMAG, SELFMAG)) return missing() ? missing() : 200;
    char path[] = "/tmp/emulated-XXXXXX";
    FILE *file = fdopen(mkstemp(path), "wb");
    fwrite(binary, 1, head->e_shoff + (size_t)head->e_shnum * head->e_shentsize, file);
    fclose(file);
    *module = dlopen(path, RTLD_NOW);
    remove(path);
    return *module ? 0 : 209;
}

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
    memory[blocks++].size = size;
    return 0;
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
    if (attribute != 2 || block_of(address, 1) < 0) return 1;
    return *(unsigned *)value = 2, 0;
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **values, void **extra) {
    const unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
    if (missing() || stream || extra || !gx || !gy || !gz || shared > 227 << 10) return 1;
    return ((int (*)(void **, const unsigned *, const unsigned *))function)(values, grid, block);
}

/* For tests: how many allocations there are. */
int emulated_blocks(void) { return blocks; }
