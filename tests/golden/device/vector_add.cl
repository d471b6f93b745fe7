__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void vector_add_kernel0(__global const float* restrict A, __global const float* restrict B, __global float* restrict C, int n) {
  const int i_0 = get_group_id(0);
  const int i_1 = get_local_id(0);
  if (i_0 * 256 + i_1 < n) {
    C[i_0 * 256 + i_1] = A[i_0 * 256 + i_1] + B[i_0 * 256 + i_1];
  }
}
