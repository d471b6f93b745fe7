extern "C" __global__ void __launch_bounds__(8) argmax_kernel0(const float* __restrict__ X, int* __restrict__ where, float* __restrict__ max_) {
  __shared__ __align__(16) int where_red[8];
  __shared__ __align__(16) float max_red[8];
  const int i = blockIdx.x;
  const int j_1 = threadIdx.x;
  int where_best[1];
  float max_best[1];
  where_best[0] = -1;
  max_best[0] = __uint_as_float(0xff800000u);
  for (int j_0 = 0; j_0 < 5; ++j_0) {
    const float new_ = X[i * 40 + j_0 * 8 + j_1];
    const float known = max_best[0];
    where_best[0] = known >= new_ ? where_best[0] : j_0 * 8 + j_1;
    max_best[0] = known >= new_ ? known : new_;
  }
  where_red[j_1] = where_best[0];
  max_red[j_1] = max_best[0];
  __syncthreads();
  if (j_1 < 4) {
    const float new__1 = max_red[j_1 + 4];
    const float known_1 = max_red[j_1];
    where_red[j_1] = known_1 >= new__1 ? where_red[j_1] : where_red[j_1 + 4];
    max_red[j_1] = known_1 >= new__1 ? known_1 : new__1;
  }
  __syncthreads();
  if (j_1 < 2) {
    const float new__2 = max_red[j_1 + 2];
    const float known_2 = max_red[j_1];
    where_red[j_1] = known_2 >= new__2 ? where_red[j_1] : where_red[j_1 + 2];
    max_red[j_1] = known_2 >= new__2 ? known_2 : new__2;
  }
  __syncthreads();
  if (j_1 < 1) {
    const float new__3 = max_red[j_1 + 1];
    const float known_3 = max_red[j_1];
    where_red[j_1] = known_3 >= new__3 ? where_red[j_1] : where_red[j_1 + 1];
    max_red[j_1] = known_3 >= new__3 ? known_3 : new__3;
  }
  if (j_1 == 0) {
    where[i] = where_red[0];
    max_[i] = max_red[0];
  }
}
