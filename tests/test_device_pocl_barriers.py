"""Loops with barriers and conditions on indices: what PoCL is given for them, and that it is right."""

from __future__ import annotations

import numpy as np

from ansor.runtime.device.door import KernelCall
from ansor.runtime.device.pocl_barriers import with_hidden_indices
from tests.device_kernels import needs_opencl, opencl

TWICE = """\
__kernel void twice(__global const float* restrict A, __global float* restrict B) {
  __local float tile[48];
  const int b = get_group_id(0);
  const int t = get_local_id(0);
  float sum[1];
  if (b % 2 * 5 + t % 5 < 8) {
    sum[0] = 0.0f;
  }
  for (int k = 0; k < 2; ++k) {
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int j = 0; j < 4; ++j) {
      if (j * 12 + t < 46) {
        tile[j * 12 + t] = A[j * 12 + t] + k;
      }
    }
    if (b % 2 * 5 + t % 5 < 8) {
      tile[t] = A[t];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (b % 2 * 5 + t % 5 < 8) {
      sum[0] = sum[0] + tile[t];
    }
  }
  if (b % 2 * 5 + t % 5 < 8) {
    B[b * 12 + t] = sum[0];
  }
}
"""
"""Some threads of each block store 2 A; the others nothing. PoCL 3.0 alone gets it wrong."""

COPY = """\
__kernel void copy(__global const float* A, __global float* B) {
  const int i = get_local_id(0);
  B[i] = A[i];
}
"""


@needs_opencl
def test_threads_with_something_to_do_meet_those_without_in_loops() -> None:
    device = opencl()
    data, found = np.arange(48, dtype=np.float32), np.full(96, -1, np.float32)
    a, b = device.allocate(data.nbytes), device.allocate(found.nbytes)
    device.upload(data, a)
    device.upload(found, b)
    device.prepare(device.compile(TWICE), [KernelCall("twice", (a, b), (8, 1, 1), (12, 1, 1))]).enqueue()
    device.download(b, found)
    block, thread = np.divmod(np.arange(96), 12)
    expected = np.where(block % 2 * 5 + thread % 5 < 8, 2 * data[thread], -1)
    np.testing.assert_array_equal(found, expected)


def test_indices_are_hidden_behind_each_barrier_of_a_kernel() -> None:
    hidden = with_hidden_indices(COPY + TWICE)
    assert hidden.startswith(COPY)
    assert hidden.count('{ barrier(CLK_LOCAL_MEM_FENCE); __asm__ volatile("" : "+r"(b), "+r"(t)); }') == 2
    assert "  int b = get_group_id(0);\n  int t = get_local_id(0);\n" in hidden


def test_indices_of_64_bits_are_hidden_too() -> None:
    hidden = with_hidden_indices(TWICE.replace("const int t", "const long t"))
    assert hidden == with_hidden_indices(TWICE).replace("int t", "long t")


def test_other_sources_stay_as_they_are() -> None:
    for source in ("", COPY, TWICE.replace("const int", "int"), "void f() {}\n" + COPY):
        assert with_hidden_indices(source) == source
