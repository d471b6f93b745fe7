// CUDA C++ as C++ of the host: what kernels see of `emulated_cuda.cpp`, which runs them.
#include <math.h>
#include <string.h>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
// All shared memory lies together, so that it can be filled before each block.
#define SHARED __attribute__((section("shared_memory")))
#define __shared__ static SHARED

struct Index {
  unsigned x, y, z;
};
extern Index threadIdx, blockIdx, blockDim, gridDim;

int run_grid(void (*kernel)(void**), void** values, const unsigned* grid, const unsigned* block);

// -- threads that meet ----------------------------------------------------------------------------------

enum { WARP = 32 };

void __syncthreads();

// The thread's number in its block.
unsigned thread_number();

// What the other thread gives in the same shuffle, or the own value if the mask leaves the other out.
unsigned long long exchange(unsigned mask, unsigned long long value, unsigned other);

template <class T>
static T exchanged(unsigned mask, T value, unsigned other) {
  unsigned long long bytes = 0;
  memcpy(&bytes, &value, sizeof value);
  bytes = exchange(mask, bytes, other);
  memcpy(&value, &bytes, sizeof value);
  return value;
}

template <class T>
static T __shfl_xor_sync(unsigned mask, T value, int distance) {
  return exchanged(distance < WARP ? mask : 0u, value, thread_number() ^ (unsigned)distance);
}

template <class T>
static T __shfl_sync(unsigned mask, T value, unsigned lane) {
  return exchanged(mask, value, thread_number() / WARP * WARP + lane % WARP);
}

// -- copies that a thread does not wait for: made when it waits, and not before -------------------------

void begin_copy(void* to, const void* from, int size);

// Where it copies nothing it stores zeros.
void begin_fill(void* to, const void* from, int size, bool there);

void commit_copies();

// Waits for all groups but the last few.
void end_groups(size_t pending);

void end_copies();

// -- vectors and functions ------------------------------------------------------------------------------

#define VECTORS(type, name, two, four)                                                               \
  struct alignas(two) name##2 { type x, y; };                                                        \
  struct alignas(four) name##4 { type x, y, z, w; };                                                 \
  static inline name##2 make_##name##2(type x, type y) { return {x, y}; }                            \
  static inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
VECTORS(float, float, 8, 16)
VECTORS(double, double, 16, 16)
VECTORS(signed char, char, 2, 4)
VECTORS(unsigned char, uchar, 2, 4)
VECTORS(short, short, 4, 8)
VECTORS(unsigned short, ushort, 4, 8)
VECTORS(int, int, 8, 16)
VECTORS(unsigned, uint, 8, 16)
VECTORS(long long, longlong, 16, 16)
VECTORS(unsigned long long, ulonglong, 16, 16)

template <class To, class From>
static inline To bits(From value) {
  To same;
  memcpy(&same, &value, sizeof same);
  return same;
}
static inline unsigned __float_as_uint(float x) { return bits<unsigned>(x); }
static inline float __uint_as_float(unsigned x) { return bits<float>(x); }
static inline double __longlong_as_double(long long x) { return bits<double>(x); }
static inline long long __double_as_longlong(double x) { return bits<long long>(x); }
// With these overloads alone, so that what is ambiguous for CUDA is so here.
#define LESSER_AND_GREATER(type)                                                                     \
  static inline type min(type x, type y) { return x < y ? x : y; }                                   \
  static inline type max(type x, type y) { return x > y ? x : y; }
LESSER_AND_GREATER(int)
LESSER_AND_GREATER(unsigned)
LESSER_AND_GREATER(long long)
LESSER_AND_GREATER(unsigned long long)
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
