extern "C" __global__ void __launch_bounds__(16) kernel_kernel0(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C) {
  __shared__ __align__(16) float B_shared[128];
  __shared__ __align__(16) float A_shared[128];
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
  for (int k_0 = 0; k_0 < 3; ++k_0) {
    __syncthreads();
    for (int ax0_ax1_0_0 = 0; ax0_ax1_0_0 < 2; ++ax0_ax1_0_0) {
      *(float4*)&A_shared[ax0_ax1_0_0 * 64 + i_2_j_2 / 4 * 16 + ((i_2_j_2 % 4) ^ (ax0_ax1_0_0 * 2 + i_2_j_2 / 8)) * 4] = *(const float4*)&A[i_0_j_0 / 4 * 384 + ax0_ax1_0_0 * 192 + i_2_j_2 / 4 * 48 + k_0 * 16 + i_2_j_2 % 4 * 4];
    }
    for (int ax0_ax1_0_0_1 = 0; ax0_ax1_0_0_1 < 2; ++ax0_ax1_0_0_1) {
      *(float4*)&B_shared[ax0_ax1_0_0_1 * 64 + i_2_j_2 / 2 * 8 + ((i_2_j_2 % 2) ^ (i_2_j_2 / 8)) * 4] = *(const float4*)&B[k_0 * 512 + ax0_ax1_0_0_1 * 256 + i_2_j_2 / 2 * 32 + i_0_j_0 % 4 * 8 + i_2_j_2 % 2 * 4];
    }
    __syncthreads();
    for (int k_1 = 0; k_1 < 16; ++k_1) {
      #pragma unroll
      for (int i_c_3_1 = 0; i_c_3_1 < 2; ++i_c_3_1) {
        #pragma unroll
        for (int j_c_3_1 = 0; j_c_3_1 < 2; ++j_c_3_1) {
          C_local[i_c_3_1 * 2 + j_c_3_1] = C_local[i_c_3_1 * 2 + j_c_3_1] + A_shared[i_2_j_2 / 4 * 32 + i_c_3_1 * 16 + ((k_1 / 4) ^ (i_2_j_2 / 4)) * 4 + k_1 % 4] * B_shared[k_1 * 8 + ((i_2_j_2 / 2 % 2) ^ (k_1 / 4 % 2)) * 4 + i_2_j_2 % 2 * 2 + j_c_3_1];
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
