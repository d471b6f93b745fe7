typedef unsigned short ansor_bfloat16;

static __device__ __forceinline__ float ansor_from_bfloat16(ansor_bfloat16 x) {
  return __uint_as_float((unsigned int)x << 16);
}

static __device__ __forceinline__ ansor_bfloat16 ansor_to_bfloat16(float x) {
#if __CUDA_ARCH__ >= 800
  ansor_bfloat16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
#else
  const unsigned int bits = __float_as_uint(x);
  const unsigned int lowest = (bits >> 16) & 1u;
  return (ansor_bfloat16)((x != x ? bits | 0x400000u : bits + 0x7fffu + lowest) >> 16);
#endif
}

static __device__ __forceinline__ float ansor_round_bfloat16(float x) {
  return ansor_from_bfloat16(ansor_to_bfloat16(x));
}

extern "C" __global__ void __launch_bounds__(64) gelu_kernel0(const ansor_bfloat16* __restrict__ X, float* __restrict__ wide, int n, int m) {
  const int i = threadIdx.x;
  for (int j = 0; j < m; ++j) {
    if (i < n) {
      wide[(long long)i * m + j] = ansor_from_bfloat16(X[(long long)i * m + j]) * (erff(ansor_from_bfloat16(X[(long long)i * m + j]) * 0.70710677f) * 0.5f + 0.5f);
    }
  }
}

extern "C" __global__ void __launch_bounds__(32) gelu_kernel1(ansor_bfloat16* __restrict__ Y, const float* __restrict__ wide, int m) {
  const int i = blockIdx.x;
  const int j = threadIdx.x;
  if (j < m + 3) {
    Y[(long long)i * (m + 3) + j] = ansor_to_bfloat16((j >= 1 && j <= m ? ansor_round_bfloat16(wide[(long long)i * m + (j - 1)]) : 0.0f) + 1.0f);
  }
}
