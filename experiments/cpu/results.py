"""What `bench_cpu` makes of its measurements: speeds, limits, goals, and rows that say whether they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from math import exp, log
from pathlib import Path
from statistics import fmean, median
from typing import Any

from ansor.medians import median_interval
from ansor.task.alternatives import rounding
from experiments.cpu.arithmetic import arithmetic
from experiments.cpu.cases import Case
from experiments.cpu.goals import APART, GROUPS, OVER_METASCHEDULE, TIME_OF_METASCHEDULE, WHOLE, Goal
from experiments.cpu.limits import Limit
from experiments.cpu.measure import CALLED, LEFT_OUT, OURS, PACKING, PACKING_CALLED, Measured
from experiments.cpu.metaschedule import NAME as METASCHEDULE
from experiments.cpu.peers import FAILED, NOT_INSTALLED, PEERS
from experiments.cpu.run import Run
from experiments.cpu.tuning import Tuned, log_of
from experiments.harness import Bench, Estimate, speedup


@dataclass(frozen=True, slots=True)
class Spent:
    """
    What the other tuner was given.

    Attributes
    ----------
    trials
        How many; None in rows of before, which had as many as ours.
    seconds
        What they took.
    """

    trials: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Rivalry:
    """
    Our result beside that of MetaSchedule after as many trials, or more where our space has fewer programs.

    Attributes
    ----------
    speed
        Ours over its, both winners measured again in turn.
    goal
        Of the speed.
    time
        What our trials took, over what its trials took; None if not both are known.
    fair
        Whether ours had no more trials; otherwise there is no verdict.
    """

    speed: Estimate
    goal: Goal
    time: float | None
    fair: bool = True

    def to_json(self) -> dict[str, Any]:
        """Every figure, by name."""
        return {
            "speed": self.speed.median,
            "speed_interval": astuple(self.speed)[1:],
            "goal": self.goal.value,
            "goal_is": self.goal.reason,
            "tuning_time": self.time,
            "tuning_time_goal": TIME_OF_METASCHEDULE,
        }


@dataclass(frozen=True, slots=True)
class Result:
    """
    One case, measured.

    Attributes
    ----------
    limit
        The least time that the machine allows.
    tuner
        What MetaSchedule was given, if it ran.
    notes
        What else should be said.
    run
        The circumstances; None if they do not matter.
    """

    case: Case
    tuned: Tuned
    measured: Measured
    limit: Limit
    tuner: Spent | None = None
    notes: tuple[str, ...] = ()
    run: Run | None = None

    @classmethod
    def of(
        cls,
        case: Case,
        tuned: Tuned,
        measured: Measured,
        tuner: Spent | None = None,
        notes: Sequence[str] = (),
    ) -> Result:
        """Put together what is known of a case."""
        limit = Limit.of(measured.times, arithmetic(case, tuned.log), measured.streaming, case.dtype)
        if case.algorithms:
            key = case.task().best_record(tuned.log).input.task.workload_key
            weights = ", its weights transformed beforehand, beside the time" if "_prepared" in key else ""
            errors = f", its {error}" if (error := rounding(key)) else ""
            notes = [*notes, f"solved by {key}{weights}{errors}; the limit is that of the products"]
        said = [f"{name}: {note}" for name, note in measured.notes.items()]
        return cls(case, tuned, measured, limit, tuner, (*notes, *said))

    @property
    def seconds(self) -> float:
        """Of one run of our kernel."""
        return median(self.measured.times[OURS])

    def ours_beside(self, name: str) -> Sequence[float]:
        """
        Seconds per call of ours, as it is compared with a library.

        With packing constant weights if the library does not pack them beforehand, and with the call from
        Python if its counts; rows of before have no such times.
        """
        times = self.measured.times
        packing = PACKING in times and name not in self.measured.packs
        loop, called = (PACKING, PACKING_CALLED) if packing else (OURS, CALLED)
        return times[loop] if self.measured.subtracted else times.get(called, times[loop])

    def times_of(self, name: str) -> Sequence[float]:
        """
        Seconds per call.

        Less the cost of a call they are no less than the limit, or than ours where that is less: a library
        computes while it is called, and nothing shows that the machine computes faster than that.
        """
        times = self.measured.times[name]
        if name not in self.measured.subtracted:
            return times
        least = min(self.limit.seconds, self.seconds)
        return [max(value, least) for value in times]

    @property
    def peers(self) -> dict[str, float]:
        """Median seconds of every library that was measured."""
        return {name: median(self.times_of(name)) for name in self.measured.peers}

    @property
    def unknown(self) -> tuple[str, ...]:
        """Libraries that were left out, or are not installed: the fastest one may be among them.

        So are those that there were not yet when the case was measured.
        """
        reasons = self.measured.skipped
        return tuple(
            name
            for name, peer in PEERS.items()
            if name not in self.measured.times and not peer.lacks(self.case)
            if (why := reasons.get(name, LEFT_OUT)) == LEFT_OUT or why.startswith((NOT_INSTALLED, FAILED))
        )

    @property
    def best(self) -> str | None:
        """The library that is hardest to beat; None if there is none at hand.

        That is the fastest one, unless it packs weights beforehand and a slower one does not, beside which
        ours does not, either.
        """
        peers = self.peers
        return min(peers, key=lambda name: peers[name] / median(self.ours_beside(name)), default=None)

    def over(self, name: str) -> Estimate:
        """Our speed over that of a library."""
        return speedup(self.ours_beside(name), self.times_of(name))

    @property
    def goal(self) -> Goal | None:
        """Of the speed over the best library."""
        if self.best is None:
            return None
        return Goal.of(self.case.goal.speed, self.limit.seconds, self.peers[self.best])

    @property
    def holds(self) -> bool | None:
        """Whether the speed is as high as asked for; None if that is not known, or there is no library.

        It is not known beside another load, nor of a speed over some libraries that is high enough.
        """
        best, goal = self.best, self.goal
        if best is None or goal is None or self.measured.disturbed:
            return None
        reached = self.over(best).median >= goal.value
        return None if reached and self.unknown else reached

    @property
    def share_of(self) -> str:
        """What the share is of: "FMA" or "memory", of which the goal is, or which binds."""
        return self.case.goal.share_of or self.limit.kind

    @property
    def share(self) -> float:
        """Of one of the limits, that of memory with the kind of stores that our kernel has."""
        like = self.limit.compute if self.share_of == "FMA" else self.limit.stream_like
        return like / self.seconds

    @property
    def weights(self) -> str:
        """Who brought constant weights into another layout beforehand; empty if there are none.

        "only ours packed" is of rows of before.
        """
        ours, theirs = OURS in self.measured.packs, self.best in self.measured.packs
        if theirs:
            return "both packed" if ours else "only theirs packed"
        if PACKING in self.measured.times:
            return "packed in the call"
        return "only ours packed" if ours else ""

    @property
    def rivalry(self) -> Rivalry | None:
        """With MetaSchedule; None if it was not measured."""
        theirs = self.measured.times.get(METASCHEDULE)
        if theirs is None:
            return None
        goal = Goal.of(OVER_METASCHEDULE, self.limit.seconds, median(theirs))
        spent = self.tuned.seconds
        time = spent / self.tuner.seconds if spent is not None and self.tuner else None
        fair = self.tuner is None or self.tuner.trials is None or self.tuned.trials <= self.tuner.trials
        ours = self.measured.times.get(PACKING, self.measured.times[OURS])  # its weights are not packed
        return Rivalry(speedup(ours, theirs), goal, time, fair)

    @property
    def was_rivalled(self) -> bool:
        """Whether MetaSchedule was asked for, which may have failed."""
        return METASCHEDULE in self.measured.times or METASCHEDULE in self.measured.skipped

    @classmethod
    def from_json(cls, row: Mapping[str, Any], case: Case, folder: Path) -> Result:
        """Read what `to_json` gave for a case whose log lies in a folder."""
        measured = Measured(
            row["times"],
            row["skipped"],
            row["packs"],
            row["subtracted_seconds"],
            row["non_temporal_stores"],
            row["quiet"],
            row.get("rounds_again", 0),  # rows of before have none
        )
        tuned = Tuned(log_of(case, folder), row["trials"], row["tuning_seconds"])
        limit, notes, run = Limit(**row["limits"]), tuple(row["notes"]), row["run"]
        seconds = row["metaschedule_tuning_seconds"]
        tuner = None if seconds is None else Spent(row.get("metaschedule_trials"), seconds)
        return cls(case, tuned, measured, limit, tuner, notes, run and Run(**run))

    def to_json(self) -> dict[str, Any]:
        """Every figure, by name; `seconds` are medians of `times`, `compared_seconds` are behind speeds."""
        best, goal, rivalry = self.best, self.goal, self.rivalry
        ours = {} if best is None else {OURS: median(self.ours_beside(best))}
        return {
            "case": self.case.name,
            "group": self.case.group,
            "trials": self.tuned.trials,
            "tuning_seconds": self.tuned.seconds,
            "seconds": {name: median(values) for name, values in self.measured.times.items()},
            "intervals": {name: median_interval(values) for name, values in self.measured.times.items()},
            "times": {name: list(values) for name, values in self.measured.times.items()},
            "skipped": dict(self.measured.skipped),
            "packs": list(self.measured.packs),
            "subtracted_seconds": dict(self.measured.subtracted),
            "compared_seconds": {**ours, **self.peers},
            "non_temporal_stores": self.measured.streaming,
            "quiet": list(self.measured.quiet),
            "rounds_again": self.measured.again,
            "best": best,
            "speed": None if best is None else self.over(best).median,
            "speed_interval": None if best is None else astuple(self.over(best))[1:],
            "goal": None if goal is None else goal.value,
            "goal_is": None if goal is None else goal.reason,
            "holds": self.holds,
            "limit": self.limit.kind,
            "limit_seconds": self.limit.seconds,
            "limits": asdict(self.limit),
            "share": self.share,
            "share_of": self.share_of,
            "weights": self.weights,
            "metaschedule": None if rivalry is None else rivalry.to_json(),
            "metaschedule_trials": self.tuner and self.tuner.trials,
            "metaschedule_tuning_seconds": self.tuner and self.tuner.seconds,
            "notes": list(self.notes),
            "run": None if self.run is None else asdict(self.run),
        }


def add_rows(bench: Bench, result: Result) -> None:
    """Add the rows of one case; that of its share, which every case has, holds every figure."""
    name, best, goal = result.case.name, result.best, result.goal
    disturbed = ["beside another load"] if result.measured.disturbed else []
    if best is not None and goal is not None:
        words = [best, f"{1e3 * result.peers[best]:.3g} ms", goal.reason]
        words += [result.weights] if result.weights else []
        words += ["less the call"] if best in result.measured.subtracted else []
        words += [f"{result.measured.again} rounds again"] if result.measured.again else []
        words += [f"without {', '.join(unknown)}"] if (unknown := result.unknown) else []
        words += disturbed
        least = None if result.holds is None else goal.value
        bench.add(f"{name}: speed", result.over(best), "x", peer=", ".join(words), at_least=least)
    if result.case.algorithms:
        direct = result.case.task().compute_dag.flop_count / result.seconds / 1e9
        bench.add(f"{name}: rate", direct, "GFLOP/s", peer="in FLOPs of the direct form")
    bench.add(
        f"{name}: share",
        result.share,
        "of 1",
        peer=", ".join([_limit_text(result), *disturbed]),
        at_least=None if disturbed else result.case.goal.share,
        figures=result.to_json(),
    )
    if rivalry := result.rivalry:
        words = [f"after {_trials_text(result)}", rivalry.goal.reason, *_unpacked(result), *disturbed]
        judged = rivalry.fair and not disturbed
        title, least = f"{name}: speed over {METASCHEDULE}", rivalry.goal.value if judged else None
        bench.add(title, rivalry.speed, "x", peer=", ".join(words), at_least=least)
        if rivalry.time is not None and result.tuner is not None:
            bench.add(
                f"{name}: tuning time over {METASCHEDULE}'s",
                rivalry.time,
                "of 1",
                peer=f"{result.tuner.seconds:.0f} s, {_trials_text(result)}",
                at_most=TIME_OF_METASCHEDULE if rivalry.fair else None,
            )
    elif result.was_rivalled:
        bench.add_failure(f"{name}: {METASCHEDULE} failed", result.measured.skipped[METASCHEDULE])


def _trials_text(result: Result) -> str:
    """Say how many trials both sides had."""
    theirs = result.tuner and result.tuner.trials
    return f"{result.tuned.trials} trials of ours" + (f", {theirs} of its" if theirs else "")


def _unpacked(result: Result) -> list[str]:
    """Say where MetaSchedule's weights, which never are packed beforehand, would have been."""
    if OURS not in result.measured.packs:
        return []
    return ["weights not packed beforehand" if PACKING in result.measured.times else "its weights not packed"]


