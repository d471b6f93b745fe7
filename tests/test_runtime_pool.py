"""The thread pool: every share runs exactly once, whoever calls, and nothing outlives its welcome."""

import ctypes
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import ansor
from ansor.codegen.compile import compile_ir
from ansor.codegen.machine import Machine
from ansor.errors import DefinitionError
from ansor.knobs import MAX_THREADS
from ansor.runtime import pool as pools
from ansor.runtime.jit import load_object
from ansor.runtime.pool_ir import MOST_PIECES, AtFork, Waiting, default_waiting, pool_ir
from tests.runtime_kernels import axpy

COUNTING = """
declare void @ansor_parallel_for(ptr, ptr, i32)
declare void @ansor_parallel_for_limited(ptr, ptr, i32, i32)
; data[piece] += 1 in rows of 16 ints; data[piece][1] = number of pieces
define void @count(ptr %d, i32 %t, i32 %n) {
  %w = zext i32 %t to i64
  %p = getelementptr [16 x i32], ptr %d, i64 %w
  %o = atomicrmw add ptr %p, i32 1 seq_cst
  %q = getelementptr i32, ptr %p, i64 1
  store i32 %n, ptr %q
  ret void
}
define internal void @outer(ptr %d, i32 %t, i32 %n) {
  call void @ansor_parallel_for(ptr @count, ptr %d, i32 1)
  ret void
}
define void @once(ptr %d) {
  call void @ansor_parallel_for(ptr @count, ptr %d, i32 1)
  ret void
}
define void @limited(ptr %d) {
  call void @ansor_parallel_for_limited(ptr @count, ptr %d, i32 1, i32 2)
  ret void
}
define void @divided(ptr %d, i64 %most) {
  %m = trunc i64 %most to i32
  call void @ansor_parallel_for(ptr @count, ptr %d, i32 %m)
  ret void
}
; Piece data[0][3] waits until data[0][2], the number of other pieces, have run, or for some seconds; then
; data[0][4] counts those that have.
define internal void @wait_for_others(ptr %d, i32 %t, i32 %n) {
entry:
  %done = getelementptr i32, ptr %d, i64 2
  %slow.place = getelementptr i32, ptr %d, i64 3
  %seen.place = getelementptr i32, ptr %d, i64 4
  %slow = load i32, ptr %slow.place
  %waits = icmp eq i32 %t, %slow
  %others = sub i32 %n, 1
  br i1 %waits, label %look, label %count
look:
  %turn = phi i32 [ 0, %entry ], [ %next, %nap ]
  %seen = load atomic i32, ptr %done seq_cst, align 4
  %all = icmp eq i32 %seen, %others
  %tired = icmp eq i32 %turn, 5000
  %stop = or i1 %all, %tired
  br i1 %stop, label %tell, label %nap
nap:
  %r = call i32 @usleep(i32 1000)
  %next = add i32 %turn, 1
  br label %look
tell:
  store i32 %seen, ptr %seen.place
  ret void
count:
  %o = atomicrmw add ptr %done, i32 1 seq_cst
  ret void
}
declare i32 @usleep(i32)
define void @slow(ptr %d, i64 %most) {
  %m = trunc i64 %most to i32
  call void @ansor_parallel_for(ptr @wait_for_others, ptr %d, i32 %m)
  ret void
}
define void @nested(ptr %d) {
  call void @ansor_parallel_for(ptr @outer, ptr %d, i32 1)
  ret void
}
define void @many(ptr %d, i64 %k) {
entry:
  br label %l
l:
  %i = phi i64 [ 0, %entry ], [ %j, %l ]
  call void @ansor_parallel_for(ptr @count, ptr %d, i32 1)
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


OPENED = """
; Leaves the lock and the job as another thread would at some moment.
define void @leave(i32 %lock, ptr %body, ptr %data, i64 %word) {
  store atomic i32 %lock, ptr @pool.lock seq_cst, align 4
  %body.place = getelementptr { i64, ptr, ptr }, ptr @pool.job, i64 0, i32 1
  store ptr %body, ptr %body.place, align 8
  %data.place = getelementptr { i64, ptr, ptr }, ptr @pool.job, i64 0, i32 2
  store ptr %data, ptr %data.place, align 8
  store atomic i64 %word, ptr @pool.job seq_cst, align 8
  ret void
}
define void @take(i32 %share, i32 %region) {
  %claim = getelementptr [1024 x [8 x i64]], ptr @pool.claims, i64 0, i32 %share, i64 0
  %wide = zext i32 %region to i64
  %high = shl i64 %wide, 32
  %taken = or i64 %high, 1
  store atomic i64 %taken, ptr %claim seq_cst, align 8
  ret void
}
define void @start(i32 %threads) {
  %workers = call i32 @pool.start(i32 %threads)
  ret void
}
define void @part(i32 %workers) {
  call void @pool.part(i32 %workers)
  ret void
}
"""


def opened_pool() -> pools.Pool:
    """A pool that can be brought into states that take bad luck, or hours, to come to."""
    machine = Machine.host()
    hook = next(hook for hook in reversed(AtFork) if hook is AtFork.POSIX or hasattr(ctypes.CDLL(None), hook))
    names = (*pools.POOL_FUNCTIONS, "leave", "take", "start", "part")
    code = load_object(compile_ir(pool_ir(machine.triple, at_fork=hook) + OPENED, machine), names)
    code.keep_forever()
    return pools.Pool(
        code,
        ctypes.CFUNCTYPE(None, ctypes.c_int32)(code["ansor_set_num_threads"]),
        ctypes.CFUNCTYPE(ctypes.c_int32)(code["ansor_get_num_threads"]),
        ctypes.CFUNCTYPE(ctypes.c_int64)(code["ansor_nanoseconds_alone"]),
    )


class Counting:
    """The counting kernels above on a pool of their own."""

    def __init__(self, pool: pools.Pool) -> None:
        self.pool = pool
        names = ("count", "once", "limited", "nested", "many", "divided", "slow")
        self.code = load_object(compile_ir(COUNTING, Machine.host()), names, self.pool.symbols)

    def leave(self, lock: int, data: np.ndarray, region: int, shares: int) -> None:
        types = (ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        call = ctypes.CFUNCTYPE(None, *types)(self.pool.code["leave"])
        call(lock, self.code["count"], data.ctypes.data, 1 << 48 | shares << 32 | region)

    def take(self, share: int, region: int) -> None:
        ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_uint32)(self.pool.code["take"])(share, region)

    def start(self, threads: int) -> None:
        ctypes.CFUNCTYPE(None, ctypes.c_int32)(self.pool.code["start"])(threads)

    def run(
        self, name: str, threads: int, number: int | None = None, data: np.ndarray | None = None
    ) -> np.ndarray:
        self.pool.set_num_threads(threads)
        data = np.zeros((640, 16), np.int32) if data is None else data
        if number is None:
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.code[name])(data.ctypes.data)
        else:
            call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(self.code[name])
            call(data.ctypes.data, number)
        return data


@pytest.fixture(scope="module", params=VARIANTS)
def counting(request: pytest.FixtureRequest) -> tuple[str, Counting]:
    return request.param, Counting(pools.load_pool(**VARIANTS[request.param]))  # type: ignore[arg-type]


def test_every_share_runs_once_in_each_region(counting: tuple[str, Counting]) -> None:
    name, kernels = counting
    for threads in (1, 2, 5, 3, 17, 2):
        shares = 1 if name == "serial" else threads
        data = kernels.run("many", threads, 200)
        assert (data[:shares, 0] == 200).all()
        assert (data[:shares, 1] == shares).all()
        assert (data[shares:] == 0).all()


@pytest.mark.parametrize("threads", [1, 2, 3, 17])
@pytest.mark.parametrize("most", [-1, 0, 1, 2, 5, 34, 100, 1000, 2**31 - 1])
def test_every_piece_runs_once(counting: tuple[str, Counting], threads: int, most: int) -> None:
    name, kernels = counting
    each = 1 if threads == 1 else min(max(most // threads, 1), MOST_PIECES)
    pieces = 1 if name == "serial" else threads * each
    for _ in range(20):
        data = kernels.run("divided", threads, most)
        assert (data[:pieces] == [1, pieces, *[0] * 14]).all()
        assert (data[pieces:] == 0).all()


@pytest.fixture
def cores() -> Iterator[list[int]]:
    """The cores of this process, at least two."""
    if default_waiting(Machine.host().triple) is not Waiting.FUTEX:
        pytest.skip("threads stay where the system puts them")
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("there is one core")
    yield sorted(allowed)
    os.sched_setaffinity(0, allowed)


class Worker:
    """That of a pool with one, and what the launcher does before it wakes those who sleep."""

    def __init__(self) -> None:
        before = set(os.listdir("/proc/self/task"))
        self.kernels = Counting(opened_pool())
        self.kernels.run("once", 2)
        (name,) = set(os.listdir("/proc/self/task")) - before
        self.thread = int(name)

    def may_wake_on(self, expected: set[int], core: int, allowed: Iterable[int]) -> bool:
        """Whether it may run there once a thread on a core, which may use others, is to wake it."""
        for _ in range(10):  # The system may move this thread from that core.
            os.sched_setaffinity(0, {core})
            os.sched_setaffinity(0, allowed)
            ctypes.CFUNCTYPE(None, ctypes.c_int32)(self.kernels.pool.code["part"])(1)
            if os.sched_getaffinity(self.thread) == expected:
                return True
        return False


def test_workers_are_kept_off_the_core_that_they_are_woken_from(cores: list[int]) -> None:
    """A system that takes the other cores for occupied leaves both on one for milliseconds."""
    worker = Worker()
    for core in (cores[-1], cores[0], cores[0], cores[-1]):
        assert worker.may_wake_on({*cores} - {core}, core, cores)
    assert (worker.kernels.run("divided", 2, 64)[:64, 0] == 1).all()


def test_where_others_say_that_a_worker_runs_it_stays(cores: list[int]) -> None:
    first, last = cores[0], cores[-1]
    worker = Worker()
    assert worker.may_wake_on({*cores} - {first}, first, cores)
    os.sched_setaffinity(worker.thread, {last})
    assert worker.may_wake_on({last}, last, {last})
    assert worker.may_wake_on({last}, first, cores)
    os.sched_setaffinity(worker.thread, cores)
    assert worker.may_wake_on({*cores} - {last}, last, cores)
    assert (worker.kernels.run("divided", 2, 64)[:64, 0] == 1).all()


@pytest.mark.parametrize("slow", [0, 8, 16])
def test_what_a_slow_thread_does_not_get_done_others_take_over(
    counting: tuple[str, Counting], slow: int
) -> None:
    """The first piece of one of three shares waits for the other 23, seven of its own share among them."""
    name, kernels = counting
    if name != "serial":
        data = np.zeros((640, 16), np.int32)
        data[0, 3] = slow
        assert kernels.run("slow", 3, 24, data)[0, 4] == 23


def switches(threads: Iterable[str]) -> int:
    """How often some threads of this process were given a core."""
    found = [Path(f"/proc/self/task/{thread}/status").read_text() for thread in threads]
    return sum(int(number) for text in found for number in re.findall(r"ctxt_switches:\s+(\d+)", text))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are looked at as Linux shows them")
def test_workers_without_a_share_sleep_until_there_is_one() -> None:
    kernels = Counting(pools.load_pool())
    kernels.run("many", 2, 10)
    known = set(os.listdir("/proc/self/task"))
    kernels.run("many", 6, 10)
    surplus = set(os.listdir("/proc/self/task")) - known
    assert len(surplus) == 4
    kernels.run("many", 2, 10)
    time.sleep(0.1)  # They have seen that region, and gone to sleep.
    before = switches(surplus)
    for _ in range(50):
        kernels.run("many", 2, 10)
        time.sleep(0.005)  # The other worker sleeps, and is woken by the next region.
    assert switches(surplus) - before < 20
    assert (kernels.run("many", 6, 100)[:6, 0] == 100).all()
    time.sleep(0.1)
    assert switches(surplus) > before


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
        with pytest.raises(
            DefinitionError, match="threads must be an integer of at least 1 and at most 1024"
        ):
            ansor.set_num_threads(wrong)  # type: ignore[arg-type]
    ansor.set_num_threads(2)


def test_a_module_stays_below_its_targets_cores() -> None:
    limited = pools.kernel_imports(1)
    assert limited["ansor_parallel_for"] != pools.process_pool().code["ansor_parallel_for"]
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


needs_workers = pytest.mark.skipif(
    default_waiting(Machine.host().triple) is Waiting.SERIAL, reason="regions run serially on this system"
)


@needs_workers
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_does_not_go_on_with_another_threads_region() -> None:
    done = _script(
        """
