/* The host's part of a program for a device: arrays to the device and back, kernels one after another.
 *
 * What a kind of device does itself is declared here and follows; so does the program, in ansor_steps.
 * Whatever returns an int gives 0, or has failed and left a text in ansor_told. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSOR_EXPORTED __attribute__((visibility("default")))
/* What a function is called outside of this text. */
#define ANSOR_SYMBOL(name) ANSOR_LABEL(__USER_LABEL_PREFIX__, name)
#define ANSOR_LABEL(prefix, name) ANSOR_LABEL_OF(prefix, name)
#define ANSOR_LABEL_OF(prefix, name) __asm__(#prefix name)
#define ANSOR_FAIL(...) (snprintf(ansor_told, sizeof ansor_told, __VA_ARGS__), 1)

static _Thread_local char ansor_told[4096];
static pthread_mutex_t ansor_lock = PTHREAD_MUTEX_INITIALIZER;
static int32_t ansor_wanted; /* The position of the device. */
static int ansor_ready;      /* It is open, and has the program. */

/* An object of the device's interface, or an address in its memory. */
typedef union {
    void *object;
    uint64_t address;
} ansor_handle;

typedef struct {
    ansor_handle handle;
    size_t size;
    int ours; /* It is to be freed. */
} ansor_memory;

/* An argument of a kernel. */
typedef struct {
    const void *at;
    size_t size;
} ansor_value;

/* Open the device, and load the program there; where that fails, nothing stays open. */
static int ansor_open(void);
/* Make the open device ready for a call; and leave it again. */
static int ansor_enter(void);
static void ansor_leave(void);
/* Look whether an array lies in the device's memory; then with its handle. In another's it fails. */
static int ansor_find(const void *array, const char *name, ansor_handle *handle, int *there);
static int ansor_allocate(size_t size, ansor_handle *handle);
static void ansor_free(ansor_handle handle);
static int ansor_upload(ansor_handle handle, const void *array, size_t size);
/* Wait for the kernels, and copy. */
static int ansor_download(ansor_handle handle, void *array, size_t size);
static int ansor_launch(int kernel, const int64_t *grid, const int64_t *block, unsigned shared,
                        const ansor_value *values, int count);

/* The program, written for it: arrays and sizes in the order of the signature. */
static int ansor_steps(const void *const *arrays, const int64_t *n);

static int ansor_call(const void *const *arrays, const int64_t *n) {
    pthread_mutex_lock(&ansor_lock);
    ansor_told[0] = 0;
    if (!ansor_ready) ansor_ready = !ansor_open();
    int failed = !ansor_ready || ansor_enter();
    if (!failed) {
        failed = ansor_steps(arrays, n);
        ansor_leave();
    }
    pthread_mutex_unlock(&ansor_lock);
    return failed;
}

static int ansor_choose_device(int32_t position) {
    pthread_mutex_lock(&ansor_lock);
    ansor_told[0] = 0;
    int failed = 0;
    if (position < 0) failed = ANSOR_FAIL("devices are numbered from 0, found %d", (int)position);
    else if (position != ansor_wanted && ansor_ready)
        failed = ANSOR_FAIL("device %d is in use; choose another before the first call", (int)ansor_wanted);
    else ansor_wanted = position;
    pthread_mutex_unlock(&ansor_lock);
    return failed;
}

static int ansor_take(ansor_memory *memory, const void *array, const char *name, size_t size, int written) {
    int there = 0;
    if (array == NULL && size) return ANSOR_FAIL("%s is NULL", name);
    if (array != NULL && ansor_find(array, name, &memory->handle, &there)) return 1;
    if (there && size && (uintptr_t)array % ANSOR_ALIGNMENT)
        return ANSOR_FAIL("%s lies in the GPU's memory at no multiple of %d bytes; pass a copy", name,
                          ANSOR_ALIGNMENT);
    if (there) return 0;
    if (ansor_allocate(size ? size : 1, &memory->handle)) return 1;
    memory->ours = 1;
    memory->size = size;
    return written || !size ? 0 : ansor_upload(memory->handle, array, size);
}

static int ansor_fetch(const ansor_memory *memory, const void *array) {
    return memory->ours && memory->size ? ansor_download(memory->handle, (void *)array, memory->size) : 0;
}

static void ansor_drop(ansor_memory *memory) {
    if (memory->ours) ansor_free(memory->handle);
    memory->ours = 0;
}

/* Memory that stays from call to call, where it is large enough. */
static inline int ansor_keep(ansor_memory *memory, size_t size) {
    if (memory->ours && memory->size >= size) return 0;
    ansor_drop(memory);
    if (ansor_allocate(size ? size : 1, &memory->handle)) return 1;
    memory->ours = 1;
    memory->size = size;
    return 0;
}

/* Refuse what a kernel cannot count, unless there is nothing to do. */
static int ansor_counts(int kernel, const int64_t *grid, const int64_t *counts, int number) {
    for (int i = 0; i < 3; i++)
        if (grid[i] <= 0) return 0;
    for (int i = 0; i < number; i++)
        if (counts[i] > INT32_MAX)
            return ANSOR_FAIL("kernel %d counts iterations or elements up to %lld, and kernels count to %d",
                              kernel, (long long)counts[i], INT32_MAX);
    return 0;
}

static int ansor_start(int kernel, const int64_t *grid, const int64_t *block, unsigned shared,
                       const ansor_value *values, int count) {
    for (int i = 0; i < 3; i++)
        if (grid[i] <= 0) return 0;
    for (int i = 0; i < 3; i++)
        if (grid[i] > INT32_MAX)
            return ANSOR_FAIL("kernel %d takes %lld blocks along %c, and kernels count to %d",
                              kernel, (long long)grid[i], "xyz"[i], INT32_MAX);
    return ansor_launch(kernel, grid, block, shared, values, count);
}

static inline size_t ansor_extent(int64_t dim) { return dim > 0 ? (size_t)dim : 0; }
static inline int64_t ansor_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ansor_max(int64_t a, int64_t b) { return a < b ? b : a; }
static inline int64_t ansor_floordiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static inline int64_t ansor_floormod(int64_t a, int64_t b) { return a - ansor_floordiv(a, b) * b; }
