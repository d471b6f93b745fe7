typedef ushort ansor_float16;
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif

float ansor_from_float16(ansor_float16 x) {
#ifdef cl_khr_fp16
  return convert_float(as_half(x));
#else
  const uint magnitude = x & 0x7fffu;
  const uint small = as_uint((float)magnitude * 5.9604645e-08f);
  const uint normal = (magnitude << 13) + 0x38000000u;
  const uint special = (magnitude << 13) | 0x7f800000u;
  const uint sign = (uint)(x & 0x8000u) << 16;
  return as_float(sign | (magnitude < 0x400u ? small : magnitude < 0x7c00u ? normal : special));
#endif
}

__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void kernel_kernel0(__global const ansor_float16* restrict A, __global const ansor_float16* restrict B, __global float* restrict C) {
  __local ansor_float16 B_shared[384] __attribute__((aligned(16)));
  __local ansor_float16 A_shared[768] __attribute__((aligned(16)));
  const int j_0 = get_group_id(0);
  const int i_2_j_1_i_5_j_3 = get_local_id(0);
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
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int ax0_ax1_0_0 = 0; ax0_ax1_0_0 < 2; ++ax0_ax1_0_0) {
      *(__local ushort8*)&A_shared[ax0_ax1_0_0 * 384 + i_2_j_1_i_5_j_3 / 2 * 24 + i_2_j_1_i_5_j_3 % 2 * 8] = *(const __global ushort8*)&A[ax0_ax1_0_0 * 512 + i_2_j_1_i_5_j_3 / 2 * 32 + k_0_0 * 16 + i_2_j_1_i_5_j_3 % 2 * 8];
    }
    *(__local ushort8*)&B_shared[i_2_j_1_i_5_j_3 / 2 * 24 + i_2_j_1_i_5_j_3 % 2 * 8] = *(const __global ushort8*)&B[k_0_0 * 512 + i_2_j_1_i_5_j_3 / 2 * 32 + j_0 * 16 + i_2_j_1_i_5_j_3 % 2 * 8];
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (int i_c_0_1 = 0; i_c_0_1 < 2; ++i_c_0_1) {
      #pragma unroll
      for (int j_c_0_1 = 0; j_c_0_1 < 2; ++j_c_0_1) {
        #pragma unroll
        for (int i_c_1_1 = 0; i_c_1_1 < 2; ++i_c_1_1) {
          #pragma unroll
          for (int j_c_2_1 = 0; j_c_2_1 < 2; ++j_c_2_1) {
            #pragma unroll
            for (int k_1 = 0; k_1 < 16; ++k_1) {
              C_local[i_c_0_1 * 8 + j_c_0_1 * 4 + i_c_1_1 * 2 + j_c_2_1] = C_local[i_c_0_1 * 8 + j_c_0_1 * 4 + i_c_1_1 * 2 + j_c_2_1] + ansor_from_float16(A_shared[i_c_0_1 * 384 + i_c_1_1 * 192 + i_2_j_1_i_5_j_3 / 4 * 24 + k_1]) * ansor_from_float16(B_shared[k_1 * 24 + j_c_0_1 * 8 + i_2_j_1_i_5_j_3 % 4 * 2 + j_c_2_1]);
            }
          }
        }
      }
    }
  }
  #pragma unroll
  for (int i_3 = 0; i_3 < 2; ++i_3) {
    #pragma unroll
    for (int j_2 = 0; j_2 < 2; ++j_2) {
      #pragma unroll
      for (int i_4 = 0; i_4 < 2; ++i_4) {
        *(__global float2*)&C[i_3 * 512 + i_4 * 256 + i_2_j_1_i_5_j_3 / 4 * 32 + j_0 * 16 + j_2 * 8 + i_2_j_1_i_5_j_3 % 4 * 2] = (float2)(
          C_local[i_3 * 8 + j_2 * 4 + i_4 * 2],
          C_local[i_3 * 8 + j_2 * 4 + i_4 * 2 + 1]
        );
      }
    }
  }
}
