"""Large scratch memory stays between calls, within a bound; threads share none; none outlives its code."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.codegen.compile import compile_ir
from ansor.codegen.machine import Machine
from ansor.runtime.jit import load_object
from ansor.runtime.pool_ir import LARGE, MOST_BLOCKS, MOST_IDLE, AtFork, Waiting, pool_ir
from measure.workers.arena import HUGE_BYTES, GuardedArray

MIB = 1 << 20
ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.skipif(os.name != "posix", reason="scratch memory is the system's own here")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at a process as Linux shows it")

OPENED = """
define i64 @idle() {
  %units = load atomic i64, ptr @pool.idle seq_cst, align 8
  ret i64 %units
}

; Take blocks of changing sizes, leave a mark at both ends, look whether it is still there, give them back.
define void @take_turns(ptr %errors, i32 %t, i32 %n) {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i.next, %next ]
  %changing = mul i32 %t, 7
  %more = add i32 %changing, %i
  %odd = urem i32 %more, 5
  %odd.wide = zext i32 %odd to i64
  %extra = shl i64 %odd.wide, 21
  %bytes = add i64 %extra, 4194304
  %block = call ptr @ansor_alloc(i64 %bytes)
  %last = sub i64 %bytes, 4
  %end = getelementptr i8, ptr %block, i64 %last
  store volatile i32 %t, ptr %block, align 4
  store volatile i32 %t, ptr %end, align 4
  %r = call i32 @sched_yield()
  %one = load volatile i32, ptr %block, align 4
  %other = load volatile i32, ptr %end, align 4
  %one.wrong = icmp ne i32 %one, %t
  %other.wrong = icmp ne i32 %other, %t
  %wrong = or i1 %one.wrong, %other.wrong
  %count = zext i1 %wrong to i32
  %before = atomicrmw add ptr %errors, i32 %count seq_cst
  call void @ansor_free(ptr %block)
  br label %next
next:
  %i.next = add i32 %i, 1
  %again = icmp ult i32 %i.next, 300
  br i1 %again, label %loop, label %done
done:
  ret void
}
define void @race(ptr %errors) {
  call void @ansor_parallel_for(ptr @take_turns, ptr %errors, i32 1)
  ret void
}
"""


class Scratch:
    """The scratch memory of a pool of its own."""

    def __init__(self, waiting: Waiting | None = None) -> None:
        machine = Machine.host()
        glibc = hasattr(ctypes.CDLL(None), AtFork.GLIBC.value)
        text = pool_ir(machine.triple, waiting=waiting, at_fork=AtFork.GLIBC if glibc else AtFork.POSIX)
        text += OPENED if "@sched_yield" in text else f"declare i32 @sched_yield()\n{OPENED}"
        names = ("ansor_alloc", "ansor_free", "ansor_set_num_threads", "idle", "race")
        self._code = load_object(compile_ir(text, machine), names)
        self._code.keep_forever()
        self.alloc = self._function("ansor_alloc", ctypes.c_void_p, ctypes.c_int64)
        self.free = self._function("ansor_free", None, ctypes.c_void_p)
        self.set_num_threads = self._function("ansor_set_num_threads", None, ctypes.c_int32)
        self.race = self._function("race", None, ctypes.c_void_p)

    def _function(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        return ctypes.CFUNCTYPE(result, *arguments)(self._code[name])

    def take(self, sizes: Sequence[int]) -> list[int]:
        """Take blocks of so many bytes; each stands alone, on a cache line."""
        places = [self.alloc(size) for size in sizes]
        assert all(place % 64 == 0 for place in places)
        spans = sorted(zip(places, sizes, strict=True))
        assert all(a + size <= b for (a, size), (b, _) in pairwise(spans))
        return places

    def give(self, places: Sequence[int]) -> None:
        for place in places:
            self.free(place)

    @property
    def idle(self) -> int:
        """Bytes that are kept while nobody uses them."""
        return int(self._function("idle", ctypes.c_int64)()) << 21


@pytest.fixture
def scratch() -> Scratch:
    return Scratch()


def test_small_memory_is_the_systems(scratch: Scratch) -> None:
    places = scratch.take([0, 1, 64, 100, 70_000, LARGE - 1])
    for place in places:
        ctypes.memset(place, 1, 1)
    scratch.give(places)
    assert scratch.idle == 0


@on_linux
@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="this system has no large pages"
)
def test_large_blocks_and_arguments_are_in_large_pages(scratch: Scratch) -> None:
    """As far as the system grants them: it is asked to, which its flags of a place in memory tell."""
    (block,) = scratch.take([16 * MIB])
    large, small = GuardedArray((HUGE_BYTES,), "uint8"), GuardedArray((HUGE_BYTES - 1,), "uint8")
    places = (block + MIB, large.address + MIB, small.address + MIB)
    assert [flags_of(place) & {"hg"} for place in places] == [{"hg"}, {"hg"}, set()]
    scratch.give([block])


def flags_of(address: int) -> set[str]:
    """The flags that Linux shows of a place in this process's memory."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(found[1], 16) <= address < int(found[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return set(line.split()[1:])
    pytest.skip("this system shows no flags of memory")


