"""Timing what tuning found for the operations of `bench_cpu`, the libraries and the ceilings in turn.

Every comparison takes place in processes of its own, which inherit the number of threads for all libraries
and an allocator that keeps what it was given back: answers that a library allocates anew then cost no page
faults.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import ansor
from ansor import LayoutRewriteOption
from ansor.runtime.arguments import bind
from ansor.runtime.interference import Waited, seconds_waited, waiting_clock
from experiments.cpu.cases import CASES, Case
from experiments.cpu.limits import limit_timers
from experiments.cpu.metaschedule import NAME as METASCHEDULE
from experiments.cpu.metaschedule import Server
from experiments.cpu.peers import FAILED, PEERS, UnavailableError
from experiments.cpu.tuning import KEPT_MEMORY, log_of
from experiments.harness import DISAGREE, fresh_process, gist
from experiments.search.clock import QUIET, quiet_share
from experiments.turns import QuietTurns, Timer, fastest, quiet_turns, rest, take_turns, timer_of

Array = npt.NDArray[Any]

OURS: Final = "ansor"
"""Our kernel in a compiled loop."""
CALLED: Final = "ansor called"
"""The same, called from Python, as libraries are."""
PACKING: Final = "ansor packing"
"""Our kernel that takes constant weights as they come, beside who does not pack them beforehand either."""
PACKING_CALLED: Final = "ansor packing called"
"""The same, called from Python."""
LEFT_OUT: Final = "left out"
"""Why a peer is missing that was not asked for."""
SHORT: Final = 50e-6
"""Seconds of a kernel or a library's call below which calls do not count: then our kernel is compared in its
compiled loop, and from libraries the cost of a call is subtracted. From there on everyone is called from
Python."""
LEAST_REST: Final = 0.1
"""Share of a time that remains, whatever is subtracted."""
SETTLE: Final = 0.05
"""Seconds for which nothing may run before it is measured how quiet the machine is."""
PAUSE: Final = 0.015
"""Seconds for which this process does nothing before each timing: threads that still spin make it longer."""


def threads_everywhere(threads: int) -> dict[str, str]:
    """Variables under which all sides have so many threads."""
    names = ("OMP", "OPENBLAS", "MKL", "TVM", "ANSOR")
    return {f"{name}_NUM_THREADS": str(threads) for name in names}


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Let processes that are started meanwhile find these variables."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@dataclass(frozen=True, slots=True)
class Measured:
    """
    Times of one case.

    Attributes
    ----------
    times
        Seconds per call by name, element `i` of all side by side: ours, in both ways, peers, ceilings.
    skipped
        Why a peer, or the other tuner if it was asked for, is missing, by name.
    packs
        Peers that bring constant weights into another layout beforehand; ours too, if `OURS` is among them.
    subtracted
        Seconds that the call itself took, which are not in `times` any more, by name.
    streaming
        Whether our kernel has non-temporal stores.
    quiet
        Share of its cores that the process got beside each round of times: below 1 something else ran.
    again
        Rounds that were measured again because something else ran.
    notes
        What must be said of peers beside their times, by name.
    """

    times: Mapping[str, Sequence[float]]
    skipped: Mapping[str, str]
    packs: Sequence[str]
    subtracted: Mapping[str, float]
    streaming: bool
    quiet: Sequence[float] = ()
    again: int = 0
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def peers(self) -> dict[str, float]:
        """Median seconds of every library that was measured."""
        return {name: median(self.times[name]) for name in PEERS if name in self.times}

    @property
    def disturbed(self) -> bool:
        """Whether something else ran beside most rounds, so that the times tell little."""
        return bool(self.quiet) and median(self.quiet) < QUIET

    @classmethod
    def merged(cls, parts: Sequence[Measured]) -> Measured:
        """Put the measurements of several processes behind each other; what fails in one is left out."""
        names = [name for name in parts[0].times if all(name in part.times for part in parts)]
        skipped = {name: why for part in parts for name, why in part.skipped.items()}
        times = {name: [value for part in parts for value in part.times[name]] for name in names}
        quiet = [share for part in parts for share in part.quiet]
        again = sum(part.again for part in parts)
        notes = {name: note for part in parts for name, note in part.notes.items() if name in names}
        return cls(times, skipped, parts[0].packs, {}, parts[0].streaming, quiet, again, notes)


@dataclass(frozen=True, slots=True)
class Effort:
    """How thoroughly to measure: fresh processes, rounds in each, milliseconds per timing, threads, peers."""

    processes: int
    repeats: int
    milliseconds: float
    threads: int
    peers: Sequence[str]


def measure(case: Case, log: Path, effort: Effort, served: Sequence[str] = ()) -> Measured:
    """
    Measure a case in fresh processes; if it is short, what a call costs is measured once, and subtracted.

    Parameters
    ----------
    log
        Where the winner comes from.
    served
        Command of a server that runs the same computation (`experiments.cpu.metaschedule`), if any.
    """
    given = (effort.repeats, effort.milliseconds, effort.threads, list(effort.peers), list(served))
    with environment(KEPT_MEMORY):
        parts = [
            Measured(**fresh_process("experiments.cpu.measure:side_by_side", case.name, str(log), *given))
            for _ in range(effort.processes)
        ]
        found = Measured.merged(parts)
        if all(median(found.times[side]) >= SHORT for side in (OURS, *found.peers)):
            return found
        libraries = list(found.peers)
        costs = fresh_process("experiments.cpu.measure:call_costs", case.name, libraries, effort.threads)
    lost = {name: f"{FAILED}: what its call costs is not known" for name in libraries if name not in costs}
    known = {name: times for name, times in found.times.items() if name not in lost}
    return replace(
        found, times=without_call(known, costs), subtracted=costs, skipped={**found.skipped, **lost}
    )


def side_by_side(
    name: str,
    log: str,
    repeats: int,
    milliseconds: float,
    threads: int,
    peers: Sequence[str],
    served: Sequence[str],
) -> dict[str, Any]:
    """Time everything in turn, in this process; the fields of `Measured`."""
    ansor.set_num_threads(threads)
    case = CASES[name]
    inputs = case.inputs()
    ours = winner(case, log, inputs)
    answer = ours.answer
    timers = {OURS: ours.loop, CALLED: ours.called}
    if case.constant:
        given = winner_as_given(case, log, inputs)
        check(PACKING, given.answer, answer, case.tolerance)
        timers |= {PACKING: given.loop, PACKING_CALLED: given.called}
    skipped: dict[str, str] = {peer: LEFT_OUT for peer in PEERS if peer not in peers}
    packs = [OURS] if case.constant else []
    notes: dict[str, str] = {}
    for peer in peers:
        try:
            prepared = PEERS[peer].prepare(case, inputs, threads)
            theirs = prepared.answer()
        except UnavailableError as reason:
            skipped[peer] = str(reason)
            continue
        except Exception as error:  # whatever becomes of a library, ours and the others are measured
            skipped[peer] = f"{FAILED}: {gist(error)}"
            continue
        if off := imprecise(peer, theirs, answer, case, inputs):
            skipped[peer] = off
            continue
        timers[peer] = prepared.timer
        packs += [peer] if prepared.packs else []
        notes |= {peer: prepared.note} if prepared.note else {}
    if not timers.keys() & PEERS.keys():
        check("the reference", case.entry.expected(inputs, case.args), answer, case.tolerance)
    timers |= limit_timers(case.traffic(), case.dtype)

    def all_times(server: Server | None = None) -> QuietTurns:
        return quiet_turns(
            timers if server is None else {**timers, METASCHEDULE: server.timer},
            repeats,
            1e-3 * milliseconds,
            PAUSE,
            quiet=lambda: _quiet(threads),
            least=QUIET,
            waited=waited_by_all(threads, server),
        )

    found = None
    if served:
        try:
            with Server(served, inputs, answer) as server:
                check(METASCHEDULE, server.answer(), answer, case.tolerance)
                found = all_times(server)
        except (AssertionError, RuntimeError, OSError, ValueError) as error:
            skipped[METASCHEDULE] = gist(error)
    found = found or all_times()
    streaming = "!nontemporal" in ours.kernel.get_source("ll")
    return {
        "times": found.times,
        "skipped": skipped,
        "packs": packs,
        "subtracted": {},
        "streaming": streaming,
        "quiet": found.quiet,
        "again": found.again,
        "notes": notes,
    }


def waited_by_all(threads: int, server: Server | None) -> Waited | None:
    """Choose what tells how long threads waited for cores: ours, a library's, and those of a server."""
    ours = waiting_clock(threads)
    if ours is None or server is None:
        return ours

    def all_of_them() -> float | None:
        waited, theirs = ours(), seconds_waited(server.process)
        return None if waited is None or theirs is None else waited + theirs

    return all_of_them


