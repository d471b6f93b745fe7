extern "C" __global__ void __launch_bounds__(32) copied_kernel0(const float* __restrict__ A, float* __restrict__ B) {
  const int i_0 = blockIdx.x;
  const int i_1 = threadIdx.x;
  const float4 A_v = *(const float4*)&A[i_0 * 128 + i_1 * 4];
  *(float4*)&B[i_0 * 128 + i_1 * 4] = make_float4(
    fmaxf(A_v.x, 0.0f),
    fmaxf(A_v.y, 0.0f),
    fmaxf(A_v.z, 0.0f),
    fmaxf(A_v.w, 0.0f)
  );
}