def _limit_text(result: Result) -> str:
    if result.share_of == "FMA":
        return "multiply-add peak"
    kind = "non-temporal" if result.measured.streaming else "cached"
    return f"stream, {kind} stores ({result.limit.stream / result.seconds:.2f} of the fastest)"


def add_means(bench: Bench, results: Sequence[Result], asked: Sequence[Case]) -> None:
    """
    Add the geometric means: of groups that have a goal for it, and of everything in float32.

    Parameters
    ----------
    asked
        The cases that were asked for. While one of them has no result that tells its speed over the best
        library, a mean is compared with no goal.
    """
    for group, goal in GROUPS.items():
        if goal.mean is not None:
            _add_mean(bench, group, _within(results, [group]), _count(asked, [group]), goal.mean)
    direct = [group for group in GROUPS if group not in APART]
    _add_mean(bench, "everything", _within(results, direct), _count(asked, direct), WHOLE)
    if any(result.was_rivalled for result in results):
        _add_rivalries(bench, results)


def _within(results: Sequence[Result], groups: Sequence[str]) -> list[Result]:
    return [result for result in results if result.case.group in groups]


def _count(cases: Sequence[Case], groups: Sequence[str]) -> int:
    return sum(case.group in groups for case in cases)


def _add_rivalries(bench: Bench, results: Sequence[Result]) -> None:
    """Add the mean of the speeds over the other tuner, and how often both goals are reached.

    The mean is of the operations that the other one is of; all of them, those apart too, have the goals. What
    was measured beside another load tells nothing of speeds.
    """
    direct = [result for result in results if result.case.group not in APART]
    if speeds := [rivalry.speed.median for rivalry in _telling(direct)]:
        bench.add(
            f"everything: geometric mean of speeds over {METASCHEDULE}",
            geometric_mean(speeds),
            "x",
            peer=f"{len(speeds)} of {len(direct)} operations",
        )
    reached = [rivalry.speed.median >= rivalry.goal.value for rivalry in _telling(results)]
    _add_share(bench, f"everything: as fast as asked for beside {METASCHEDULE}", reached, len(results))
    found = [rivalry for rivalry in (r.rivalry for r in results) if rivalry is not None and rivalry.fair]
    times = [rivalry.time for rivalry in found if rivalry.time is not None]
    soon = [time <= TIME_OF_METASCHEDULE for time in times]
    title = f"everything: tuned in {TIME_OF_METASCHEDULE:g} of {METASCHEDULE}'s time"
    _add_share(bench, title, soon, len(results))


