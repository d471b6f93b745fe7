/* The device is one of OpenCL's: the GPUs of all platforms come first, then accelerators, then CPUs. */
#define ANSOR_FUNCTIONS(X) \
    X(clGetPlatformIDs, int32_t, (uint32_t, void **, uint32_t *)) \
    X(clGetPlatformInfo, int32_t, (void *, uint32_t, size_t, void *, size_t *)) \
    X(clGetDeviceIDs, int32_t, (void *, uint64_t, uint32_t, void **, uint32_t *)) \
    X(clGetDeviceInfo, int32_t, (void *, uint32_t, size_t, void *, size_t *)) \
    X(clCreateContext, void *, (const intptr_t *, uint32_t, void *const *, void *, void *, int32_t *)) \
    X(clReleaseContext, int32_t, (void *)) \
    X(clCreateCommandQueue, void *, (void *, void *, uint64_t, int32_t *)) \
    X(clReleaseCommandQueue, int32_t, (void *)) \
    X(clCreateProgramWithSource, void *, (void *, uint32_t, const char **, const size_t *, int32_t *)) \
    X(clReleaseProgram, int32_t, (void *)) \
    X(clBuildProgram, int32_t, (void *, uint32_t, void *const *, const char *, void *, void *)) \
    X(clGetProgramBuildInfo, int32_t, (void *, void *, uint32_t, size_t, void *, size_t *)) \
    X(clCreateKernel, void *, (void *, const char *, int32_t *)) \
    X(clReleaseKernel, int32_t, (void *)) \
    X(clCreateBuffer, void *, (void *, uint64_t, size_t, void *, int32_t *)) \
    X(clReleaseMemObject, int32_t, (void *)) \
    X(clEnqueueWriteBuffer, int32_t, \
      (void *, void *, uint32_t, size_t, size_t, const void *, uint32_t, void *const *, void **)) \
    X(clEnqueueReadBuffer, int32_t, \
      (void *, void *, uint32_t, size_t, size_t, void *, uint32_t, void *const *, void **)) \
    X(clSetKernelArg, int32_t, (void *, uint32_t, size_t, const void *)) \
    X(clEnqueueNDRangeKernel, int32_t, \
      (void *, void *, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t, void *const *, void **))

enum {
    ANSOR_MOST = 64, /* platforms, and devices of each */
    ANSOR_PLATFORM_NAME = 0x0902,
    ANSOR_DEVICE_FLOATS = 0x101B,
    ANSOR_EXACT_DIVISION = 1 << 7,
    ANSOR_BUILD_LOG = 0x1183,
    ANSOR_CPU = 1 << 1,
    ANSOR_GPU = 1 << 2,
    ANSOR_ACCELERATOR = 1 << 3
};

#define ANSOR_FIELD(name, type, parameters) type(*name) parameters;
static struct { ANSOR_FUNCTIONS(ANSOR_FIELD) } ansor_cl;
static void *ansor_device, *ansor_context, *ansor_queue;
static void *ansor_kernels[ANSOR_KERNELS];

static int ansor_load(void) {
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW);
    if (!library) library = dlopen("libOpenCL.so", RTLD_NOW);
    if (!library) return ANSOR_FAIL("OpenCL's loader is not installed: %s", dlerror());
