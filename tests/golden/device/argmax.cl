__kernel __attribute__((reqd_work_group_size(8, 1, 1))) void argmax_kernel0(__global const float* restrict X, __global int* restrict where, __global float* restrict max_) {
  __local int where_red[8] __attribute__((aligned(16)));
  __local float max_red[8] __attribute__((aligned(16)));
  const int i = get_group_id(0);
  const int j_1 = get_local_id(0);
  int where_best[1];
  float max_best[1];
  where_best[0] = -1;
  max_best[0] = as_float(0xff800000u);
  for (int j_0 = 0; j_0 < 5; ++j_0) {
    const float new_ = X[i * 40 + j_0 * 8 + j_1];
    const float known = max_best[0];
    where_best[0] = known >= new_ ? where_best[0] : j_0 * 8 + j_1;
    max_best[0] = known >= new_ ? known : new_;
  }
  where_red[j_1] = where_best[0];
  max_red[j_1] = max_best[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  if (j_1 < 4) {
    const float new__1 = max_red[j_1 + 4];
    const float known_1 = max_red[j_1];
    where_red[j_1] = known_1 >= new__1 ? where_red[j_1] : where_red[j_1 + 4];
    max_red[j_1] = known_1 >= new__1 ? known_1 : new__1;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (j_1 < 2) {
    const float new__2 = max_red[j_1 + 2];
    const float known_2 = max_red[j_1];
    where_red[j_1] = known_2 >= new__2 ? where_red[j_1] : where_red[j_1 + 2];
    max_red[j_1] = known_2 >= new__2 ? known_2 : new__2;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
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
