__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void copied_kernel0(__global const float* restrict A, __global float* restrict B) {
  const int i_0 = get_group_id(0);
  const int i_1 = get_local_id(0);
  const float4 A_v = *(const __global float4*)&A[i_0 * 128 + i_1 * 4];
  *(__global float4*)&B[i_0 * 128 + i_1 * 4] = (float4)(
    fmax(A_v.x, 0.0f),
    fmax(A_v.y, 0.0f),
    fmax(A_v.z, 0.0f),
    fmax(A_v.w, 0.0f)
  );
}
