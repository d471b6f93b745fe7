extern "C" __global__ void __launch_bounds__(64) matmul_kernel0(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C) {
  __shared__ __align__(16) float A_shared[128];
  __shared__ __align__(16) float B_shared[128];
  const int i_0 = blockIdx.y;
  const int j_0 = blockIdx.x;
  const int i_1 = threadIdx.y;
  const int j_1 = threadIdx.x;
  float C_local[4];
  #pragma unroll
  for (int i_2 = 0; i_2 < 2; ++i_2) {
    #pragma unroll
    for (int j_2 = 0; j_2 < 2; ++j_2) {
      C_local[i_2 * 2 + j_2] = 0.0f;
    }
  }
  for (int k_0 = 0; k_0 < 8; ++k_0) {
    __syncthreads();
    *(float2*)&A_shared[i_1 * 16 + j_1 * 2] = *(const float2*)&A[i_0 * 1024 + i_1 * 128 + j_1 / 4 * 64 + k_0 * 8 + j_1 % 4 * 2];
    *(float2*)&B_shared[i_1 * 16 + j_1 * 2] = *(const float2*)&B[k_0 * 512 + i_1 * 64 + j_0 * 16 + j_1 * 2];
    __syncthreads();
    for (int k_1 = 0; k_1 < 8; ++k_1) {
      #pragma unroll
      for (int i_2_1 = 0; i_2_1 < 2; ++i_2_1) {
        #pragma unroll
        for (int j_2_1 = 0; j_2_1 < 2; ++j_2_1) {
          C_local[i_2_1 * 2 + j_2_1] = C_local[i_2_1 * 2 + j_2_1] + A_shared[i_1 * 16 + i_2_1 * 8 + k_1] * B_shared[k_1 * 16 + j_1 * 2 + j_2_1];
        }
      }
    }
  }
  #pragma unroll
  for (int i_2_2 = 0; i_2_2 < 2; ++i_2_2) {
    *(float2*)&C[i_0 * 1024 + i_1 * 128 + i_2_2 * 64 + j_0 * 16 + j_1 * 2] = make_float2(
      C_local[i_2_2 * 2],
      C_local[i_2_2 * 2 + 1]
    );
  }
}
