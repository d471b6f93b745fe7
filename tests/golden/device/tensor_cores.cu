typedef unsigned short ansor_float16;

static __device__ __forceinline__ void ansor_rows_4(unsigned int* to, const void* from) {
#if __CUDA_ARCH__ >= 750
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"((unsigned int)__cvta_generic_to_shared(from)) : "memory");
#else
  const unsigned int lane = threadIdx.x % 32u;
  const unsigned long long row = (unsigned long long)from;
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned int* matrix = (const unsigned int*)__shfl_sync(0xffffffffu, row, i * 8 + lane / 4);
    to[i] = matrix[lane % 4];
  }
#endif
}

static __device__ __forceinline__ void ansor_columns_4(unsigned int* to, const void* from) {
#if __CUDA_ARCH__ >= 750
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"((unsigned int)__cvta_generic_to_shared(from)) : "memory");
#else
  const unsigned int lane = threadIdx.x % 32u;
  const unsigned long long row = (unsigned long long)from;
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned short* first = (const unsigned short*)__shfl_sync(0xffffffffu, row, i * 8 + lane % 4 * 2);
    const unsigned short* second = (const unsigned short*)__shfl_sync(0xffffffffu, row, i * 8 + lane % 4 * 2 + 1);
    to[i] = first[lane / 4] | (unsigned int)second[lane / 4] << 16;
  }
#endif
}

static __device__ __forceinline__ float ansor_from_float16(ansor_float16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}

static __device__ __forceinline__ void ansor_mma_float16(float* c, const unsigned int* a, const unsigned int* b) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  (void)ansor_from_float16;  // which is for the others
#elif __CUDA_ARCH__ >= 750
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
               "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(b[0]));
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
               "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[2]), "r"(a[3]), "r"(b[1]));
  (void)ansor_from_float16;  // which is for the others
#else
  const unsigned int lane = threadIdx.x % 32u;
  #pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int k = i / 4, from = i % 4;
    const int row = lane / 4 * 4 + from, column = lane % 4 * 8 + from;
    const unsigned int x[2] = {__shfl_sync(0xffffffffu, a[2 * k], row), __shfl_sync(0xffffffffu, a[2 * k + 1], row)};
    const unsigned int y[2] = {__shfl_sync(0xffffffffu, b[k], column), __shfl_sync(0xffffffffu, b[k], column + 4)};
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
      c[j] += ansor_from_float16((ansor_float16)(x[j / 2])) *
              ansor_from_float16((ansor_float16)(y[j % 2]));
      c[j] += ansor_from_float16((ansor_float16)(x[j / 2] >> 16)) *
              ansor_from_float16((ansor_float16)(y[j % 2] >> 16));
    }
  }
#endif
}

extern "C" __global__ void __launch_bounds__(32) kernel_kernel0(const ansor_float16* __restrict__ A, const ansor_float16* __restrict__ B, float* __restrict__ C) {
  __shared__ __align__(16) ansor_float16 B_shared[384];
  __shared__ __align__(16) ansor_float16 A_shared[768];
  const int j_0 = blockIdx.x;
  const int i_2_j_1_i_5_j_3 = threadIdx.x;
  float C_local[16];
  #pragma unroll
  for (int i_c_0 = 0; i_c_0 < 2; ++i_c_0) {
    #pragma unroll
    for (int j_c_0 = 0; j_c_0 < 2; ++j_c_0) {
      #pragma unroll
      for (int i_c_1 = 0; i_c_1 < 2; ++i_c_1) {
        #pragma unroll
        for (int j_c_2 = 0; j_c_2 < 2; ++j_c_2) {
          C_local[i_c_0 * 8 + j_c_0 * 4 + i_c_1 * 2 + j_c_2] = 0.0f;
        }
      }
    }
  }
  for (int k_0_0 = 0; k_0_0 < 2; ++k_0_0) {
    __syncthreads();
    for (int ax0_ax1_0_0 = 0; ax0_ax1_0_0 < 2; ++ax0_ax1_0_0) {
      *(uint4*)&A_shared[ax0_ax1_0_0 * 384 + i_2_j_1_i_5_j_3 / 2 * 24 + i_2_j_1_i_5_j_3 % 2 * 8] = *(const uint4*)&A[ax0_ax1_0_0 * 512 + i_2_j_1_i_5_j_3 / 2 * 32 + k_0_0 * 16 + i_2_j_1_i_5_j_3 % 2 * 8];
    }
    *(uint4*)&B_shared[i_2_j_1_i_5_j_3 / 2 * 24 + i_2_j_1_i_5_j_3 % 2 * 8] = *(const uint4*)&B[k_0_0 * 512 + i_2_j_1_i_5_j_3 / 2 * 32 + j_0 * 16 + i_2_j_1_i_5_j_3 % 2 * 8];
    __syncthreads();
    unsigned int A_shared_words[8];
    #pragma unroll
    for (int i_c_0_1 = 0; i_c_0_1 < 2; ++i_c_0_1) {
      ansor_rows_4(&A_shared_words[i_c_0_1 * 4], &A_shared[i_c_0_1 * 384 + i_2_j_1_i_5_j_3 % 16 * 24 + i_2_j_1_i_5_j_3 / 16 * 8]);
    }
    unsigned int B_shared_words[4];
    ansor_columns_4(&B_shared_words[0], &B_shared[i_2_j_1_i_5_j_3 % 16 * 24 + i_2_j_1_i_5_j_3 / 16 * 8]);
    #pragma unroll
    for (int i_c_0_1 = 0; i_c_0_1 < 2; ++i_c_0_1) {
      #pragma unroll
      for (int j_c_0_1 = 0; j_c_0_1 < 2; ++j_c_0_1) {
        ansor_mma_float16(&C_local[i_c_0_1 * 8 + j_c_0_1 * 4], &A_shared_words[i_c_0_1 * 4], &B_shared_words[j_c_0_1 * 2]);
      }
    }
  }
  #pragma unroll
  for (int i_3 = 0; i_3 < 2; ++i_3) {
    #pragma unroll
    for (int j_2 = 0; j_2 < 2; ++j_2) {
      #pragma unroll
      for (int i_4 = 0; i_4 < 2; ++i_4) {
        *(float2*)&C[i_3 * 512 + i_4 * 256 + i_2_j_1_i_5_j_3 / 4 * 32 + j_0 * 16 + j_2 * 8 + i_2_j_1_i_5_j_3 % 4 * 2] = make_float2(
          C_local[i_3 * 8 + j_2 * 4 + i_4 * 2],
          C_local[i_3 * 8 + j_2 * 4 + i_4 * 2 + 1]
        );
      }
    }
  }
}
