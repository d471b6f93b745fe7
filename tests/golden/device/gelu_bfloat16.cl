typedef ushort ansor_bfloat16;

float ansor_from_bfloat16(ansor_bfloat16 x) {
  return as_float((uint)x << 16);
}

ansor_bfloat16 ansor_to_bfloat16(float x) {
  const uint bits = as_uint(x);
  const uint lowest = (bits >> 16) & 1u;
  return (ansor_bfloat16)((x != x ? bits | 0x400000u : bits + 0x7fffu + lowest) >> 16);
}

float ansor_round_bfloat16(float x) {
  return ansor_from_bfloat16(ansor_to_bfloat16(x));
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void gelu_kernel0(__global const ansor_bfloat16* restrict X, __global float* restrict wide, int n, int m) {
  const int i = get_local_id(0);
  for (int j = 0; j < m; ++j) {
    if (i < n) {
      wide[(long)i * m + j] = ansor_from_bfloat16(X[(long)i * m + j]) * (erf(ansor_from_bfloat16(X[(long)i * m + j]) * 0.70710677f) * 0.5f + 0.5f);
    }
  }
}

__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void gelu_kernel1(__global ansor_bfloat16* restrict Y, __global const float* restrict wide, int m) {
  const int i = get_group_id(0);
  const int j = get_local_id(0);
  if (j < m + 3) {
    Y[(long)i * (m + 3) + j] = ansor_to_bfloat16((j >= 1 && j <= m ? ansor_round_bfloat16(wide[(long)i * m + (j - 1)]) : 0.0f) + 1.0f);
  }
}
