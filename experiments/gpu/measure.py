"""Tuning the operations of `bench_gpu`, and timing winners and libraries in turn by the device's clock.

Tuning has so many trials or so many seconds, whichever ends first. Logs stay, so that a second run goes on.
Every comparison is a process of its own: a kernel that breaks the GPU's context costs one comparison.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy.typing as npt

import ansor
from ansor.errors import BuildError
from ansor.runtime.device.resources import KernelResources
from experiments.cpu.measure import OURS, check, imprecise
from experiments.cpu.peers import UnavailableError
from experiments.gpu.cases import CASES, REHEARSED, GPUCase
from experiments.gpu.peers import PEERS
from experiments.harness import fresh_process
from experiments.search.runs import trials_in, whole
from experiments.turns import Timer, take_turns

Array = npt.NDArray[Any]

SLICE: Final = 32
"""Trials after which the clock is looked at."""
LATE: Final = 20.0
"""Seconds after which such a slice is cut short."""
SAMPLED: Final[Mapping[str, tuple[str, str]]] = {
    "clocks.sm": ("clock of processors", "MHz"),
    "clocks.mem": ("clock of memory", "MHz"),
    "power.draw": ("power", "W"),
}
"""What the GPU is asked for while kernels run, by the words of `nvidia-smi`: a name and a unit."""
PERIOD: Final = 0.2
"""Seconds between two such questions."""
REHEARSED_ARCHES: Final = ("sm_80", "sm_90")
"""What the winners of a rehearsal, and what is predicted of full sizes, are compiled for."""
_SMI: Final = (
    "name",
    "driver_version",
    "clocks.sm",
    "clocks.max.sm",
    "clocks.mem",
    "power.draw",
    "power.limit",
    "temperature.gpu",
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where programs run: on the GPU, or in a rehearsal on the CPU, by OpenCL and at small sizes."""

    rehearsal: bool

    @property
    def kind(self) -> str:
        return "opencl" if self.rehearsal else "cuda"

    def peers(self, case: GPUCase) -> Sequence[str]:
        return REHEARSED if self.rehearsal else case.peers


@dataclass(frozen=True, slots=True)
class Tools:
    """What builds and runs programs, for all cases."""

    builder: ansor.LocalBuilder
    runner: ansor.LocalRunner


@contextmanager
def tools() -> Iterator[Tools]:
    """Start them; a GPU's times vary little, so that repeats are short."""
    with ansor.LocalBuilder() as builder, ansor.LocalRunner(min_repeat_ms=10.0) as runner:
        yield Tools(builder, runner)


@dataclass(frozen=True, slots=True)
class Plan:
    """
    How a case is tuned.

    Attributes
    ----------
    place
        Where programs run.
    folder
        Where logs lie, that too which a search starts from (`GPUCase.start`), if it is there.
    trials, seconds
        Until the log holds so many programs, or so long.
    tools
        What builds and runs them.
    """

    place: Place
    folder: Path
    trials: int
    seconds: float
    tools: Tools


@dataclass(frozen=True, slots=True)
class Tuned:
    """What tuning left: the log, the programs in it, and the seconds that this run added to it took."""

    log: Path
    trials: int
    seconds: float


class _LateError(Exception):
    """There is no time for further trials."""


@dataclass(frozen=True, slots=True)
class Until:
    """Measure callback that ends the tuning with the first result after a time of the monotonic clock [s]."""

    end: float

    def callback(self, policy: object, inputs: Sequence[object], results: Sequence[object]) -> None:
        if time.monotonic() > self.end:
            raise _LateError


def tune(case: GPUCase, plan: Plan, latest: float = math.inf) -> Tuned:
    """
    Tune a case as planned.

    The trials under way are completed, for which there are `LATE` seconds more.

    Parameters
    ----------
    latest
        When they are cut short in any case, by the monotonic clock.
    """
    place, folder, tools = plan.place, plan.folder, plan.tools
    log = folder / f"{case.name}.log.json"
    started = time.monotonic()
    end = started + plan.seconds
    task = case.task(place.kind, place.rehearsal)
    known = trials_in(log, task)
    neighbour = None if case.start is None else folder / f"{case.start}.log.json"
    starts = [] if neighbour is None or not neighbour.exists() else [ansor.WarmStart(neighbour)]
    while known < plan.trials and time.monotonic() < min(end, latest):
        options = ansor.TuningOptions(
            num_measure_trials=min(SLICE, plan.trials - known),
            early_stopping=None,
            verbose=0,
            builder=tools.builder,
            runner=tools.runner,
            measure_callbacks=[ansor.RecordToFile(str(log)), Until(min(end + LATE, latest))],
            num_finalists=0,
        )
        with suppress(_LateError):
            whole(task.tune(options, ansor.SketchPolicy(task, init_search_callbacks=starts)))
        before, known = known, trials_in(log, task)
        if known == before:  # There are no other programs.
            break
    return Tuned(log, known, time.monotonic() - started)


@dataclass(frozen=True, slots=True)
class Measured:
    """
    Times of one case.

    Attributes
    ----------
    times
        Seconds per call by name, element `i` of all side by side: ours and the peers.
    skipped
        Why a peer is missing, by name.
    resources
        What our kernels take, by architecture; a line of text and the spilled bytes of each.
    gpu
        What the GPU said of itself before and after.
    clocks
        What it said meanwhile, by the names of `SAMPLED`; empty where it says nothing.
    """

    times: Mapping[str, Sequence[float]]
    skipped: Mapping[str, str]
    resources: Mapping[str, Sequence[tuple[str, int]]]
    gpu: Sequence[str]
    clocks: Mapping[str, Sequence[float]]

    @property
    def best(self) -> str | None:
        """The fastest peer; None if there is none at hand."""
        peers = [name for name in self.times if name != OURS]
        return min(peers, key=lambda name: median(self.times[name])) if peers else None


