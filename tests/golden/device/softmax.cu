extern "C" __global__ void __launch_bounds__(32) softmax_kernel0(const float* __restrict__ X, float* __restrict__ Y) {
  __shared__ __align__(16) float red[32];
  const int i = blockIdx.x;
  const int threadIdx_x = threadIdx.x;
  float best[1];
  float total[1];
  best[0] = -3.4028235e+38f;
  for (int j = 0; j < 2; ++j) {
    if (j * 32 + threadIdx_x < 50) {
      best[0] = fmaxf(best[0], X[i * 50 + j * 32 + threadIdx_x]);
    }
  }
  __syncthreads();
  red[threadIdx_x] = best[0];
  __syncthreads();
  if (threadIdx_x < 16) {
    red[threadIdx_x] = fmaxf(red[threadIdx_x], red[threadIdx_x + 16]);
  }
  __syncthreads();
  if (threadIdx_x < 8) {
    red[threadIdx_x] = fmaxf(red[threadIdx_x], red[threadIdx_x + 8]);
  }
  __syncthreads();
  if (threadIdx_x < 4) {
    red[threadIdx_x] = fmaxf(red[threadIdx_x], red[threadIdx_x + 4]);
  }
  __syncthreads();
  if (threadIdx_x < 2) {
    red[threadIdx_x] = fmaxf(red[threadIdx_x], red[threadIdx_x + 2]);
  }
  __syncthreads();
  if (threadIdx_x < 1) {
    red[threadIdx_x] = fmaxf(red[threadIdx_x], red[threadIdx_x + 1]);
  }
  __syncthreads();
  best[0] = red[0];
  total[0] = 0.0f;
  for (int j_1 = 0; j_1 < 2; ++j_1) {
    if (j_1 * 32 + threadIdx_x < 50) {
      total[0] = total[0] + expf(X[i * 50 + j_1 * 32 + threadIdx_x] - best[0]);
    }
  }
  __syncthreads();
  red[threadIdx_x] = total[0];
  __syncthreads();
  if (threadIdx_x < 16) {
    red[threadIdx_x] = red[threadIdx_x] + red[threadIdx_x + 16];
  }
  __syncthreads();
  if (threadIdx_x < 8) {
    red[threadIdx_x] = red[threadIdx_x] + red[threadIdx_x + 8];
  }
  __syncthreads();
  if (threadIdx_x < 4) {
    red[threadIdx_x] = red[threadIdx_x] + red[threadIdx_x + 4];
  }
  __syncthreads();
  if (threadIdx_x < 2) {
    red[threadIdx_x] = red[threadIdx_x] + red[threadIdx_x + 2];
  }
  __syncthreads();
  if (threadIdx_x < 1) {
    red[threadIdx_x] = red[threadIdx_x] + red[threadIdx_x + 1];
  }
  __syncthreads();
  total[0] = red[0];
  for (int j_2 = 0; j_2 < 2; ++j_2) {
    if (j_2 * 32 + threadIdx_x < 50) {
      Y[i * 50 + j_2 * 32 + threadIdx_x] = expf(X[i * 50 + j_2 * 32 + threadIdx_x] - best[0]) / total[0];
    }
  }
}
