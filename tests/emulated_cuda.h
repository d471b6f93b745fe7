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

// What all threads of the warp give in the same gathering, one behind the other.
void gather(const void* mine, unsigned bytes, void* all);

// Ends the kernel if an address is no multiple of 16.
void require_aligned(const void* place);

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

// -- instructions of warps, after the PTX ISA -----------------------------------------------------------
// Lane l is thread l % 4 of group l / 4. Elements of fragments are numbered as the tables there do it.

static inline float ptx_f16(unsigned half) { return (float)bits<_Float16>((unsigned short)half); }
static inline float ptx_bf16(unsigned half) { return bits<float>(half << 16); }
static inline unsigned short ptx_bf16(float x) {
  const unsigned word = bits<unsigned>(x);
  return x != x ? 0x7fff : (unsigned short)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}
// Tensor cores read no more than 10 bits of fraction.
static inline float ptx_tf32(unsigned word) { return bits<float>(word & 0xffffe000u); }
// To nearest, ties away from zero.
static inline unsigned ptx_tf32(float x) { return (bits<unsigned>(x) + 0x1000u) & 0xffffe000u; }

// D = A * B + D of 16x8 sums and so many products each; the words of A are before those of B.
template <int OF_A, int OF_B>
static void ptx_mma(int depth, float (*value)(unsigned), float* const* sums, const unsigned* words) {
  unsigned all[WARP][OF_A + OF_B];
  gather(words, sizeof all[0], all);
  const bool halves = depth * 16 == OF_A * 2 * WARP;  // two elements in a word, not one
  float a[16][16], b[16][8];
  for (int lane = 0; lane < WARP; ++lane) {
    const int group = lane / 4, thread = lane % 4;
    const unsigned *of_a = all[lane], *of_b = all[lane] + OF_A;
    if (halves) {
      for (int i = 0; i < 2 * OF_A; ++i)
        a[group + 8 * (i / 2 % 2)][2 * thread + i % 2 + 8 * (i / 4)] = value(of_a[i / 2] >> 16 * (i % 2) & 0xffffu);
      for (int i = 0; i < 2 * OF_B; ++i)
        b[2 * thread + i % 2 + 8 * (i / 2)][group] = value(of_b[i / 2] >> 16 * (i % 2) & 0xffffu);
    } else {
      for (int i = 0; i < OF_A; ++i) a[group + 8 * (i % 2)][thread + 4 * (i / 2)] = value(of_a[i]);
      for (int i = 0; i < OF_B; ++i) b[thread + 4 * i][group] = value(of_b[i]);
    }
  }
  const int lane = thread_number() % WARP;
  for (int i = 0; i < 4; ++i) {
    double sum = *sums[i];
    for (int k = 0; k < depth; ++k) sum += (double)a[lane / 4 + 8 * (i / 2)][k] * b[k][2 * (lane % 4) + i % 2];
    *sums[i] = (float)sum;
  }
}

// Of each matrix of 8x8 halves a lane gets two neighbours in a row, or transposed two in a column.
static void ptx_ldmatrix(int count, int transposed, unsigned* const* words, const void* row) {
  const void* rows[WARP];
  gather(&row, sizeof row, rows);
  const int group = thread_number() % WARP / 4, thread = thread_number() % WARP % 4;
  for (int i = 0; i < 8 * count; ++i) require_aligned(rows[i]);
  for (int i = 0; i < count; ++i) {
    const unsigned short* const* matrix = (const unsigned short* const*)rows + 8 * i;
    const unsigned low = transposed ? matrix[2 * thread][group] : matrix[group][2 * thread];
    const unsigned high = transposed ? matrix[2 * thread + 1][group] : matrix[group][2 * thread + 1];
    *words[i] = low | high << 16;
  }
}

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
