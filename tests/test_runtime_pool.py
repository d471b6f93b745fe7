"""The thread pool: every share runs exactly once, whoever calls, and nothing outlives its welcome."""

import ctypes
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import ansor
from ansor.codegen.compile import compile_ir
from ansor.codegen.machine import Machine
from ansor.errors import DefinitionError
from ansor.runtime import pool as pools
from ansor.runtime.jit import load_object
from ansor.runtime.pool_ir import MAX_THREADS, Waiting, default_waiting, pool_ir
from tests.runtime_kernels import axpy

COUNTING = """
declare void @ansor_parallel_launch(ptr, ptr)
declare void @ansor_parallel_launch_limited(ptr, ptr, i32)
; data[share] += 1 in rows of 16 ints; data[share][1] = number of shares
define void @count(ptr %d, i32 %t, i32 %n) {
  %w = zext i32 %t to i64
  %p = getelementptr [16 x i32], ptr %d, i64 %w
  %o = atomicrmw add ptr %p, i32 1 seq_cst
  %q = getelementptr i32, ptr %p, i64 1
  store i32 %n, ptr %q
  ret void
}
define internal void @outer(ptr %d, i32 %t, i32 %n) {
  call void @ansor_parallel_launch(ptr @count, ptr %d)
  ret void
}
define void @once(ptr %d) {
  call void @ansor_parallel_launch(ptr @count, ptr %d)
  ret void
}
define void @limited(ptr %d) {
  call void @ansor_parallel_launch_limited(ptr @count, ptr %d, i32 2)
  ret void
}
define void @nested(ptr %d) {
  call void @ansor_parallel_launch(ptr @outer, ptr %d)
  ret void
}
define void @many(ptr %d, i64 %k) {
entry:
  br label %l
l:
  %i = phi i64 [ 0, %entry ], [ %j, %l ]
  call void @ansor_parallel_launch(ptr @count, ptr %d)
  %j = add i64 %i, 1
  %m = icmp slt i64 %j, %k
  br i1 %m, label %l, label %e
e:
  ret void
}
"""
VARIANTS = {
    "default": {},
    "sleepy": {"worker_spin": 0},
    "nap": {"waiting": Waiting.NAP},
    "serial": {"waiting": Waiting.SERIAL},
}


class Counting:
    """The counting kernels above on a pool of their own."""

    def __init__(self, **options: object) -> None:
        self.pool = pools.load_pool(**options)  # type: ignore[arg-type]
        names = ("once", "limited", "nested", "many")
        self.code = load_object(compile_ir(COUNTING, Machine.host()), names, self.pool.symbols)

    def run(self, name: str, threads: int, times: int | None = None) -> np.ndarray:
        self.pool.set_num_threads(threads)
        data = np.zeros((64, 16), np.int32)
        if times is None:
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.code[name])(data.ctypes.data)
        else:
            call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(self.code[name])
            call(data.ctypes.data, times)
        return data


@pytest.fixture(scope="module", params=VARIANTS)
def counting(request: pytest.FixtureRequest) -> tuple[str, Counting]:
    return request.param, Counting(**VARIANTS[request.param])


def test_every_share_runs_once_in_each_region(counting: tuple[str, Counting]) -> None:
    name, kernels = counting
    for threads in (1, 2, 5, 3, 17, 2):
        shares = 1 if name == "serial" else threads
        data = kernels.run("many", threads, 200)
        assert (data[:shares, 0] == 200).all()
        assert (data[:shares, 1] == shares).all()
        assert (data[shares:] == 0).all()


def test_limited_launch_uses_at_most_the_limit(counting: tuple[str, Counting]) -> None:
    name, kernels = counting
    assert kernels.run("limited", 5)[:, 0].sum() == (1 if name == "serial" else 2)
    assert kernels.run("limited", 1)[:, 0].sum() == 1


def test_nested_regions_run_serially(counting: tuple[str, Counting]) -> None:
    name, kernels = counting
    data = kernels.run("nested", 3)
    assert data[0, 0] == (1 if name == "serial" else 3)
    assert data[0, 1] == 1
    assert (data[1:] == 0).all()


