"""From IR to code: what LLVM itself gets wrong on the way."""

from __future__ import annotations

import ctypes

import numpy as np

from ansor.codegen.machine import Machine
from tests.codegen_helper import load

TWISTED = """
define void @twisted(ptr %x, ptr %y) {
entry:
  %slot = alloca [16 x i8], align 64
  br label %loop
loop:
  %first = load <2 x float>, ptr %x, align 4
  %one = fadd <2 x float> %first, splat (float 1.0)
  %middle = getelementptr i8, ptr %slot, i64 8
  store <2 x float> %one, ptr %middle, align 8
  %at = getelementptr i8, ptr %x, i64 8
  %second = load <2 x float>, ptr %at, align 4
  %two = fadd <2 x float> %second, splat (float 2.0)
  store <2 x float> %two, ptr %slot, align 8
  %all = load <4 x float>, ptr %slot, align 16
  store <4 x float> %all, ptr %y, align 4
  ret void
}
"""


def test_vectors_that_are_stored_in_another_order_than_they_lie_in_a_stack_slot() -> None:
    machine = Machine.host()
    x, y = np.arange(4, dtype="float32"), np.empty(4, "float32")

    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(load(TWISTED, "twisted", machine))
    function(x.ctypes.data, y.ctypes.data)

    assert y.tolist() == [4, 5, 1, 2]
