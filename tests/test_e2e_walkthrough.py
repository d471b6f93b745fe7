"""The walk through the schedule primitives: every step computes the right thing, and looks as expected."""

from dataclasses import replace
from textwrap import dedent

import numpy as np
import pytest

import ansor
from experiments import walkthrough

EXPECTED = {
    ("vector_add", "split by 64"): """
        main(A: float32[n], B: float32[n], n: int32) -> C: float32[n]
        for i.0 in 0..(n + 63)//64:
          for i.1 in 0..64:
            if i.0*64 + i.1 < n:
              C[i.0*64 + i.1] = A[i.0*64 + i.1] + B[i.0*64 + i.1]
    """,
    ("vector_add", "parts on blocks of a GPU, elements on their threads"): """
        main(A: float32[n], B: float32[n], n: int32) -> C: float32[n]
        blockIdx.x i.0 in 0..(n + 63)//64:
          threadIdx.x i.1 in 0..64:
            if i.0*64 + i.1 < n:
              C[i.0*64 + i.1] = A[i.0*64 + i.1] + B[i.0*64 + i.1]

        extern "C" __global__ void __launch_bounds__(64) step_kernel0(const float* __restrict__ A, \
const float* __restrict__ B, float* __restrict__ C, int n) {
          const int i_0 = blockIdx.x;
          const int i_1 = threadIdx.x;
          if (i_0 * 64 + i_1 < n) {
            C[i_0 * 64 + i_1] = A[i_0 * 64 + i_1] + B[i_0 * 64 + i_1];
          }
        }
    """,
    ("row_sum", "split by 32"): """
        main(A: float32[n, m], n: int32, m: int32) -> B: float32[n]
        for i in 0..n:
          B[i] = 0.0
          for k.0 in 0..(m + 31)//32:
            for k.1 in 0..32:
              if k.0*32 + k.1 < m:
                B[i] = B[i] + A[i, k.0*32 + k.1]
    """,
    ("row_sum", "eight partial sums in lanes (rfactor)"): """
        main(A: float32[64, 100]) -> B: float32[64]
        allocate B.rf[1, 8] float32 local
        for ax0 in 0..64:
          vectorize k_i in 0..8:
            B.rf[0, k_i] = 0.0
          for k_o in 0..13:
            vectorize k_i_1 in 0..8:
              if k_o*8 + k_i_1 < 100:
                B.rf[0, k_i_1] = B.rf[0, k_i_1] + A[ax0, k_o*8 + k_i_1]
          B[ax0] = 0.0
          for k_i_v in 0..8:
            B[ax0] = B[ax0] + B.rf[0, k_i_v]
    """,
    ("tile", "tile, then vectorize"): """
        main(A: float32[1024, 1024], B: float32[1024, 1024]) -> C: float32[1024, 1024]
        for i.0 in 0..32:
          for j.0 in 0..32:
            for i.1 in 0..32:
              vectorize j.1 in 0..32:
                C[i.0*32 + i.1, j.0*32 + j.1] = A[i.0*32 + i.1, j.0*32 + j.1] + B[i.0*32 + i.1, j.0*32 + j.1]
    """,
    ("matmul", "another order, then vectorize"): """
        main(A: float32[256, 256], B: float32[256, 256]) -> C: float32[256, 256]
        for i.0 in 0..8:
          for j.0 in 0..8:
            for i.1 in 0..32:
              vectorize j.1 in 0..32:
                C[i.0*32 + i.1, j.0*32 + j.1] = 0.0
            for k.0 in 0..64:
              for i.1_1 in 0..32:
                for k.1 in 0..4:
                  vectorize j.1_1 in 0..32:
                    C[i.0*32 + i.1_1, j.0*32 + j.1_1] = C[i.0*32 + i.1_1, j.0*32 + j.1_1] \
+ A[i.0*32 + i.1_1, k.0*4 + k.1]*B[k.0*4 + k.1, j.0*32 + j.1_1]
    """,
}


@pytest.mark.parametrize("chapter", walkthrough.CHAPTERS)
def test_every_step_is_right_and_looks_as_expected(chapter):
    titles = set()
    for step in walkthrough.CHAPTERS[chapter]():
        step.check()
        titles.add(step.title)
        if (chapter, step.title) in EXPECTED:
            assert step.text == dedent(EXPECTED[chapter, step.title]).strip()
    assert {title for name, title in EXPECTED if name == chapter} <= titles


@pytest.mark.parametrize("size", [1, 63, 64, 65, 1000])
def test_the_vector_sum_serves_every_length(size):
    *_, last = (step for step in walkthrough.vector_add() if step.target == "llvm")
    add = ansor.build(last.schedule, last.args, target="llvm", name="add")
    a = np.arange(size, dtype=np.float32)
    guarded = np.full(size + 16, -1, np.float32)

    add(a, a, guarded[:size])

    assert np.array_equal(guarded[:size], 2 * a)
    assert (guarded[size:] == -1).all()


@pytest.mark.parametrize("size", [1, 64, 65])
def test_the_kernel_of_the_vector_sum_serves_every_length(size):
    *_, last = walkthrough.vector_add()
    assert last.target == "cuda"
    replace(last, shapes=((size,), (size,))).check()
    with pytest.raises(AssertionError):
        replace(last, expected=np.subtract).check()


def test_the_command_shows_chapters(capsys):
    assert walkthrough.main(["vector_add"]) == 0
    shown = capsys.readouterr().out
    assert "=== vector_add" in shown
    assert "if i.0*64 + i.1 < n:" in shown
    assert "if (i_0 * 64 + i_1 < n) {" in shown
    with pytest.raises(SystemExit):
        walkthrough.main(["nothing"])
    assert "choose from vector_add, row_sum, tile, matmul" in capsys.readouterr().err