import os, signal, time, numpy as np
from tests.test_runtime_pool import Counting, opened_pool
kernels, data = Counting(opened_pool()), np.zeros((64, 16), np.int32)
kernels.start(1)  # registers the handler of forks, and starts no worker
kernels.leave(lock=1, data=data, region=7, shares=4)  # as if share 0 of it were running
child = os.fork()
if child == 0:
    signal.alarm(30)
    kernels.start(4)
    time.sleep(0.2)
    assert (data == 0).all(), data[:4, 0]
    for threads in (4, 6, 2):
        assert (kernels.run("many", threads, 50)[:threads] == [50, threads, *[0] * 14]).all()
    os._exit(0)
status = os.waitpid(child, 0)[1]
assert os.waitstatus_to_exitcode(status) == 0, status
"""
    )
    assert done.returncode == 0, done.stderr


@needs_workers
@pytest.mark.parametrize("region", [2**31 + 4, 2**32 - 30])
def test_shares_that_were_not_used_for_long_are_used_again(region: int) -> None:
    done = _script(
        f"""
import signal, numpy as np
from tests.test_runtime_pool import Counting, opened_pool
signal.alarm(30)
kernels, data = Counting(opened_pool()), np.zeros((64, 16), np.int32)
kernels.leave(lock=0, data=data, region={region}, shares=2)
for share in (0, 1):
    kernels.take(share, {region})