@pytest.mark.parametrize(
    ("size", "same"), [(16 * MIB, True), (9 * MIB, True), (6 * MIB, False), (17 * MIB, False)]
)
def test_a_large_block_is_found_again(size: int, same: bool, scratch: Scratch) -> None:
    """By who wants as much, or half as much; not by who would waste most of it."""
    (first,) = scratch.take([16 * MIB])
    assert scratch.idle == 0
    scratch.give([first])
    assert scratch.idle == 16 * MIB
    (second,) = scratch.take([size])
    assert (second == first) is same
    assert scratch.idle == (0 if same else 16 * MIB)
    scratch.give([second])


def test_of_several_blocks_the_smallest_that_fits_is_taken(scratch: Scratch) -> None:
    places = scratch.take([12 * MIB, 8 * MIB, 10 * MIB])
    scratch.give(places)
    assert scratch.take([7 * MIB, 10 * MIB, 7 * MIB]) == [places[1], places[2], places[0]]


def test_what_is_kept_is_bounded(scratch: Scratch) -> None:
    scratch.give(scratch.take([60 * MIB] * 6))
    assert scratch.idle == 240 * MIB <= MOST_IDLE
    other = scratch.take([100 * MIB])
    assert scratch.idle == 120 * MIB
    scratch.give(other)
    assert scratch.idle == 220 * MIB
    scratch.give(scratch.take([MOST_IDLE + 1]))
    assert scratch.idle == 220 * MIB


def test_there_may_be_more_blocks_than_the_table_holds(scratch: Scratch) -> None:
    places = scratch.take([LARGE] * (MOST_BLOCKS + 20))
    scratch.give(places[::2])
    scratch.give(places[1::2])
    assert 0 < scratch.idle <= MOST_IDLE
    scratch.give(scratch.take([LARGE, 2 * LARGE, 3 * LARGE]))
    assert 0 < scratch.idle <= MOST_IDLE


@pytest.mark.parametrize("waiting", [None, Waiting.SERIAL])
def test_no_two_threads_have_the_same_block(waiting: Waiting | None) -> None:
    scratch = Scratch(waiting)
    scratch.set_num_threads(6)
    errors = ctypes.c_int32(0)
    for _ in range(3):
        scratch.race(ctypes.addressof(errors))
    assert errors.value == 0
    assert 0 < scratch.idle <= MOST_IDLE


def _script(text: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr


@on_linux
def test_what_is_kept_is_given_up_where_there_is_no_other_memory() -> None:
    _script(
        """
import resource
from tests.test_runtime_scratch import MIB, Scratch
scratch = Scratch()
mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + 200 * MIB,) * 2)
scratch.give(scratch.take([120 * MIB]))
assert scratch.idle == 120 * MIB
scratch.take([130 * MIB])
assert scratch.idle == 0
"""
    )


def table_sums(rows: int, columns: int) -> ansor.Module:
    """A kernel whose only large array is its scratch memory, 4 bytes for each row and column."""
    a = te.placeholder((rows,), "int32", name="A")
    table = te.compute((rows, columns), lambda i, j: a[i] + te.cast(j, "int32"), name="T")
    j = te.reduce_axis((0, columns), name="j")
    sums = te.compute((rows,), lambda i: te.sum(table[i, j], axis=j), name="S")
    s = te.create_schedule(sums.op)
    s[table].parallel(table.op.axis[0])
    return ansor.build(s, [a, sums], name="table_sums")


@on_linux
def test_a_kernel_finds_its_memory_again() -> None:
    """More than what malloc would keep; as few page faults tell, the second call has that of the first."""
    import resource

    kernel, a = table_sums(1280, 8192), np.arange(1280, dtype=np.int32)
    expected = 8192 * a + 8191 * 4096
    for _ in range(2):
        np.testing.assert_array_equal(kernel(a), expected)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        kernel(a)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 1000


@on_linux
@pytest.mark.parametrize("threads", [1, 3])
def test_a_library_gives_its_memory_back_when_it_is_unloaded(threads: int, tmp_path: Path) -> None:
    table_sums(640, 8192).export_library(tmp_path / "sums.so")
    _script(
        """
import ctypes, sys, _ctypes
import numpy as np

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

library = ctypes.CDLL(sys.argv[1])
library.table_sums_set_num_threads(int(sys.argv[2]))
a, s = np.ones(640, np.int32), np.empty(640, np.int32)
before = resident()
for _ in range(3):
    library.table_sums(ctypes.c_void_p(a.ctypes.data), ctypes.c_void_p(s.ctypes.data))
    assert resident() - before > 15 << 20
assert (s == 8192 + 8191 * 4096).all()
_ctypes.dlclose(library._handle)
assert resident() - before < 5 << 20
""",
        str(tmp_path / "sums.so"),
        str(threads),
    )
