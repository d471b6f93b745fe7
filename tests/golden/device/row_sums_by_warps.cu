extern "C" __global__ void __launch_bounds__(64) kernel_kernel0(const float* __restrict__ X, float* __restrict__ S) {
  __shared__ __align__(16) float S_red[2];
  const int i = blockIdx.x;
  const int k_1 = threadIdx.x;
  float S_part[1];
  float S_other[1];
  S_part[0] = 0.0f;
  for (int k_0 = 0; k_0 < 2; ++k_0) {
    if (k_0 * 64 + k_1 < 96) {
      S_part[0] = S_part[0] + X[i * 96 + k_0 * 64 + k_1];
    }
  }
  S_other[0] = __shfl_xor_sync(0xffffffffu, S_part[0], 16);
  S_part[0] = S_part[0] + S_other[0];
  S_other[0] = __shfl_xor_sync(0xffffffffu, S_part[0], 8);
  S_part[0] = S_part[0] + S_other[0];
  S_other[0] = __shfl_xor_sync(0xffffffffu, S_part[0], 4);
  S_part[0] = S_part[0] + S_other[0];
  S_other[0] = __shfl_xor_sync(0xffffffffu, S_part[0], 2);
  S_part[0] = S_part[0] + S_other[0];
  S_other[0] = __shfl_xor_sync(0xffffffffu, S_part[0], 1);
  S_part[0] = S_part[0] + S_other[0];
  if (k_1 % 32 == 0) {
    S_red[k_1 / 32] = S_part[0];
  }
  __syncthreads();
  S_part[0] = S_red[k_1 % 2];
  S_other[0] = __shfl_xor_sync(0xffffffffu, S_part[0], 1);
  S_part[0] = S_part[0] + S_other[0];
  if (k_1 == 0) {
    S[i] = S_part[0];
  }
}
