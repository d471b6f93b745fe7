"""Checks of plain numbers that users give as options.

A comparison such as `value < 0` lets a NaN through, since every comparison with one is false, and a string
fails it with a TypeError that names no option. One function asks the question the right way round: is this
a finite number inside the range?
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, Literal, overload

from ansor.errors import DefinitionError


@overload
def check_number(
    name: str,
    value: object,
    *,
    low: float | None = None,
    above: float | None = None,
    integer: Literal[False] = False,
) -> float: ...


@overload
def check_number(
    name: str, value: object, *, low: float | None = None, above: float | None = None, integer: Literal[True]
) -> int: ...


def check_number(
    name: str,
    value: object,
    *,
    low: float | None = None,
    above: float | None = None,
    integer: bool = False,
) -> float:
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
    integer
        Whether only whole numbers of an integer type will do.

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
    is_number = isinstance(value, Integral if integer else Real) and not isinstance(value, bool)
    good = (
        is_number
        and (integer or math.isfinite(number))
        and (low is None or number >= low)
        and (above is None or number > above)
    )
    if not good:
        asked = "an integer" if integer else "a finite number"
        bounds = [] if low is None else [f"of at least {low:g}"]
        if above is not None:
            bounds.append(f"above {above:g}")
        raise DefinitionError(f"{name} must be {' '.join((asked, *bounds))}, found {value!r}")
    return int(number) if isinstance(value, Integral) else float(number)


def check_fields(
    owner: object,
    *names: str,
    low: float | None = None,
    above: float | None = None,
    integer: bool = False,
) -> None:
    """Refuse what is not a finite number of the range in fields of a dataclass, and keep Python's own there.

    Raises
    ------
    DefinitionError
        If a field holds something else.
    """
    for name in names:
        title, value = f"{type(owner).__name__}({name})", getattr(owner, name)
        number = (
            check_number(title, value, low=low, above=above, integer=True)
            if integer
            else check_number(title, value, low=low, above=above)
        )
        object.__setattr__(owner, name, number)
