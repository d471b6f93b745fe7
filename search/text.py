"""Numbers as people read them."""

from collections.abc import Sequence
from math import floor, log10

from ansor.medians import median_interval


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


def certainty_text(costs: Sequence[float]) -> str:
    """How sure a run time is, to go behind it: where the median of its repeats lies; "" for a single one."""
    if len(costs) < 2:
        return ""
    low, high = map(seconds_text, median_interval(costs))
    return f", median within {low} .. {high} of {len(costs)} repeats"


def counted(number: int, what: str) -> str:
    """Write a number of things: "1 trial", "3 trials"."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def target_terms(target: str, cores: int | None) -> str:
    """What programs are for: the target, and the cores where it is silent about them."""
    return target if cores is None else f"{target}, {counted(cores, 'core')}"


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