#define ANSOR_FIND(name, type, parameters) \
    if (!(*(void **)&ansor_cl.name = dlsym(library, #name))) return ANSOR_FAIL("OpenCL has no %s", #name);
    ANSOR_FUNCTIONS(ANSOR_FIND)
    return 0;
}

static int ansor_choose(void **platform) {
    static const uint64_t kinds[] = {ANSOR_GPU, ANSOR_ACCELERATOR, ANSOR_CPU};
    void *platforms[ANSOR_MOST], *devices[ANSOR_MOST];
    uint32_t count = 0, here = 0, before = 0, wanted = (uint32_t)ansor_wanted;
    if (ansor_cl.clGetPlatformIDs(ANSOR_MOST, platforms, &count)) count = 0;
    if (count > ANSOR_MOST) count = ANSOR_MOST;
    for (int kind = 0; kind < 3; kind++)
        for (uint32_t i = 0; i < count; i++) {
            *platform = platforms[i];
            if (ansor_cl.clGetDeviceIDs(platforms[i], kinds[kind], ANSOR_MOST, devices, &here)) continue;
            if (here > ANSOR_MOST) here = ANSOR_MOST;
            if (wanted - before < here) {
                ansor_device = devices[wanted - before];
                return 0;
            }
            before += here;
        }
    if (before)
        return ANSOR_FAIL("there is no OpenCL device %u; there are %u, numbered from 0", wanted, before);
    return ANSOR_FAIL("there is no OpenCL device; of %u platforms none has one", (unsigned)count);
}

static int ansor_kernels_of(void *program, const char *options) {
    int32_t code = ansor_cl.clBuildProgram(program, 1, &ansor_device, options, NULL, NULL);
    if (code) {
        char log[3072] = "";
        ansor_cl.clGetProgramBuildInfo(program, ansor_device, ANSOR_BUILD_LOG, sizeof log - 1, log, NULL);
        return ANSOR_FAIL("OpenCL refuses the program: error %d\n%s", (int)code, log);
    }
    for (int i = 0; i < ANSOR_KERNELS; i++) {
        ansor_kernels[i] = ansor_cl.clCreateKernel(program, ansor_kernel_names[i], &code);
        if (code) return ANSOR_FAIL("the program has no kernel %s: error %d", ansor_kernel_names[i], (int)code);
    }
    return 0;
}

static int ansor_build(const char *options, const char *source, size_t size) {
    int32_t code = 0;
    void *program = ansor_cl.clCreateProgramWithSource(ansor_context, 1, &source, &size, &code);
    if (code) return ANSOR_FAIL("OpenCL takes no source: error %d", (int)code);
    int failed = ansor_kernels_of(program, options);
    ansor_cl.clReleaseProgram(program); /* Its kernels keep it. */
    return failed;
}

static void ansor_close(void) {
    for (int i = 0; i < ANSOR_KERNELS; i++) {
        if (ansor_kernels[i]) ansor_cl.clReleaseKernel(ansor_kernels[i]);
        ansor_kernels[i] = NULL;
    }
    if (ansor_queue) ansor_cl.clReleaseCommandQueue(ansor_queue);
    if (ansor_context) ansor_cl.clReleaseContext(ansor_context);
    ansor_queue = ansor_context = NULL;
}

static int ansor_open(void) {
    void *platform = NULL;
    char name[256] = "";
    uint64_t floats = 0, kind = 0;
    int32_t code = 0;
    if (ansor_load() || ansor_choose(&platform)) return 1;
    ansor_cl.clGetPlatformInfo(platform, ANSOR_PLATFORM_NAME, sizeof name - 1, name, NULL);
    ansor_cl.clGetDeviceInfo(ansor_device, ANSOR_DEVICE_FLOATS, sizeof floats, &floats, NULL);
    ansor_cl.clGetDeviceInfo(ansor_device, 0x1000, sizeof kind, &kind, NULL);
    const char *options = floats & ANSOR_EXACT_DIVISION
                              ? "-cl-std=CL1.2 -w -cl-fp32-correctly-rounded-divide-sqrt"
                              : "-cl-std=CL1.2 -w";
    int pocl = (kind & ANSOR_CPU) && !strcmp(name, ANSOR_POCL);
    ansor_context = ansor_cl.clCreateContext(NULL, 1, &ansor_device, NULL, NULL, &code);
    if (!code) ansor_queue = ansor_cl.clCreateCommandQueue(ansor_context, ansor_device, 0, &code);
    int failed = code ? ANSOR_FAIL("the OpenCL device cannot be opened: error %d", (int)code)
                      : ansor_build(options, pocl ? ansor_program_of_pocl : ansor_program,
                                    pocl ? sizeof ansor_program_of_pocl - 1 : ansor_program_size);
    if (failed) ansor_close();
    return failed;
}

static int ansor_enter(void) { return 0; }

static void ansor_leave(void) {}

static int ansor_find(const void *array, const char *name, ansor_handle *handle, int *there) {
    (void)array, (void)name, (void)handle;
    return *there = 0;
}

static int ansor_allocate(size_t size, ansor_handle *handle) {
    int32_t code = 0;
    handle->object = ansor_cl.clCreateBuffer(ansor_context, 1, size, NULL, &code);
    return code ? ANSOR_FAIL("the device has no %zu bytes: error %d", size, (int)code) : 0;
}

static void ansor_free(ansor_handle handle) { ansor_cl.clReleaseMemObject(handle.object); }

static int ansor_upload(ansor_handle handle, const void *array, size_t size) {
    int32_t code = ansor_cl.clEnqueueWriteBuffer(ansor_queue, handle.object, 1, 0, size, array, 0, NULL, NULL);
    return code ? ANSOR_FAIL("copying to the device fails: error %d", (int)code) : 0;
}

static int ansor_download(ansor_handle handle, void *array, size_t size) {
    int32_t code = ansor_cl.clEnqueueReadBuffer(ansor_queue, handle.object, 1, 0, size, array, 0, NULL, NULL);
    return code ? ANSOR_FAIL("kernels, or copying from the device, fail: error %d", (int)code) : 0;
}

static int ansor_launch(int kernel, const int64_t *grid, const int64_t *block, unsigned shared,
                        const ansor_value *values, int count) {
    size_t threads[3], all[3];
    int32_t code = 0;
    (void)shared; /* Kernels declare theirs. */
    for (int i = 0; i < 3; i++) {
        threads[i] = (size_t)block[i];
        all[i] = (size_t)(grid[i] * block[i]);
    }
    for (int i = 0; i < count && !code; i++)
        code = ansor_cl.clSetKernelArg(ansor_kernels[kernel], (uint32_t)i, values[i].size, values[i].at);
    if (!code)
        code = ansor_cl.clEnqueueNDRangeKernel(ansor_queue, ansor_kernels[kernel], 3, NULL, all, threads, 0, NULL, NULL);
    return code ? ANSOR_FAIL("launching %s fails: error %d", ansor_kernel_names[kernel], (int)code) : 0;
}
