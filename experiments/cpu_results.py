"""What `bench_cpu` makes of its measurements: speeds, limits, goals, a table and a chart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from math import exp, log, prod
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from ansor.te.expr import int_value
from experiments.cpu_cases import GROUPS, OVER_METASCHEDULE, TIME_OF_METASCHEDULE, WHOLE, Case, Goal
from experiments.cpu_limits import Limit
from experiments.cpu_measure import OURS, Measured, Tuned
from experiments.cpu_metaschedule import NAME as METASCHEDULE
from experiments.cpu_peers import PEERS
from experiments.harness import Bench, Estimate, speedup


@dataclass(frozen=True, slots=True)
class Result:
    """
    One case, measured.

    Attributes
    ----------
    limit
        The least time that the machine allows.
    tuner
        What MetaSchedule's trials took [s], if it ran.
    notes
        What else should be said.
    """

    case: Case
    tuned: Tuned
    measured: Measured
    limit: Limit
    tuner: float | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        case: Case,
        tuned: Tuned,
        measured: Measured,
        threads: int,
        tuner: float | None = None,
        notes: Sequence[str] = (),
    ) -> Result:
        """Put together what is known of a case that was measured on so many threads."""
        limit = Limit.of(measured.times, arithmetic(case, tuned.log), threads, measured.streaming)
        if case.algorithms:
            key = case.task().best_record(tuned.log).input.task.workload_key
            weights = ", its weights transformed beforehand, beside the time" if "_prepared" in key else ""
            notes = [*notes, f"solved by {key}{weights}; the limit is that of the products"]
        return cls(case, tuned, measured, limit, tuner, tuple(notes))

    @property
    def seconds(self) -> float:
        """Of one call of ours."""
        return median(self.measured.times[OURS])

    @property
    def best(self) -> str | None:
        """The fastest library; None if there is none at hand."""
        peers = self.measured.peers
        return min(peers, key=lambda name: peers[name]) if peers else None

    def over(self, name: str) -> Estimate:
        """Our speed over that of another."""
        return speedup(self.measured.times[OURS], self.measured.times[name])

    @property
    def goal(self) -> Goal | None:
        """Of the speed over the best library."""
        if self.best is None:
            return None
        return Goal.of(self.case.goal.speed, self.limit.seconds, self.measured.peers[self.best])

    @property
    def share(self) -> float:
        """Of the limit that binds, with the kind of stores that our kernel has."""
        like = self.limit.compute if self.limit.kind == "FMA" else self.limit.stream_like
        return like / self.seconds

    @property
    def weights(self) -> str:
        """Who brought constant weights into another layout beforehand; empty if neither did."""
        ours, theirs = OURS in self.measured.packs, self.best in self.measured.packs
        return {(True, True): "both packed", (True, False): "only ours packed"}.get(
            (ours, theirs), "only theirs packed" if theirs else ""
        )

    def to_json(self) -> dict[str, Any]:
        """Every figure, by name; seconds are medians."""
        goal = self.goal
        return {
            "case": self.case.name,
            "group": self.case.group,
            "trials": self.tuned.trials,
            "tuning_seconds": self.tuned.seconds,
            "seconds": {name: median(values) for name, values in self.measured.times.items()},
            "skipped": dict(self.measured.skipped),
            "packs": list(self.measured.packs),
            "subtracted_seconds": dict(self.measured.subtracted),
            "non_temporal_stores": self.measured.streaming,
            "quiet": list(self.measured.quiet),
            "best": self.best,
            "speed": None if self.best is None else self.over(self.best).median,
            "goal": None if goal is None else goal.value,
            "goal_is": None if goal is None else goal.reason,
            "limit": self.limit.kind,
            "limit_seconds": self.limit.seconds,
            "share": self.share,
            "metaschedule_tuning_seconds": self.tuner,
            "notes": list(self.notes),
        }


def arithmetic(case: Case, records: Path) -> float:
    """
    Operations [flop] that set the limit: the computation's, or of the winner's algorithm the products.

    They are those of float32: an operation of another dtype counts as a register holds fewer or more of them.
    """
    task = case.task()
    if not case.algorithms:
        return max(0.0, task.compute_dag.flop_count) / case.products_per_lane
    key = task.best_record(records).input.task.workload_key
    winner = next(one for one in task.algorithms if one.workload_key == key)
    return 2.0 * sum(
        prod(int_value(axis.extent) or 1 for axis in (*op.axis, *op.reduce_axis))
        for op in winner.compute_dag.ops
        if op.reduce_axis
    )


def add_rows(bench: Bench, result: Result) -> None:
    """Add the rows of one case."""
    name, best, goal = result.case.name, result.best, result.goal
    if best is not None and goal is not None:
        words = [best, f"{1e3 * result.measured.peers[best]:.3g} ms", goal.reason]
        words += [result.weights] if result.weights else []
        words += ["less the call"] if best in result.measured.subtracted else []
        bench.add(f"{name}: speed", result.over(best), "x", peer=", ".join(words), at_least=goal.value)
    if result.case.algorithms:
        direct = result.case.task().compute_dag.flop_count / result.seconds / 1e9
        bench.add(f"{name}: rate", direct, "GFLOP/s", peer="in FLOPs of the direct form")
    wanted = result.case.goal.share
    bench.add(f"{name}: share", result.share, "of 1", peer=_limit_text(result), at_least=wanted)
    if METASCHEDULE in result.measured.times:
        ours, theirs = result.tuned.seconds, result.tuner
        possible = Goal.of(
            OVER_METASCHEDULE, result.limit.seconds, median(result.measured.times[METASCHEDULE])
        )
        bench.add(
            f"{name}: speed over {METASCHEDULE}",
            result.over(METASCHEDULE),
            "x",
            peer=f"after {result.tuned.trials} trials, {possible.reason}",
            at_least=possible.value,
        )
        if ours is not None and theirs:
            bench.add(
                f"{name}: tuning time over {METASCHEDULE}'s",
                ours / theirs,
                "of 1",
                peer=f"{theirs:.0f} s for {result.tuned.trials} trials",
                at_most=TIME_OF_METASCHEDULE,
            )


def _limit_text(result: Result) -> str:
    if result.limit.kind == "FMA":
        return "multiply-add peak"
    kind = "non-temporal" if result.measured.streaming else "cached"
    return f"stream, {kind} stores ({result.limit.stream / result.seconds:.2f} of the fastest)"


def add_means(bench: Bench, results: Sequence[Result]) -> None:
    """Add the geometric means: of groups that have a goal for it, and of everything."""
    for group, goal in GROUPS.items():
        if goal.mean is not None:
            _add_mean(bench, group, [r for r in results if r.case.group == group], goal.mean)
    _add_mean(bench, "everything", [r for r in results if not r.case.algorithms], WHOLE)


def _add_mean(bench: Bench, title: str, results: Sequence[Result], stated: float) -> None:
    """The goal is the mean of goals: what is stated, or what the limit of each case leaves of it."""
    pairs = [(r, r.best) for r in results if r.best is not None]
    if not pairs:
        return
    goals = [Goal.of(stated, r.limit.seconds, r.measured.peers[best]).value for r, best in pairs]
    mean = geometric_mean([r.over(best).median for r, best in pairs])
    bench.add(
        f"{title}: geometric mean of speeds",
        mean,
        "x",
        peer=f"the best library, {len(pairs)} operations",
        at_least=geometric_mean(goals),
    )


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive numbers."""
    return exp(fmean(map(log, values)))