def measure(
    case: GPUCase, place: Place, log: Path, repeats: int, milliseconds: float, timeout: float
) -> Measured:
    """Measure a case in a fresh process; raises as that does."""
    given = (case.name, place.rehearsal, str(log), repeats, milliseconds)
    return Measured(**fresh_process("experiments.gpu.measure:side_by_side", *given, timeout=timeout))


def side_by_side(name: str, rehearsal: bool, log: str, repeats: int, milliseconds: float) -> dict[str, Any]:
    """Time everything in turn, in this process; the fields of `Measured`."""
    given, place = CASES[name], Place(rehearsal)
    case = given.of(rehearsal)
    inputs = case.inputs()
    task = given.task(place.kind, rehearsal)
    schedule, tensors = task.apply_best(log)
    module = ansor.build(schedule, tensors, target=task.target, name="kernel")
    assert isinstance(module, ansor.DeviceModule)
    ours, answer = our_timer(module, inputs)
    timers: dict[str, Timer] = {OURS: ours}
    skipped: dict[str, str] = {}
    for peer in place.peers(given):
        try:
            prepared = PEERS[peer].prepare(case, inputs)
        except UnavailableError as reason:
            skipped[peer] = str(reason)
            continue
        if off := imprecise(peer, prepared.answer(), answer, case, inputs):
            skipped[peer] = off
        else:
            timers[peer] = prepared.timer
    if len(timers) == 1:
        check("the reference", case.entry.expected(inputs, case.args), answer, case.tolerance)
    before = gpu_state()
    asking: AbstractContextManager[dict[str, list[float]]] = nullcontext({}) if rehearsal else sampling()
    with asking as clocks:
        times = take_turns(timers, repeats, 1e-3 * milliseconds, 0.0)
    report: dict[str, list[tuple[str, int]]] = {}
    try:
        report = resources(given, place, schedule, tensors, module)
    except BuildError as error:  # There is no compiler for CUDA, which a rehearsal can do without.
        skipped["what kernels take"] = str(error).splitlines()[0]
    return {
        "times": times,
        "skipped": skipped,
        "resources": report,
        "gpu": [before, gpu_state()],
        "clocks": clocks,
    }


def our_timer(module: ansor.DeviceModule, inputs: Sequence[Array]) -> tuple[Timer, Array]:
    """What times a module on arrays that stay on its device, and its answer."""
    arrays = [ansor.device_array(array, module.device.kind) for array in inputs]
    out = module(*arrays)
    return module.timer(*arrays, out), out.numpy()


def resources(
    case: GPUCase, place: Place, schedule: Any, tensors: Sequence[Any], module: ansor.DeviceModule
) -> dict[str, list[tuple[str, int]]]:
    """What the kernels of a program take: where the case wants that told, and in rehearsals, for CUDA."""
    if not (case.report or place.rehearsal):
        return {}
    if place.rehearsal:
        arches: Sequence[str] = REHEARSED_ARCHES
        module = ansor.build(schedule, tensors, target="cuda", name="kernel")  # type: ignore[assignment]
    else:
        arches = (module.device.info.arch,)
    return {arch: [(taken(one), one.spilled_bytes) for one in module.resources(arch)] for arch in arches}


def taken(one: KernelResources) -> str:
    """What a kernel takes, in a few words."""
    return (
        f"{one.threads} threads, {one.registers} registers, "
        f"{one.declared_bytes} + {one.asked_bytes} B shared (declared + asked for), "
        f"{one.stack_bytes} B stack, occupancy {one.occupancy:.0%}"
    )


def gpu_state() -> str:
    """What the GPU says of its clocks, power and temperature, in one line."""
    try:
        values = asked(_SMI)
    except RuntimeError as error:
        return str(error)
    return ", ".join(f"{name} {value}" for name, value in zip(_SMI, values, strict=False))


def asked(names: Sequence[str], form: str = "noheader") -> list[str]:
    """
    Ask `nvidia-smi` for things of the first GPU by name.

    Raises
    ------
    RuntimeError
        If it is not here or has no answer.
    """
    tool = shutil.which("nvidia-smi")
    if tool is None:
        raise RuntimeError("nvidia-smi is not here: clocks are unknown")
    command = [tool, f"--query-gpu={','.join(names)}", f"--format=csv,{form}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"nvidia-smi does not answer: {error}") from None
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise RuntimeError(f"nvidia-smi fails: {(done.stderr or done.stdout).strip()[:200]}")
    return [value.strip() for value in lines[0].split(",")]


@contextmanager
def sampling() -> Iterator[dict[str, list[float]]]:
    """Ask for what is `SAMPLED` as long as the context lasts; gives the answers, by name, as they come."""
    samples: dict[str, list[float]] = {name: [] for name in SAMPLED}
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            try:
                words = asked(tuple(SAMPLED), "noheader,nounits")
            except RuntimeError:
                return
            for values, word in zip(samples.values(), words, strict=False):
                with suppress(ValueError):  # "[N/A]"
                    values.append(float(word))
            done.wait(PERIOD)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()
