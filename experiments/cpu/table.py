"""What `bench_cpu` shows of its results beside the rows: a table of everything, and a chart of speeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, Final

from experiments.cpu.goals import TIME_OF_METASCHEDULE
from experiments.cpu.measure import CALLED, OURS, PACKING
from experiments.cpu.metaschedule import NAME as METASCHEDULE
from experiments.cpu.peers import PEERS
from experiments.cpu.results import Result, Rivalry
from experiments.search.clock import QUIET

_COLUMNS: Final[Sequence[tuple[str, Callable[[Result], str]]]] = (
    ("operation", lambda r: r.case.name),
    *((name, lambda r, name=name: _milliseconds(r, name)) for name in (OURS, CALLED, PACKING)),
    *((name, lambda r, name=name: _milliseconds(r, name)) for name in PEERS),
    (METASCHEDULE, lambda r: _milliseconds(r, METASCHEDULE)),
    ("limit", lambda r: f"{1e3 * r.limit.seconds:.3g} {r.limit.kind}"),
    ("share", lambda r: f"{r.share:.2f}" + ("" if r.share_of == r.limit.kind else f" of {r.share_of}")),
    ("tiles", lambda r: "" if r.limit.tiles is None else f"{r.limit.tiles:.2f}"),
    ("speed", lambda r: "" if r.best is None else f"{r.over(r.best).median:.2f}"),
    ("goal", lambda r: "" if r.goal is None else f"{r.goal.value:.2f}"),
    ("which is", lambda r: "" if r.goal is None else r.goal.reason),
    ("libraries", lambda r: f"without {len(r.unknown)}" if r.unknown else ""),
    ("quiet", lambda r: f"{median(r.measured.quiet):.2f}" if r.measured.quiet else ""),
    ("again", lambda r: str(r.measured.again or "")),
    ("weights", lambda r: r.weights),
    (f"over {METASCHEDULE}", lambda r: "" if r.rivalry is None else f"{r.rivalry.speed.median:.2f}"),
    ("its goal", lambda r: "" if r.rivalry is None else f"{r.rivalry.goal.value:.2f}"),
    ("its time", lambda r: _share_of_time(r.rivalry)),
    ("trials", lambda r: str(r.tuned.trials)),
    ("state", lambda r: "" if r.run is None else r.run.state),
    ("date", lambda r: "" if r.run is None else r.run.date),
)
_MAY_BE_EMPTY: Final = (
    CALLED,
    PACKING,
    *PEERS,
    "tiles",
    "libraries",
    "again",
    METASCHEDULE,
    f"over {METASCHEDULE}",
    "its goal",
    "its time",
    "state",
    "date",
)
"""Columns that are left out if no row has anything there."""


def _share_of_time(rivalry: Rivalry | None) -> str:
    return "" if rivalry is None or rivalry.time is None else f"{rivalry.time:.2f}"


def _milliseconds(result: Result, name: str) -> str:
    if name not in result.measured.times:
        return "-"
    found, counted = median(result.measured.times[name]), median(result.times_of(name))
    stars = "*" * ((name in result.measured.subtracted) + (counted > found))
    return f"{1e3 * counted:.3g}{stars}"


def details(results: Sequence[Result]) -> str:
    """Lay out one line per case with the times of everyone, and below what must be said of them."""
    columns = [[title, *map(show, results)] for title, show in _COLUMNS]
    columns = [column for column in columns if column[0] not in _MAY_BE_EMPTY or set(column[1:]) - {"", "-"}]
    cells = list(zip(*columns, strict=True))
    widths = [max(map(len, column)) for column in columns]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
    return "\n".join([*lines, *(f"  {note}" for note in _notes(results))])


def _notes(results: Sequence[Result]) -> list[str]:
    """Say what the columns mean, and what must be said of some rows."""
    notes = [
        "times in ms; share: of the limit, or of the other one where that is the goal; of memory it is that "
        "of a stream with the kind of stores that our kernel has"
    ]
    if any(r.limit.tiles is not None for r in results):
        notes.append(
            "tiles: the share of the multiply-add peak that tiles of a product reach whose packed operands "
            "lie in caches of a core; far below 1 others use these caches, and no product will do much better"
        )
    if any(CALLED in r.measured.times for r in results):
        notes.append(
            f"{CALLED}: from Python, as libraries are; speeds are of that, but of kernels alone where times "
            f"of libraries have a star, and over {METASCHEDULE}"
        )
    notes.append(
        "quiet: the share of its cores that the measuring process got beside its times, 1 on a machine of "
        f"its own, the median of the rounds; below {QUIET:g} a row has no verdict"
    )
    if any(r.unknown for r in results):
        notes.append(
            "libraries: so many were left out or are not installed, and the fastest may be among them"
        )
    if any(r.measured.again for r in results):
        notes.append("again: rounds that were taken since something else ran, so that quieter ones count")
    if any(r.measured.subtracted for r in results):
        notes.append(
            "*: less the cost of a call from Python [us], of each operation at a tiny size; a tenth of "
            "the time remains at least: " + ", ".join(_call_costs(results))
        )
        notes.append(
            "**: what is left then is less than the limit, or than ours below it, and that counts: nothing "
            "shows that a library computes faster than the machine"
        )
    if any(r.weights for r in results):
        notes.append(
            "weights: who brought constant weights into a layout of its own, beside the time; beside a "
            f"library that does not, ours takes them as they come ({PACKING})"
        )
    if any(r.rivalry for r in results):
        notes.append(
            f"over {METASCHEDULE}: our speed over its after as many trials, those that were asked for where "
            f"ours has fewer; its time: what our trials took of what its took, {TIME_OF_METASCHEDULE:g} at "
            "most is the goal"
        )
    notes.append("trials: programs that tuning measured, fewer than asked for where there are no more")
    notes += _missing(results)
    notes += _states(results)
    notes += [f"{r.case.name}: {note}" for r in results for note in r.notes]
    return notes


def _call_costs(results: Sequence[Result]) -> list[str]:
    """Say what was subtracted from the times of each library, from the least to the most."""
    found: dict[str, list[float]] = {}
    for result in results:
        for name, cost in result.measured.subtracted.items():
            found.setdefault(name, []).append(1e6 * cost)
    return [
        f"{name} {min(costs):.1f}" + (f" to {max(costs):.1f}" if len(costs) > 1 else "")
        for name, costs in found.items()
    ]


def _states(results: Sequence[Result]) -> list[str]:
    """Say which states of the sources the rows are from, and on what they were measured."""
    found: dict[tuple[str, str], list[str]] = {}
    for run in (result.run for result in results if result.run is not None):
        on = ", ".join(f"{name} {value}" for name, value in run.surroundings.items() if value)
        found.setdefault((run.state, on), []).append(run.date)
    return [
        f"state {state}: {len(dates)} of {len(results)} operations, {min(dates)} to {max(dates)} UTC, {on}"
        for (state, on), dates in found.items()
    ]


def _missing(results: Sequence[Result]) -> list[str]:
    """Say which peers were not measured, where, and why."""
    found: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for pair in result.measured.skipped.items():
            found.setdefault(pair, []).append(result.case.name)
    return [
        f"{name} is missing from {some(where, len(results))}: {why}" for (name, why), where in found.items()
    ]


def some(names: Sequence[str], count: int) -> str:
    """Name a few of so many operations; if there are more, say how many."""
    if len(names) == count:
        return "everything"
    return ", ".join(names) if len(names) <= _FEW else f"{len(names)} of {count} operations"


_FEW: Final = 3


# -- the chart -------------------------------------------------------------------------------------------

_KINDS_OF_BARS: Final = {
    True: ("tab:blue", "goal reached"),
    False: ("tab:orange", "below the goal"),
    None: ("tab:gray", "not known: some libraries, or another load"),
}


def chart(results: Sequence[Result], where: Path) -> str:
    """Draw speeds over the best library as bars, goals as ticks, into `where`; say so, or why not."""
    shown = [(r, r.best, r.goal) for r in results]
    bars = [
        (r.case.name, r.over(best).median, goal.value, r.holds)
        for r, best, goal in shown
        if best is not None and goal is not None
    ]
    if not bars:
        return "no chart: no operation was compared with a library"
    try:
        import_module("matplotlib").use("Agg")
        pyplot: Any = import_module("matplotlib.pyplot")
    except ImportError as error:
        return f"no chart: matplotlib cannot be imported ({error}); the extra `plot` brings it"
    names, speeds, goals, kept = (list(column) for column in zip(*reversed(bars), strict=True))
    places = range(len(bars))
    figure, axes = pyplot.subplots(figsize=(8, 1.5 + 0.22 * len(bars)))
    # Of a ratio the neutral place is 1, so bars begin there.
    for holds, (colour, label) in _KINDS_OF_BARS.items():
        chosen = [i for i in places if kept[i] is holds]
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
    try:
        figure.savefig(where, bbox_inches="tight")
    except OSError as error:
        return f"no chart: {where} cannot be written ({error.strerror})"
    finally:
        pyplot.close(figure)
    return f"the chart is {where}"