# -- the table -------------------------------------------------------------------------------------------

_COLUMNS: Final[Sequence[tuple[str, Callable[[Result], str]]]] = (
    ("operation", lambda r: r.case.name),
    ("ansor", lambda r: _milliseconds(r, OURS)),
    *((name, lambda r, name=name: _milliseconds(r, name)) for name in PEERS),
    (METASCHEDULE, lambda r: _milliseconds(r, METASCHEDULE)),
    ("limit", lambda r: f"{1e3 * r.limit.seconds:.3g} {r.limit.kind}"),
    ("share", lambda r: f"{r.share:.2f}"),
    ("speed", lambda r: "" if r.best is None else f"{r.over(r.best).median:.2f}"),
    ("goal", lambda r: "" if r.goal is None else f"{r.goal.value:.2f}"),
    ("which is", lambda r: "" if r.goal is None else r.goal.reason),
    ("quiet", lambda r: f"{min(r.measured.quiet):.2f}" if r.measured.quiet else ""),
    ("weights", lambda r: r.weights),
)


def _milliseconds(result: Result, name: str) -> str:
    times = result.measured.times.get(name)
    if times is None:
        return "-"
    star = "*" if name in result.measured.subtracted else ""
    return f"{1e3 * median(times):.3g}{star}"


def details(results: Sequence[Result]) -> str:
    """Lay out one line per case with the times of everyone, and below what must be said of them."""
    cells = [[title for title, _ in _COLUMNS], *([show(r) for _, show in _COLUMNS] for r in results)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
    notes = ["times in ms; share: of the limit, for streams with the kind of stores that our kernel has"]
    notes.append(
        "quiet: the least share of its cores that the measuring process got, 1 on a machine of its own"
    )
    if any(r.measured.subtracted for r in results):
        costs = {name: cost for r in results for name, cost in r.measured.subtracted.items()}
        listed = ", ".join(f"{name} {1e6 * cost:.1f}" for name, cost in costs.items())
        notes.append(f"*: less the cost of a call from Python [us], measured at a tiny size: {listed}")
    if any(r.weights for r in results):
        notes.append("weights: who brought constant weights into a layout of its own, beside the time")
    notes += _missing(results)
    notes += [f"{r.case.name}: {note}" for r in results for note in r.notes]
    return "\n".join([*lines, *(f"  {note}" for note in notes)])


def _missing(results: Sequence[Result]) -> list[str]:
    """Say which peers were not measured, where, and why."""
    found: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for pair in result.measured.skipped.items():
            found.setdefault(pair, []).append(result.case.name)
    return [f"{name} is missing from {_some(where, results)}: {why}" for (name, why), where in found.items()]


def _some(names: Sequence[str], results: Sequence[Result]) -> str:
    if len(names) == len(results):
        return "everything"
    return ", ".join(names) if len(names) <= _FEW else f"{len(names)} of {len(results)} operations"


_FEW: Final = 3


# -- the chart -------------------------------------------------------------------------------------------


def chart(results: Sequence[Result], where: Path) -> Path | None:
    """Draw speeds over the best library as bars, goals as ticks, into `where`; None without matplotlib."""
    shown = [(r, r.best, r.goal) for r in results]
    bars = [
        (r.case.name, r.over(best).median, goal.value)
        for r, best, goal in shown
        if best is not None and goal is not None
    ]
    if find_spec("matplotlib") is None or not bars:
        return None
    import_module("matplotlib").use("Agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    names, speeds, goals = (list(column) for column in zip(*reversed(bars), strict=True))
    places = range(len(bars))
    figure, axes = pyplot.subplots(figsize=(8, 1.5 + 0.22 * len(bars)))
    # Of a ratio the neutral place is 1, so bars begin there.
    for kept, colour, label in ((True, "tab:blue", "goal reached"), (False, "tab:orange", "below the goal")):
        chosen = [i for i in places if (speeds[i] >= goals[i]) == kept]
        if chosen:
            widths = [speeds[i] - 1 for i in chosen]
            axes.barh(chosen, widths, left=1.0, color=colour, label=label)
    axes.plot(goals, places, "k|", markersize=8, label="goal")
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(places, names, fontsize=7)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("speed over the fastest library")
    axes.margins(y=0.01)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.0 + 0.9 / (1.5 + 0.22 * len(bars))), ncols=3)
    figure.tight_layout()
    figure.savefig(where, bbox_inches="tight")
    pyplot.close(figure)
    return where
