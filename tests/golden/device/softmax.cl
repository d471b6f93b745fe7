__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void softmax_kernel0(__global const float* restrict X, __global float* restrict Y) {
  __local float red[32] __attribute__((aligned(16)));
  const int i = get_group_id(0);
  const int threadIdx_x = get_local_id(0);
  float best[1];
  float total[1];
  best[0] = -3.4028235e+38f;
  for (int j = 0; j < 2; ++j) {
    if (j * 32 + threadIdx_x < 50) {
      best[0] = fmax(best[0], X[i * 50 + j * 32 + threadIdx_x]);
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  red[threadIdx_x] = best[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  if (threadIdx_x < 16) {
    red[threadIdx_x] = fmax(red[threadIdx_x], red[threadIdx_x + 16]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (threadIdx_x < 8) {
    red[threadIdx_x] = fmax(red[threadIdx_x], red[threadIdx_x + 8]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (threadIdx_x < 4) {
    red[threadIdx_x] = fmax(red[threadIdx_x], red[threadIdx_x + 4]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (threadIdx_x < 2) {
    red[threadIdx_x] = fmax(red[threadIdx_x], red[threadIdx_x + 2]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (threadIdx_x < 1) {
    red[threadIdx_x] = fmax(red[threadIdx_x], red[threadIdx_x + 1]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  best[0] = red[0];
  total[0] = 0.0f;
  for (int j_1 = 0; j_1 < 2; ++j_1) {
    if (j_1 * 32 + threadIdx_x < 50) {
      total[0] = total[0] + exp(X[i * 50 + j_1 * 32 + threadIdx_x] - best[0]);
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  red[threadIdx_x] = total[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  if (threadIdx_x < 16) {
    red[threadIdx_x] = red[threadIdx_x] + red[threadIdx_x + 16];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (threadIdx_x < 8) {
    red[threadIdx_x] = red[threadIdx_x] + red[threadIdx_x + 8];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (threadIdx_x < 4) {
    red[threadIdx_x] = red[threadIdx_x] + red[threadIdx_x + 4];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (threadIdx_x < 2) {
    red[threadIdx_x] = red[threadIdx_x] + red[threadIdx_x + 2];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (threadIdx_x < 1) {
    red[threadIdx_x] = red[threadIdx_x] + red[threadIdx_x + 1];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  total[0] = red[0];
  for (int j_2 = 0; j_2 < 2; ++j_2) {
    if (j_2 * 32 + threadIdx_x < 50) {
      Y[i * 50 + j_2 * 32 + threadIdx_x] = exp(X[i * 50 + j_2 * 32 + threadIdx_x] - best[0]) / total[0];
    }
  }
}
