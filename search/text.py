"""Numbers as people read them, and for scripts what says how sure they are."""

from __future__ import annotations

from math import floor, log10
from typing import TYPE_CHECKING, Any, Final

from ansor.medians import repeats_text
from ansor.wording import counted

if TYPE_CHECKING:
    from measure import MeasureResult
    from measure.records.targets import RunsOn


BUSY: Final = 0.5
"""Share of disturbed repeats from which on no time is to be trusted: half of the medians are of such ones."""


def digits(value: float, significant: int = 3) -> str:
    """Format with so many significant digits and no exponent: 0.0123, 1.23, 123, 12300."""
    if value == 0:
        return "0"
    places = significant - 1 - floor(log10(abs(value)))
    return f"{round(value, places):.{max(0, places)}f}"


def seconds_text(seconds: float) -> str:
    """Run time of a kernel in the unit that fits: "42.1 ms"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{digits(seconds / scale)} {unit}"
    return f"{digits(seconds * 1e9)} ns"


def rate_text(flops: float, seconds: float) -> str:
    """Speed and run time: "51.2 GFLOP/s (42.1 ms)"; the time alone for a task without FLOPs."""
    if flops <= 0 or seconds <= 0:
        return seconds_text(seconds)
    return f"{digits(flops / seconds / 1e9)} GFLOP/s ({seconds_text(seconds)})"


def certainty_text(result: MeasureResult) -> str:
    """How sure the run time of a success is, to go behind it: where the median of its repeats lies.

    Of a single repeat there is no interval. What another load disturbed is told, where there was one.
    """
    rests_on = repeats_text(len(result.costs), result.disturbed, result.redone)
    if len(result.costs) < 2:
        return f", {rests_on}"
    return f", median within {interval_text(result)} of {rests_on}"


def busy_text(disturbed: int, repeats: int) -> str:
    """Say that the times of a run are not to be trusted, if another load disturbed `BUSY` of all its repeats.

    Empty if it disturbed fewer. A choice among such times is as little worth as they are: a load slows some
    programs more than others.
    """
    if not repeats or disturbed < BUSY * repeats:
        return ""
    return (
        f"something else kept the machine busy during {disturbed} of {repeats} repeats, "
        "so neither times nor the choice of the best are to be trusted"
    )


def interval_text(result: MeasureResult) -> str:
    """Where the median of the repeats lies: "1.00 ms .. 1.02 ms"; a dash for a single one."""
    return " .. ".join(map(seconds_text, result.interval)) if len(result.costs) > 1 else "-"


def certainty_json(result: MeasureResult | None) -> dict[str, Any]:
    """Say for scripts what `certainty_text` says; nothing of None, where no program was valid."""
    if result is None:
        return {"interval_seconds": None, "repeats": 0, "disturbed": 0, "redone": 0}
    return {
        "interval_seconds": list(result.interval) if len(result.costs) > 1 else None,
        "repeats": len(result.costs),
        "disturbed": result.disturbed,
        "redone": result.redone,
    }


def target_terms(target: str, machine: RunsOn) -> str:
    """What programs are for: the target, and the cores and the CPU where it is silent about them."""
    cores = None if machine.cores is None else counted(machine.cores, "core")
    return ", ".join(term for term in (target, cores, machine.cpu) if term)


def flops_text(flops: float) -> str:
    """Work of a computation in the unit that fits: "8 FLOP", "2.10 MFLOP"."""
    for unit, scale in (("GFLOP", 1e9), ("MFLOP", 1e6), ("kFLOP", 1e3)):
        if flops >= scale:
            return f"{digits(flops / scale)} {unit}"
    return f"{flops:g} FLOP"


def time_text(seconds: float) -> str:
    """Wall time: "8.4 s", "1:05", "2:03:00"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