def _quiet(threads: int) -> float:
    """The share of its cores that this process gets when its own threads do nothing else."""
    rest(SETTLE)
    return quiet_share(threads)


@dataclass(frozen=True, slots=True)
class Ours:
    """A kernel of ours: its timers, in a compiled loop and called from Python, and its answer."""

    kernel: ansor.Module
    loop: Timer
    called: Timer
    answer: Array

    @classmethod
    def of(
        cls, task: ansor.SearchTask, schedule: Any, tensors: Sequence[Any], inputs: Sequence[Array]
    ) -> Ours:
        """Build a program, and run it once on the inputs, brought into its layouts."""
        kernel = ansor.build(schedule, tensors, target=task.target, name="kernel")
        assert isinstance(kernel, ansor.Module)  # The cases are for CPUs.
        laid = [ansor.transform_layout(array, tensor) for array, tensor in zip(inputs, tensors, strict=False)]
        bound = bind(kernel.signature, laid)
        loop = kernel.timer(bound)
        loop(1)
        return cls(kernel, loop, timer_of(partial(kernel, *bound.arrays)), bound.outputs[0])


def winner(case: Case, log: str, inputs: Sequence[Array]) -> Ours:
    """The winner of a log, as the case's task has it: constant weights are packed beforehand."""
    task = case.task()
    return Ours.of(task, *task.apply_best(log), inputs)