def test_regions_from_several_python_threads_at_a_time() -> None:
    module = axpy()
    ansor.set_num_threads(2)

    def work(seed: int) -> int:
        a, b = np.random.default_rng(seed).random((2, 1000), dtype=np.float32)
        return sum(not np.array_equal(module(a, b), a * 2 + b) for _ in range(300))

    with ThreadPoolExecutor(4) as executor:
        assert sum(executor.map(work, range(4))) == 0


def test_number_of_threads() -> None:
    ansor.set_num_threads(3)
    assert pools.get_num_threads() == 3
    for wrong in (0, -1, MAX_THREADS + 1, 2.0, True):
        with pytest.raises(DefinitionError, match="number of threads must be an integer in 1"):
            ansor.set_num_threads(wrong)  # type: ignore[arg-type]
    ansor.set_num_threads(2)


def test_a_module_stays_below_its_targets_cores() -> None:
    limited = pools.kernel_imports(1)
    assert limited["ansor_parallel_launch"] != pools.process_pool().code["ansor_parallel_launch"]
    module = axpy(threads=1)
    ones = np.ones(10, np.float32)
    assert (module(ones, ones) == 3).all()


def test_scratch_memory_is_aligned() -> None:
    symbols = pools.process_pool().symbols
    alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(symbols["ansor_alloc"])
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(symbols["ansor_free"])
    places = [alloc(size) for size in (1, 100, 70_000)]
    assert all(place and place % 64 == 0 for place in places)
    for place in places:
        free(place)


def _script(text: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": ".", **env},
        check=False,
    )


PREAMBLE = """
import os, numpy as np, ansor
from ansor.runtime.pool import get_num_threads
from tests.runtime_kernels import axpy
module = axpy()
a = np.arange(1000, dtype=np.float32)
expected = a * 3
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_has_a_pool_of_its_own() -> None:
    done = _script(
        PREAMBLE
        + """
ansor.set_num_threads(3)
assert (module(a, a) == expected).all()
child = os.fork()
if child == 0:
    for _ in range(100):
        assert (module(a, a) == expected).all()
    threads = len(os.listdir('/proc/self/task')) if os.path.isdir('/proc/self/task') else 3
    os._exit(0 if threads == 3 else 7)
status = os.waitpid(child, 0)[1]
assert os.waitstatus_to_exitcode(status) == 0, status
assert (module(a, a) == expected).all()
"""
    )
    assert done.returncode == 0, done.stderr


def test_the_interpreter_exits_cleanly_beside_parked_and_spinning_workers() -> None:
    for pause in ("", "import time; time.sleep(0.05)"):
        done = _script(
            PREAMBLE + "ansor.set_num_threads(4)\nassert (module(a, a) == expected).all()\n" + pause
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_the_environment_sets_the_number_of_threads() -> None:
    done = _script(PREAMBLE + "assert get_num_threads() == 5", ANSOR_NUM_THREADS="5")
    assert done.returncode == 0, done.stderr
    done = _script(PREAMBLE + "get_num_threads()", ANSOR_NUM_THREADS="many")
    assert "ANSOR_NUM_THREADS must be a positive integer, found 'many'" in done.stderr


@pytest.mark.parametrize(
    ("triple", "waiting"),
    [
        ("x86_64-unknown-linux-gnu", Waiting.FUTEX),
        ("aarch64-linux-gnu", Waiting.FUTEX),
        ("riscv64-linux-gnu", Waiting.FUTEX),
        ("arm64-apple-macosx14.0.0", Waiting.NAP),
        ("x86_64-pc-windows-msvc", Waiting.SERIAL),
    ],
)
def test_the_pool_compiles_for(triple: str, waiting: Waiting) -> None:
    assert default_waiting(triple) is waiting
    for embedded in (False, True):
        assert compile_ir(pool_ir(triple, embedded=embedded), Machine.of(triple, "generic"))
