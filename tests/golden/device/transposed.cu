extern "C" __global__ void __launch_bounds__(256) transposed_kernel0(const float* __restrict__ A, float* __restrict__ B) {
  __shared__ __align__(16) float A_shared[1056];
  const int i_0 = blockIdx.y;
  const int j_0 = blockIdx.x;
  const int i_1 = threadIdx.y;
  const int j_1 = threadIdx.x;
  const float4 A_v = *(const float4*)&A[i_0 * 2048 + i_1 * 64 + j_0 * 32 + j_1 * 4];
  A_shared[i_1 * 33 + j_1 * 4] = A_v.x;
  A_shared[i_1 * 33 + j_1 * 4 + 1] = A_v.y;
  A_shared[i_1 * 33 + j_1 * 4 + 2] = A_v.z;
  A_shared[i_1 * 33 + j_1 * 4 + 3] = A_v.w;
  __syncthreads();
  *(float4*)&B[j_0 * 2048 + i_1 * 64 + i_0 * 32 + j_1 * 4] = make_float4(
    A_shared[j_1 * 132 + i_1],
    A_shared[j_1 * 132 + i_1 + 33],
    A_shared[j_1 * 132 + i_1 + 66],
    A_shared[j_1 * 132 + i_1 + 99]
  );
}
