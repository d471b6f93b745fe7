"""Loops with barriers and conditions on indices: what PoCL is given for them, and that it is right."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.runtime.device.door import KernelCall
from ansor.runtime.device.pocl_barriers import with_hidden_indices
from tests.device_kernels import needs_opencl, opencl
from tests.gpu_schedules import kernels, matmul, product_arrays
from tests.opencl_helper import run_opencl

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


def test_indices_and_loops_are_hidden_behind_each_barrier_of_a_kernel() -> None:
    hidden = with_hidden_indices(COPY + TWICE)
    assert hidden.startswith(COPY)
    barrier = '{ barrier(CLK_LOCAL_MEM_FENCE); __asm__ volatile("" : "+r"(b), "+r"(t), "+r"(k)); }'
    assert hidden.count(barrier) == 2
    assert "  int b = get_group_id(0);\n  int t = get_local_id(0);\n" in hidden


def test_indices_of_64_bits_are_hidden_too() -> None:
    hidden = with_hidden_indices(TWICE.replace("const int t", "const long t"))
    assert hidden == with_hidden_indices(TWICE).replace("int t", "long t")


def test_other_sources_stay_as_they_are() -> None:
    for source in ("", COPY, TWICE.replace("const int", "int"), "void f() {}\n" + COPY):
        assert with_hidden_indices(source) == source


def test_variables_of_loops_are_hidden_where_they_are_known() -> None:
    """Behind a barrier in a loop its own variable and those around it, and no other's."""
    source = """\
__kernel void nested(__global float* A) {
  const int t = get_local_id(0);
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      A[t] = A[t] + 1.0f;
    }
    if (i < 1) {
      for (long k = 0; k < 2; ++k) {
        barrier(CLK_LOCAL_MEM_FENCE);
      }
    } else {
      barrier(CLK_LOCAL_MEM_FENCE);
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
}
"""
    found = [
        re.findall(r'r"\((\w)\)', line) for line in with_hidden_indices(source).split("\n") if "asm" in line
    ]
    assert found == [["t", "i", "k"], ["t", "i"], ["t"]]


@needs_opencl
def test_barriers_in_many_loops_take_no_more_registers_than_there_are() -> None:
    depth = 16
    a = te.placeholder((2,) * depth + (4,), name="A")
    axes = [te.reduce_axis((0, 2), name=f"k{d}") for d in range(depth)]
    c = te.compute((4,), lambda i: te.sum(a[(*axes, 3 - i)], axis=axes), name="C")
    s = te.create_schedule(c)
    staged = s.cache_read(a, "shared", [c])
    s[staged].compute_at(s[c], axes[-1])
    for tensor in (c, staged):
        s[tensor].bind(s[tensor].op.axis[-1], "threadIdx.x")
    code = with_hidden_indices(ansor.build(s, [a, c], target="opencl").get_source("opencl"))
    found = [len(re.findall(r'"\+r"', asm)) for asm in re.findall("__asm__[^;]*;", code)]
    assert sum(found) == 2 * (1 + depth)
    assert max(found) <= 4
    ones = np.ones((2,) * depth + (4,), np.float32)
    np.testing.assert_array_equal(ansor.build(s, [a, c], target="opencl")(ones), 2.0**depth)


@needs_opencl
@pytest.mark.parametrize(("n", "m", "depth"), [(20, 2, 18), (20, 12, 18), (33, 7, 17)])
def test_tiles_of_which_a_loop_has_a_rest_are_right(n: int, m: int, depth: int) -> None:
    """The rest of a reduction is decided behind a barrier, by its loop; alone it made PoCL abort."""
    a, b, c = matmul(n, m, depth)
    schedule = te.create_schedule(c)
    i, j = c.op.axis
    (k,) = c.op.reduce_axis
    blocks, threads = zip(*(schedule[c].split(axis, factor=16) for axis in (i, j)), strict=True)
    k_outer, k_inner = schedule[c].split(k, factor=16)
    schedule[c].reorder(*blocks, *threads, k_outer, k_inner)
    for axis, block, thread in zip("yx", blocks, threads, strict=True):
        schedule[c].bind(block, te.thread_axis(f"blockIdx.{axis}"))
        schedule[c].bind(thread, te.thread_axis(f"threadIdx.{axis}"))
    staged = schedule.cache_read(a, "shared", [c])
    schedule[staged].compute_at(schedule[c], k_outer)
    for axis, loop in zip("yx", schedule[staged].op.axis, strict=True):
        _, thread = schedule[staged].split(loop, factor=16)
        schedule[staged].bind(thread, te.thread_axis(f"threadIdx.{axis}"))
    arrays = product_arrays(n, m, depth)
    run_opencl(kernels(schedule, [a, b, c]), *arrays)
    np.testing.assert_allclose(arrays[2], arrays[0] @ arrays[1], rtol=1e-4, atol=1e-5)
