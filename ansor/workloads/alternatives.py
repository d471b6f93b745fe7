"""Which workloads of the catalogue compute what another one does, by another algorithm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ansor.task.registry import workload_function
from ansor.te import Expr
from ansor.workloads.catalogue import CATALOGUE, Arguments, get_workload
from ansor.workloads.winograd import TILES

_WINOGRAD: Final = {
    "conv2d": "conv2d_winograd",
    "conv2d_bn_relu": "conv2d_bn_relu_winograd",
    "conv2d_nchw": "conv2d_nchw_winograd",
}
"""Entries by what they stand for; `NAME_prepared` takes weights that the caller has transformed."""
_SHARED: Final = ("n", "h", "w", "ci", "co")


def alternatives_of(
    func: str | Callable[..., Any], args: Sequence[Any], *, constant: bool = False
) -> list[tuple[str, tuple[int | str, ...]]]:
    """
    List what may stand for a workload of the catalogue, as `SearchTask(alternatives=...)` takes it.

    Parameters
    ----------
    func, args
        As `SearchTask` takes them: a registered workload or its name, and all its arguments.
    constant
        Whether the caller lays out the weights beforehand (`layout_rewrite_option=2`): transforms them, too.

    Returns
    -------
    list
        Registered workloads with their arguments: Winograd's algorithm, for `conv2d`, `conv2d_bn_relu` and
        `conv2d_nchw` by 3 x 3 kernels with stride 1, without dilation or groups, in float32 or float64
        throughout. Empty for all other workloads, the caller's own included, and for symbolic sizes.

    Raises
    ------
    DefinitionError
        If no workload has this name, or one that has alternatives in some case has no such arguments.

    Examples
    --------
    >>> args = (1, 28, 28, 128, 128, 3, 1, 1)
    >>> task = ansor.SearchTask("ansor.conv2d", args, alternatives=alternatives_of("ansor.conv2d", args))
    """
    function = workload_function(func) if isinstance(func, str) else func
    entry = next((one for one in CATALOGUE.values() if one.function is function), None)
    if entry is None or entry.name not in _WINOGRAD:
        return []
    named, other = entry.bind(args), get_workload(_WINOGRAD[entry.name])
    if not _is_plain(named) or named["dtype"] not in other.dtypes:
        return []
    name = f"{other.registered_name}_prepared" if constant else other.registered_name
    sizes = [named[size] for size in _SHARED]
    return [(name, (*sizes, tile, named["padding"], named["dtype"])) for tile in TILES]


def _is_plain(named: Arguments) -> bool:
    """Whether a convolution is by 3 x 3 neighbours, of all channels, in one dtype."""
    if any(isinstance(value, Expr) for value in named.values()):
        return False
    dtypes = {named.get(name) or named["dtype"] for name in ("dtype", "out_dtype", "weight_dtype")}
    steps = [named.get(name, 1) for name in ("stride", "dilation", "groups")]
    return named["kernel"] == 3 and steps == [1, 1, 1] and len(dtypes) == 1