def winner_as_given(case: Case, log: str, inputs: Sequence[Array]) -> Ours:
    """
    The winner where weights come with each call: packed then or, if faster, not at all.

    Where there is a log of its own (`Case.as_given`), it is that one's, if that is faster. A choice of
    algorithms always has one: those of the other may have been tuned for weights transformed beforehand.
    """
    task, given = case.task(), case.as_given()
    found: dict[str, Ours] = {}
    if (own := log_of(given, Path(log).parent)).exists():
        found[given.name] = winner(given, str(own), inputs)
    if case.algorithms:
        return found[given.name]
    for option in (LayoutRewriteOption.INSERT_TRANSFORM_STAGE, LayoutRewriteOption.NO_REWRITE):
        algorithm, best = task.best_algorithm(log, layout_rewrite_option=option)
        rewrite = ansor.rewrite_layouts(best.input.replay(algorithm.compute_dag), option)
        found[option.name] = Ours.of(task, rewrite.state, rewrite.tensors, inputs)
    return found[fastest({name: one.loop for name, one in found.items()})]


def packing_costs(case: Case, log: Path, threads: int) -> float:
    """Tell how many times as long the winner takes if weights come with each call, in a fresh process."""
    return float(fresh_process("experiments.cpu.measure:times_as_long", case.name, str(log), threads))


def times_as_long(name: str, log: str, threads: int) -> float:
    """Time the winner with weights that come with each call beside itself, in this process."""
    ansor.set_num_threads(threads)
    case = CASES[name]
    inputs = case.inputs()
    sides = {OURS: winner(case, log, inputs), PACKING: winner_as_given(case, log, inputs)}
    times = take_turns({name: one.loop for name, one in sides.items()}, 5, 5e-3)
    return median(times[PACKING]) / median(times[OURS])


def check(name: str, found: Array, answer: Array, tolerance: float) -> None:
    """
    Compare an answer with ours.

    Raises
    ------
    AssertionError
        If they differ by more than that (`Case.tolerance`), or integers at all: one computes something else.
    """
    if answer.dtype.kind in "iu":
        np.testing.assert_array_equal(found, answer, err_msg=f"{name} {DISAGREE}")
        return
    scale = tolerance * float(np.abs(answer).max())
    np.testing.assert_allclose(found, answer, rtol=tolerance, atol=scale, err_msg=f"{name} {DISAGREE}")


def imprecise(name: str, found: Array, answer: Array, case: Case, inputs: Sequence[Array]) -> str | None:
    """
    Say how far off a library's answer is, if it differs from ours and ours is right.

    Raises
    ------
    AssertionError
        If ours is not right.
    """
    try:
        check(name, found, answer, case.tolerance)
    except AssertionError:
        check("double precision", case.entry.expected(inputs, case.args), answer, case.tolerance)
        if found.shape != answer.shape:
            return f"{FAILED}: its answer has the shape {found.shape}"
        wide = answer.astype(np.float64)
        off = float(np.abs(found - wide).max() / np.abs(wide).max())
        return f"its answer is off by {off:.1g} of the largest element"
    return None


def call_costs(name: str, libraries: Sequence[str], threads: int) -> dict[str, float]:
    """Time the same operation at a size that takes no time [s], by library that has it: what a call costs."""
    small = CASES[name].small()
    inputs = small.inputs()
    timers: dict[str, Timer] = {}
    for peer in libraries:
        with suppress(Exception):  # as in `side_by_side`
            timers[peer] = PEERS[peer].prepare(small, inputs, threads).timer
    return {peer: median(times) for peer, times in take_turns(timers, 9, 5e-3, 5e-3).items()}


def without_call(times: Mapping[str, Sequence[float]], costs: Mapping[str, float]) -> dict[str, list[float]]:
    """Subtract what a call costs; at least `LEAST_REST` of a time remains."""
    return {
        name: [max(value - costs.get(name, 0.0), LEAST_REST * value) for value in values]
        for name, values in times.items()
    }
