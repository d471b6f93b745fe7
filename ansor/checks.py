"""Checks of plain numbers that users give as options.

A comparison such as `value < 0` lets a NaN through, since every comparison with one is false, and a string
fails it with a TypeError that names no option. The functions here ask the question the right way round: is
this a finite number inside the range?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any

from ansor.errors import DefinitionError


def check_number(name: str, value: object, *, low: float | None = None, above: float | None = None) -> float:
    """Refuse what is not a finite number of the range.

    Parameters
    ----------
    name
        The option as the user wrote it, for the message.
    value
        What was given. A bool is no number here; numpy's scalars are.
    low
        Least value allowed, itself included; None for no bound.
    above
        A value that must be exceeded; None for no bound.

    Returns
    -------
    int or float
        The number as Python's own, which the standard library takes everywhere; numpy's it does not.

    Raises
    ------
    DefinitionError
        If `value` is something else, NaN and the infinities included.
    """
    number: Any = value  # numpy's scalars are numbers by registration, which type checkers do not see
    good = not isinstance(number, bool) and isinstance(number, Real)
    good = good and (isinstance(number, Integral) or math.isfinite(number))
    _refuse_unless(good and _is_inside(number, low, above), name, value, "a finite number", low, above)
    return int(number) if isinstance(value, Integral) else float(number)


def check_integer(
    name: str,
    value: object,
    *,
    low: float | None = None,
    above: float | None = None,
    high: int | None = None,
    besides: Sequence[object] = (),
) -> int:
    """The same of a whole number of an integer type, of no more than `high`.

    `besides` are other values that the option takes, for the message.
    """
    number: Any = value
    good = not isinstance(number, bool) and isinstance(number, Integral)
    good = good and _is_inside(number, low, above) and (high is None or number <= high)
    _refuse_unless(good, name, value, "an integer", low, above, high, besides)
    return int(number)


def check_fields(
    owner: object,
    *names: str,
    low: float | None = None,
    above: float | None = None,
    check: Callable[..., float] = check_number,
) -> None:
    """Refuse what `check` does in fields of a dataclass, and keep the numbers that it gives there.

    Raises
    ------
    DefinitionError
        If a field holds something else.
    """
    for name in names:
        title = f"{type(owner).__name__}({name})"
        object.__setattr__(owner, name, check(title, getattr(owner, name), low=low, above=above))


def _is_inside(number: Any, low: float | None, above: float | None) -> bool:
    return bool((low is None or number >= low) and (above is None or number > above))


def _refuse_unless(
    good: bool,
    name: str,
    value: object,
    asked: str,
    low: float | None,
    above: float | None,
    high: int | None = None,
    besides: Sequence[object] = (),
) -> None:
    if not good:
        bounds = [] if low is None else [f"of at least {low:g}"]
        if above is not None:
            bounds.append(f"above {above:g}")
        if high is not None:
            bounds.append(f"{'and ' * bool(bounds)}at most {high}")
        allowed = " or ".join((" ".join((asked, *bounds)), *map(repr, besides)))
        raise DefinitionError(f"{name} must be {allowed}, found {value!r}")
