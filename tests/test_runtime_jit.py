"""Loading object code into a process whose memory is crowded."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CROWDED = """
import ctypes, mmap
from ansor.codegen.compile import compile_ir
from ansor.codegen.machine import Machine
from ansor.runtime.jit import load_object

PAGE, FAR = mmap.PAGESIZE, 3 << 30
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

def reserve(size):
    place = libc.mmap(None, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, -1, 0)
    assert place != 2**64 - 1
    return place

text = '''
@table = internal global [4 x i32] [i32 3, i32 5, i32 7, i32 11]
define i32 @entry(i64 %i) {
  %place = getelementptr [4 x i32], ptr @table, i64 0, i64 %i
  %value = load i32, ptr %place
  ret i32 %value
}
'''
code = compile_ir(text, Machine.host())
load_object(code, ("entry",))
wall = reserve(FAR)
for _ in range(100_000):
    if reserve(PAGE) < wall:
        break
libc.munmap(wall + FAR - PAGE, PAGE)
loaded = load_object(code, ("entry",))
print([ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)(loaded["entry"])(i) for i in range(4)])
"""
"""Leaves one page free near the process's libraries: the next one is three gigabytes away."""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="its calls are Linux's")
def test_the_parts_of_an_object_reach_each_other_however_memory_is_taken() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CROWDED],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.strip() == "[3, 5, 7, 11]", done.stderr