for threads in (2, 3, 2, 5, 9):
    assert (kernels.run("many", threads, 20)[:threads] == [20, threads, *[0] * 14]).all()
assert (data == 0).all()
"""
    )
    assert done.returncode == 0, (done.returncode, done.stderr)


@needs_workers
@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "pthread_setattr_default_np"), reason="no default stack size to change"
)
def test_workers_have_room_for_scratch_memory_where_threads_have_little() -> None:
    """As those of musl, whose stacks are of 128 KiB."""
    done = _script(
        """
import ctypes, numpy as np, ansor
from ansor import te

attributes, libc = ctypes.create_string_buffer(256), ctypes.CDLL(None)
libc.pthread_attr_init(attributes)
libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(1 << 16))
assert libc.pthread_setattr_default_np(attributes) == 0

made = [te.placeholder((64, 4000), name="A")]
for number in range(7):
    made.append(te.compute((64, 4000), lambda i, j, x=made[-1]: x[i, j] + 1, name=f"B{number}"))
s = te.create_schedule(made[-1])
s[made[-1]].parallel(made[-1].op.axis[0])
for stage in made[1:-1]:
    s[stage].compute_at(s[made[-1]], made[-1].op.axis[0])
ansor.set_num_threads(3)
kernel, a = ansor.build(s, [made[0], made[-1]]), np.zeros((64, 4000), np.float32)
for _ in range(20):
    assert (kernel(a) == 7).all()
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
    assert "ANSOR_NUM_THREADS must be an integer from 1 to 1024, found 'many'" in done.stderr


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
