static __device__ __forceinline__ void ansor_copy_16(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"((unsigned int)__cvta_generic_to_shared(to)), "l"(from) : "memory");
#else
  *(uint4*)to = *(const uint4*)from;
#endif
}

static __device__ __forceinline__ void ansor_commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}

static __device__ __forceinline__ void ansor_wait_but_1() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group 1;" : : : "memory");
#endif
}

extern "C" __global__ void __launch_bounds__(16) kernel_kernel0(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C) {
  __shared__ __align__(16) float B_shared[192];
  __shared__ __align__(16) float A_shared[192];
  const int i_0_j_0 = blockIdx.x;
  const int i_2_j_2 = threadIdx.x;
  float C_local[4];
  #pragma unroll
  for (int i_c_3 = 0; i_c_3 < 2; ++i_c_3) {
    #pragma unroll
    for (int j_c_3 = 0; j_c_3 < 2; ++j_c_3) {
      C_local[i_c_3 * 2 + j_c_3] = 0.0f;
    }
  }
  ansor_copy_16(&A_shared[i_2_j_2 * 4], &A[i_0_j_0 / 4 * 320 + i_2_j_2 / 2 * 40 + i_2_j_2 % 2 * 4]);
  ansor_copy_16(&B_shared[i_2_j_2 * 4], &B[i_2_j_2 / 2 * 32 + i_0_j_0 % 4 * 8 + i_2_j_2 % 2 * 4]);
  ansor_commit_copies();
  ansor_copy_16(&A_shared[i_2_j_2 * 4 + 64], &A[i_0_j_0 / 4 * 320 + i_2_j_2 / 2 * 40 + i_2_j_2 % 2 * 4 + 8]);
  ansor_copy_16(&B_shared[i_2_j_2 * 4 + 64], &B[i_2_j_2 / 2 * 32 + i_0_j_0 % 4 * 8 + i_2_j_2 % 2 * 4 + 256]);
  ansor_commit_copies();
  for (int k_0 = 0; k_0 < 5; ++k_0) {
    ansor_wait_but_1();
    __syncthreads();
    if (k_0 < 3) {
      ansor_copy_16(&A_shared[(k_0 + 2) % 3 * 64 + i_2_j_2 * 4], &A[i_0_j_0 / 4 * 320 + i_2_j_2 / 2 * 40 + k_0 * 8 + i_2_j_2 % 2 * 4 + 16]);
      ansor_copy_16(&B_shared[(k_0 + 2) % 3 * 64 + i_2_j_2 * 4], &B[k_0 * 256 + i_2_j_2 / 2 * 32 + i_0_j_0 % 4 * 8 + i_2_j_2 % 2 * 4 + 512]);
    }
    ansor_commit_copies();
    for (int k_1 = 0; k_1 < 8; ++k_1) {
      #pragma unroll
      for (int i_c_3_1 = 0; i_c_3_1 < 2; ++i_c_3_1) {
        #pragma unroll
        for (int j_c_3_1 = 0; j_c_3_1 < 2; ++j_c_3_1) {
          C_local[i_c_3_1 * 2 + j_c_3_1] = C_local[i_c_3_1 * 2 + j_c_3_1] + A_shared[k_0 % 3 * 64 + i_2_j_2 / 4 * 16 + i_c_3_1 * 8 + k_1] * B_shared[k_0 % 3 * 64 + k_1 * 8 + i_2_j_2 % 4 * 2 + j_c_3_1];
        }
      }
    }
  }
  #pragma unroll
  for (int i_3 = 0; i_3 < 2; ++i_3) {
    #pragma unroll
    for (int j_3 = 0; j_3 < 2; ++j_3) {
      C[i_0_j_0 / 4 * 256 + i_2_j_2 / 4 * 64 + i_3 * 32 + i_0_j_0 % 4 * 8 + i_2_j_2 % 4 * 2 + j_3] = C_local[i_3 * 2 + j_3];
    }
  }
}
