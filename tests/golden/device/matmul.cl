__kernel __attribute__((reqd_work_group_size(8, 8, 1))) void matmul_kernel0(__global const float* restrict A, __global const float* restrict B, __global float* restrict C) {
  __local float A_shared[128] __attribute__((aligned(16)));
  __local float B_shared[128] __attribute__((aligned(16)));
  const int i_0 = get_group_id(1);
  const int j_0 = get_group_id(0);
  const int i_1 = get_local_id(1);
  const int j_1 = get_local_id(0);
  float C_local[4];
  #pragma unroll
  for (int i_2 = 0; i_2 < 2; ++i_2) {
    #pragma unroll
    for (int j_2 = 0; j_2 < 2; ++j_2) {
      C_local[i_2 * 2 + j_2] = 0.0f;
    }
  }
  for (int k_0 = 0; k_0 < 8; ++k_0) {
    barrier(CLK_LOCAL_MEM_FENCE);
    *(__local float2*)&A_shared[i_1 * 16 + j_1 * 2] = *(const __global float2*)&A[i_0 * 1024 + i_1 * 128 + j_1 / 4 * 64 + k_0 * 8 + j_1 % 4 * 2];
    *(__local float2*)&B_shared[i_1 * 16 + j_1 * 2] = *(const __global float2*)&B[k_0 * 512 + i_1 * 64 + j_0 * 16 + j_1 * 2];
    barrier(CLK_LOCAL_MEM_FENCE);
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
    *(__global float2*)&C[i_0 * 1024 + i_1 * 128 + i_2_2 * 64 + j_0 * 16 + j_1 * 2] = (float2)(
      C_local[i_2_2 * 2],
      C_local[i_2_2 * 2 + 1]
    );
  }
}
