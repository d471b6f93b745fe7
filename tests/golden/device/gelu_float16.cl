typedef ushort ansor_float16;
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif

float ansor_from_float16(ansor_float16 x) {
#ifdef cl_khr_fp16
  return convert_float(as_half(x));
#else
  const uint magnitude = x & 0x7fffu;
  const uint small = as_uint((float)magnitude * 5.9604645e-08f);
  const uint normal = (magnitude << 13) + 0x38000000u;
  const uint special = (magnitude << 13) | 0x7f800000u;
  const uint sign = (uint)(x & 0x8000u) << 16;
  return as_float(sign | (magnitude < 0x400u ? small : magnitude < 0x7c00u ? normal : special));
#endif
}

ansor_float16 ansor_to_float16(float x) {
#ifdef cl_khr_fp16
  return as_ushort(convert_half_rte(x));
#else
  const uint magnitude = as_uint(x) & 0x7fffffffu;
  const uint sign = (as_uint(x) >> 16) & 0x8000u;
  const uint small = as_uint(as_float(magnitude) + 0.5f) - 0x3f000000u;
  const uint normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const uint special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint finite = magnitude < 0x38800000u ? small : normal;
  return (ansor_float16)(sign | (magnitude < 0x47800000u ? finite : special));
#endif
}

float ansor_round_float16(float x) {
  return ansor_from_float16(ansor_to_float16(x));
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void gelu_kernel0(__global const ansor_float16* restrict X, __global float* restrict wide, int n, int m) {
  const int i = get_local_id(0);
  for (int j = 0; j < m; ++j) {
    if (i < n) {
      wide[(long)i * m + j] = ansor_from_float16(X[(long)i * m + j]) * (erf(ansor_from_float16(X[(long)i * m + j]) * 0.70710677f) * 0.5f + 0.5f);
    }
  }
}

__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void gelu_kernel1(__global ansor_float16* restrict Y, __global const float* restrict wide, int m) {
  const int i = get_group_id(0);
  const int j = get_local_id(0);
  if (j < m + 3) {
    Y[(long)i * (m + 3) + j] = ansor_to_float16((j >= 1 && j <= m ? ansor_round_float16(wide[(long)i * m + (j - 1)]) : 0.0f) + 1.0f);
  }
}
