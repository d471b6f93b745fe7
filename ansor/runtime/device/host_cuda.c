/* The device is a GPU that CUDA's driver shows (CUDA_VISIBLE_DEVICES), in its primary context. */
#define ANSOR_FUNCTIONS(X) \
    X(cuInit, cuInit, (unsigned)) \
    X(cuDeviceGet, cuDeviceGet, (int *, int)) \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (void **, int)) \
    X(cuCtxPushCurrent, cuCtxPushCurrent_v2, (void *)) \
    X(cuCtxPopCurrent, cuCtxPopCurrent_v2, (void **)) \
    X(cuModuleLoadData, cuModuleLoadData, (void **, const void *)) \
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
    ANSOR_DEVICE_MEMORY = 2, /* the device's */
    ANSOR_ASKED_SHARED = 8   /* bytes of shared memory that launches may ask for */
};

#define ANSOR_FIELD(name, symbol, parameters) int(*name) parameters;
static struct { ANSOR_FUNCTIONS(ANSOR_FIELD) } ansor_cu;
static void *ansor_context;
static void *ansor_kernels[ANSOR_KERNELS];
static int ansor_ready;

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

static int ansor_kernels_of(const void *binary) {
    void *module = NULL;
    if (ansor_refused("loading the program, which is for " ANSOR_ARCH ",",
                      ansor_cu.cuModuleLoadData(&module, binary)))
        return 1;
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

static int ansor_is_open(void) { return ansor_context != NULL; }

static int ansor_open(void) {
    int device = 0;
    if (ansor_load() || ansor_refused("CUDA", ansor_cu.cuInit(0))) return 1;
    if (ansor_refused("finding the GPU", ansor_cu.cuDeviceGet(&device, ansor_wanted))) return 1;
    return ansor_refused("opening the GPU", ansor_cu.cuDevicePrimaryCtxRetain(&ansor_context, device));
}

static int ansor_enter(void) {
    if (!ansor_context && ansor_open()) return 1;
    if (ansor_refused("opening the GPU", ansor_cu.cuCtxPushCurrent(ansor_context))) return 1;
    if (ansor_ready) return 0;
    void *binary = malloc(ansor_program_size); /* aligned */
    int failed = !binary ? ANSOR_FAIL("there is no memory") : 0;
    if (!failed) failed = ansor_kernels_of(memcpy(binary, ansor_program, ansor_program_size));
    free(binary);
    ansor_ready = !failed;
    if (failed) ansor_leave();
    return failed;
}

static void ansor_leave(void) {
    void *context = NULL;
    ansor_cu.cuCtxPopCurrent(&context);
}

static int ansor_lies_there(const void *array, ansor_handle *handle) {
    unsigned type = 0;
    handle->address = (uint64_t)(uintptr_t)array;
    return !ansor_cu.cuPointerGetAttribute(&type, ANSOR_MEMORY_TYPE, handle->address) && type == ANSOR_DEVICE_MEMORY;
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
