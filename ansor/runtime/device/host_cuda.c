/* The device is a GPU that CUDA's driver shows (CUDA_VISIBLE_DEVICES), in its primary context. */
#define ANSOR_FUNCTIONS(X) \
    X(cuInit, cuInit, (unsigned)) \
    X(cuDeviceGetCount, cuDeviceGetCount, (int *)) \
    X(cuDeviceGet, cuDeviceGet, (int *, int)) \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (void **, int)) \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (int)) \
    X(cuCtxPushCurrent, cuCtxPushCurrent_v2, (void *)) \
    X(cuCtxPopCurrent, cuCtxPopCurrent_v2, (void **)) \
    X(cuModuleLoadData, cuModuleLoadData, (void **, const void *)) \
    X(cuModuleUnload, cuModuleUnload, (void *)) \
    X(cuModuleGetFunction, cuModuleGetFunction, (void **, void *, const char *)) \
    X(cuFuncSetAttribute, cuFuncSetAttribute, (void *, int, int)) \
    X(cuMemAlloc, cuMemAlloc_v2, (uint64_t *, size_t)) \
    X(cuMemFree, cuMemFree_v2, (uint64_t)) \
    X(cuMemcpyHtoD, cuMemcpyHtoD_v2, (uint64_t, const void *, size_t)) \
    X(cuMemcpyDtoH, cuMemcpyDtoH_v2, (void *, uint64_t, size_t)) \
    X(cuPointerGetAttribute, cuPointerGetAttribute, (void *, int, uint64_t)) \
    X(cuGetErrorName, cuGetErrorName, (int, const char **)) \
    X(cuLaunchKernel, cuLaunchKernel, \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))

enum {
    ANSOR_MOST = 256,        /* arguments */
    ANSOR_MEMORY_TYPE = 2,   /* of a pointer; */
    ANSOR_DEVICE_MEMORY = 2, /* a GPU's */
    ANSOR_IS_MANAGED = 8,    /* It is for all GPUs. */
    ANSOR_ORDINAL = 9,       /* The GPU's position. */
    ANSOR_ASKED_SHARED = 8   /* bytes of shared memory that launches may ask for */
};

#define ANSOR_FIELD(name, symbol, parameters) int(*name) parameters;
static struct { ANSOR_FUNCTIONS(ANSOR_FIELD) } ansor_cu;
static void *ansor_context;
static void *ansor_kernels[ANSOR_KERNELS];

static int ansor_refused(const char *what, int code) {
    const char *name = NULL;
    if (!code) return 0;
    if (!ansor_cu.cuGetErrorName || ansor_cu.cuGetErrorName(code, &name) || !name) name = "an unknown error";
    return ANSOR_FAIL("%s fails: %s (%d)", what, name, code);
}