def _telling(results: Sequence[Result]) -> list[Rivalry]:
    """The rivalries that nothing else ran beside, and where ours had no more trials."""
    found = [r.rivalry for r in results if not r.measured.disturbed]
    return [rivalry for rivalry in found if rivalry is not None and rivalry.fair]


def _add_share(bench: Bench, title: str, reached: Sequence[bool], count: int) -> None:
    """Add which share of some of so many operations reach a goal: all of them should, once all are known."""
    if reached:
        share, peer = sum(reached) / len(reached), f"{len(reached)} of {count} operations"
        bench.add(title, share, "of 1", peer=peer, at_least=1 if len(reached) == count else None)


def _add_mean(bench: Bench, title: str, results: Sequence[Result], asked: int, stated: float) -> None:
    """The goal is what is stated, or the mean of what the limits of the operations leave of it."""
    telling = [r for r in results if not (r.unknown or r.measured.disturbed)]
    pairs = [(r, best) for r in telling if (best := r.best) is not None]
    if not pairs:
        return
    possible = [Goal.of(stated, r.limit.seconds, r.peers[best]).possible for r, best in pairs]
    goal = Goal(stated, geometric_mean(possible))
    bench.add(
        f"{title}: geometric mean of speeds",
        geometric_mean([r.over(best).median for r, best in pairs]),
        "x",
        peer=f"the best library, {len(pairs)} of {asked} operations, {goal.reason}",
        at_least=goal.value if len(pairs) == asked else None,
    )


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive numbers."""
    return exp(fmean(map(log, values)))
