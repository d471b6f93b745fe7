__kernel __attribute__((reqd_work_group_size(8, 32, 1))) void transposed_kernel0(__global const float* restrict A, __global float* restrict B) {
  __local float A_shared[1056] __attribute__((aligned(16)));
  const int i_0 = get_group_id(1);
  const int j_0 = get_group_id(0);
  const int i_1 = get_local_id(1);
  const int j_1 = get_local_id(0);
  const float4 A_v = *(const __global float4*)&A[i_0 * 2048 + i_1 * 64 + j_0 * 32 + j_1 * 4];
  A_shared[i_1 * 33 + j_1 * 4] = A_v.x;
  A_shared[i_1 * 33 + j_1 * 4 + 1] = A_v.y;
  A_shared[i_1 * 33 + j_1 * 4 + 2] = A_v.z;
  A_shared[i_1 * 33 + j_1 * 4 + 3] = A_v.w;
  barrier(CLK_LOCAL_MEM_FENCE);
  *(__global float4*)&B[j_0 * 2048 + i_1 * 64 + i_0 * 32 + j_1 * 4] = (float4)(
    A_shared[j_1 * 132 + i_1],
    A_shared[j_1 * 132 + i_1 + 33],
    A_shared[j_1 * 132 + i_1 + 66],
    A_shared[j_1 * 132 + i_1 + 99]
  );
}
