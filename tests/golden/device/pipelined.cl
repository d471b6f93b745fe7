__kernel __attribute__((reqd_work_group_size(16, 1, 1))) void kernel_kernel0(__global const float* restrict A, __global const float* restrict B, __global float* restrict C) {
  __local float B_shared[192] __attribute__((aligned(16)));
  __local float A_shared[192] __attribute__((aligned(16)));
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
  *(__local float4*)&A_shared[i_2_j_2 * 4] = *(const __global float4*)&A[i_0_j_0 / 4 * 320 + i_2_j_2 / 2 * 40 + i_2_j_2 % 2 * 4];
  *(__local float4*)&B_shared[i_2_j_2 * 4] = *(const __global float4*)&B[i_2_j_2 / 2 * 32 + i_0_j_0 % 4 * 8 + i_2_j_2 % 2 * 4];
  *(__local float4*)&A_shared[i_2_j_2 * 4 + 64] = *(const __global float4*)&A[i_0_j_0 / 4 * 320 + i_2_j_2 / 2 * 40 + i_2_j_2 % 2 * 4 + 8];
  *(__local float4*)&B_shared[i_2_j_2 * 4 + 64] = *(const __global float4*)&B[i_2_j_2 / 2 * 32 + i_0_j_0 % 4 * 8 + i_2_j_2 % 2 * 4 + 256];
  for (int k_0 = 0; k_0 < 5; ++k_0) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (k_0 < 3) {
      *(__local float4*)&A_shared[(k_0 + 2) % 3 * 64 + i_2_j_2 * 4] = *(const __global float4*)&A[i_0_j_0 / 4 * 320 + i_2_j_2 / 2 * 40 + k_0 * 8 + i_2_j_2 % 2 * 4 + 16];
      *(__local float4*)&B_shared[(k_0 + 2) % 3 * 64 + i_2_j_2 * 4] = *(const __global float4*)&B[k_0 * 256 + i_2_j_2 / 2 * 32 + i_0_j_0 % 4 * 8 + i_2_j_2 % 2 * 4 + 512];
    }
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