static int ansor_load(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return ANSOR_FAIL("NVIDIA's driver is not installed: %s", dlerror());
#define ANSOR_FIND(name, symbol, parameters) \
    if (!(*(void **)&ansor_cu.name = dlsym(library, #symbol))) return ANSOR_FAIL("the driver has no %s", #symbol);
    ANSOR_FUNCTIONS(ANSOR_FIND)
    return 0;
}

static int ansor_choose(int *gpu) {
    int count = 0;
    if (ansor_refused("counting the GPUs", ansor_cu.cuDeviceGetCount(&count))) return 1;
    if (ansor_wanted >= count)
        return ANSOR_FAIL("there is no GPU %d; there are %d, numbered from 0", (int)ansor_wanted, count);
    return ansor_refused("finding the GPU", ansor_cu.cuDeviceGet(gpu, ansor_wanted));
}

static int ansor_kernels_of(void *module) {
    for (int i = 0; i < ANSOR_KERNELS; i++) {
        if (ansor_refused(ansor_kernel_names[i],
                          ansor_cu.cuModuleGetFunction(&ansor_kernels[i], module, ansor_kernel_names[i])))
            return 1;
        if (ansor_asked[i] &&
            ansor_refused("asking for shared memory",
                          ansor_cu.cuFuncSetAttribute(ansor_kernels[i], ANSOR_ASKED_SHARED, ansor_asked[i])))
            return 1;
    }
    return 0;
}

static int ansor_load_program(void) {
    void *module = NULL, *binary = malloc(ansor_program_size); /* aligned */
    if (!binary) return ANSOR_FAIL("there is no memory");
    memcpy(binary, ansor_program, ansor_program_size);
    int failed = ansor_refused("loading the program, which is for " ANSOR_ARCH ",",
                               ansor_cu.cuModuleLoadData(&module, binary));
    free(binary);
    if (failed) return 1;
    failed = ansor_kernels_of(module);
    if (failed) ansor_cu.cuModuleUnload(module);
    return failed;
}

static int ansor_open(void) {
    int gpu = 0;
    if (ansor_load() || ansor_refused("CUDA", ansor_cu.cuInit(0)) || ansor_choose(&gpu)) return 1;
    if (ansor_refused("opening the GPU", ansor_cu.cuDevicePrimaryCtxRetain(&ansor_context, gpu))) return 1;
    int failed = ansor_enter();
    if (!failed) {
        failed = ansor_load_program();
        ansor_leave();
    }
    if (failed) ansor_cu.cuDevicePrimaryCtxRelease(gpu);
    return failed;
}

static int ansor_enter(void) {
    return ansor_refused("opening the GPU", ansor_cu.cuCtxPushCurrent(ansor_context));
}

static void ansor_leave(void) {
    void *context = NULL;
    ansor_cu.cuCtxPopCurrent(&context);
}

static int ansor_find(const void *array, const char *name, ansor_handle *handle, int *there) {
    const uint64_t address = handle->address = (uint64_t)(uintptr_t)array;
    unsigned type = 0, managed = 0;
    int gpu = 0;
    *there = !ansor_cu.cuPointerGetAttribute(&type, ANSOR_MEMORY_TYPE, address) && type == ANSOR_DEVICE_MEMORY;
    if (!*there || (!ansor_cu.cuPointerGetAttribute(&managed, ANSOR_IS_MANAGED, address) && managed)) return 0;
    if (ansor_cu.cuPointerGetAttribute(&gpu, ANSOR_ORDINAL, address) || gpu == ansor_wanted) return 0;
    return ANSOR_FAIL("%s lies in the memory of GPU %d, and the program runs on GPU %d", name, gpu,
                      (int)ansor_wanted);
}

static int ansor_allocate(size_t size, ansor_handle *handle) {
    return ansor_refused("taking memory of the GPU", ansor_cu.cuMemAlloc(&handle->address, size));
}

static void ansor_free(ansor_handle handle) { ansor_cu.cuMemFree(handle.address); }

static int ansor_upload(ansor_handle handle, const void *array, size_t size) {
    return ansor_refused("copying to the GPU", ansor_cu.cuMemcpyHtoD(handle.address, array, size));
}

static int ansor_download(ansor_handle handle, void *array, size_t size) {
    return ansor_refused("running kernels, or copying from the GPU,",
                         ansor_cu.cuMemcpyDtoH(array, handle.address, size));
}

static int ansor_launch(int kernel, const int64_t *grid, const int64_t *block, unsigned shared,
                        const ansor_value *values, int count) {
    void *places[ANSOR_MOST];
    if (count > ANSOR_MOST) return ANSOR_FAIL("a kernel takes %d arguments", count);
    for (int i = 0; i < count; i++) places[i] = (void *)values[i].at;
    return ansor_refused(ansor_kernel_names[kernel],
                         ansor_cu.cuLaunchKernel(ansor_kernels[kernel], (unsigned)grid[0], (unsigned)grid[1],
                                                 (unsigned)grid[2], (unsigned)block[0], (unsigned)block[1],
                                                 (unsigned)block[2], shared, NULL, places, NULL));
}
