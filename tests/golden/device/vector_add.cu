extern "C" __global__ void __launch_bounds__(256) vector_add_kernel0(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int n) {
  const int i_0 = blockIdx.x;
  const int i_1 = threadIdx.x;
  if (i_0 * 256 + i_1 < n) {
    C[i_0 * 256 + i_1] = A[i_0 * 256 + i_1] + B[i_0 * 256 + i_1];
  }
}
