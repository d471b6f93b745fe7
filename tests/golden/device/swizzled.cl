__kernel __attribute__((reqd_work_group_size(16, 1, 1))) void kernel_kernel0(__global const float* restrict A, __global const float* restrict B, __global float* restrict C) {
  __local float B_shared[128] __attribute__((aligned(16)));
  __local float A_shared[128] __attribute__((aligned(16)));
  const int i_0_j_0 = get_group_id(0);
  const int i_2_j_2 = get_local_id(0);
  float C_local[4];
  #pragma unroll
  for (int i_c_3 = 0; i_c_3 < 2; ++i_c_3) {
    #pragma unroll
    for (int j_c_3 = 0; j_c_3 < 2; ++j_c_3) {
      C_local[i_c_3 * 2 + j_c_3] = 0.0f;
    }
  }
  for (int k_0 = 0; k_0 < 3; ++k_0) {
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int ax0_ax1_0_0 = 0; ax0_ax1_0_0 < 2; ++ax0_ax1_0_0) {
      *(__local float4*)&A_shared[ax0_ax1_0_0 * 64 + i_2_j_2 / 4 * 16 + ((i_2_j_2 % 4) ^ (ax0_ax1_0_0 * 2 + i_2_j_2 / 8)) * 4] = *(const __global float4*)&A[i_0_j_0 / 4 * 384 + ax0_ax1_0_0 * 192 + i_2_j_2 / 4 * 48 + k_0 * 16 + i_2_j_2 % 4 * 4];
    }
    for (int ax0_ax1_0_0_1 = 0; ax0_ax1_0_0_1 < 2; ++ax0_ax1_0_0_1) {
      *(__local float4*)&B_shared[ax0_ax1_0_0_1 * 64 + i_2_j_2 / 2 * 8 + ((i_2_j_2 % 2) ^ (i_2_j_2 / 8)) * 4] = *(const __global float4*)&B[k_0 * 512 + ax0_ax1_0_0_1 * 256 + i_2_j_2 / 2 * 32 + i_0_j_0 % 4 * 8 + i_2_j_2 % 2 * 4];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
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
