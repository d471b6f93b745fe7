"""`Workload`: a registered function with the sizes, dtypes and reference that a test or benchmark needs.

A workload enters the catalogue by the decorator `workload`, which stands right above its definition. The
reference is a numpy function `reference(arrays, args)`: the input arrays, and the function's arguments by
name. It works in the dtype of the arrays it is given. Handed the inputs themselves it is the numpy program a
user would write, a peer for benchmarks; handed them in a wider dtype it is the exact answer (`expected`).
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from ansor.dtypes import dtype_info, to_numpy
from ansor.errors import DefinitionError
from ansor.task.registry import BUILTIN_PREFIX, make_workload_key, register_workload
from ansor.te.expr import int_value
from ansor.te.tensor import PlaceholderOp, Tensor

Array = npt.NDArray[Any]
Arguments = Mapping[str, Any]
Args = tuple[int | str, ...]
Reference = Callable[[Sequence[Array], Arguments], Array]
TensorFunction = Callable[..., list[Tensor]]
FunctionT = TypeVar("FunctionT", bound=TensorFunction)

FLOATS: Final = ("float32", "float64", "float16", "bfloat16")
ARITHMETIC: Final = (*FLOATS, "int8", "uint8", "int32")

_CATALOGUE: Final[dict[str, Workload]] = {}
CATALOGUE: Final[Mapping[str, Workload]] = MappingProxyType(_CATALOGUE)
"""Every workload by name, in the order of definition."""


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """One entry of the catalogue.

    Attributes
    ----------
    name
        As the command line knows it; it is registered as `ansor.NAME`.
    function
        From plain arguments to tensors: inputs, then the output.
    reference
        The same in numpy (see the module).
    benchmark
        Argument tuples of realistic size, batch 1, the first being the default; the paper's where it has any.
    small
        Argument tuples that an interpreter runs in milliseconds, of awkward sizes.
    dtypes
        Values of the argument `dtype` for which the workload makes sense.
    """

    name: str
    function: TensorFunction
    reference: Reference
    benchmark: tuple[Args, ...]
    small: tuple[Args, ...]
    dtypes: tuple[str, ...]

    @property
    def registered_name(self) -> str:
        """The name in workload keys."""
        return f"{BUILTIN_PREFIX}{self.name}"

    @property
    def summary(self) -> str:
        """The first line of the function's documentation."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def default_args(self) -> Args:
        """The first of the benchmark's argument tuples."""
        return self.benchmark[0]

    @property
    def parameters(self) -> tuple[inspect.Parameter, ...]:
        """The function's parameters; those without a default must be given."""
        return tuple(inspect.signature(self.function).parameters.values())

    def key(self, *args: int | str) -> str:
        """The workload key of a call."""
        self.bind(args)
        return make_workload_key(self.registered_name, args)

    def bind(self, args: Sequence[int | str]) -> Arguments:
        """The arguments by name, defaults filled in.

        Raises
        ------
        DefinitionError
            If there are too few or too many, or a dtype stands where a number should, or the other way round.
        """
        try:
            bound = inspect.signature(self.function).bind(*args)
        except TypeError as error:
            raise DefinitionError(f"{self.usage()}: {error}, found {tuple(args)}") from error
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            wanted = "a dtype" if name.endswith("dtype") else "a number"
            if isinstance(value, str) != (wanted == "a dtype"):
                raise DefinitionError(f"{self.usage()}: {name} is {wanted}, found {value!r}")
        return bound.arguments

    def with_dtype(self, args: Sequence[int | str], dtype: str) -> Args:
        """The argument tuple with its `dtype` replaced."""
        named = dict(self.bind(args))
        named["dtype"] = dtype
        return tuple(named.values())

    def tensors(self, *args: int | str) -> list[Tensor]:
        """The tensors of a call, by default of the default size."""
        given = args or self.default_args
        self.bind(given)
        return self.function(*given)

    def usage(self) -> str:
        """How it is called, e.g. `matmul(n, m, k, dtype=float32)`."""
        parts = (p.name if p.default is p.empty else f"{p.name}={p.default}" for p in self.parameters)
        return f"{self.name}({', '.join(parts)})"

    def expected(self, arrays: Sequence[Array], args: Sequence[int | str]) -> Array:
        """The output for the input `arrays`, computed in float64 or int64 and rounded once at the end."""
        output = self.function(*args)[-1]
        wide = [array.astype(_wide(array.dtype)) for array in arrays]
        result = self.reference(wide, self.bind(args))
        return np.asarray(result).astype(to_numpy(output.dtype))

    def input_shapes(self, args: Sequence[int | str]) -> tuple[tuple[str, tuple[int, ...], str], ...]:
        """Name, shape and dtype of each input."""
        inputs = [t for t in self.function(*args) if isinstance(t.op, PlaceholderOp)]
        return tuple((t.name, constant_shape(t), t.dtype) for t in inputs)


def _wide(dtype: np.dtype[Any]) -> type[np.float64] | type[np.int64]:
    return np.float64 if dtype_info(dtype.name).kind == "float" else np.int64


def constant_shape(tensor: Tensor) -> tuple[int, ...]:
    """The shape of a tensor, all of whose extents must be constant."""
    shape = tuple(int_value(extent) for extent in tensor.shape)
    if any(extent is None for extent in shape):
        raise DefinitionError(f"the shape of {tensor} is symbolic; a number is needed here")
    return tuple(extent for extent in shape if extent is not None)


def workload(
    reference: Reference,
    *,
    benchmark: Sequence[Args],
    small: Sequence[Args],
    dtypes: tuple[str, ...] = FLOATS,
) -> Callable[[FunctionT], FunctionT]:
    """Put the decorated function into the catalogue and the registry; see `Workload` for the arguments."""

    def add(function: FunctionT) -> FunctionT:
        name = function.__name__
        entry = Workload(name, function, reference, tuple(benchmark), tuple(small), dtypes)
        register_workload(entry.registered_name, function)
        _CATALOGUE[name] = entry
        return function

    return add


def get_workload(name: str) -> Workload:
    """The entry called `name` (with or without `ansor.` in front).

    Raises
    ------
    DefinitionError
        If there is none; the message lists similar names, or all.
    """
    short = name.removeprefix(BUILTIN_PREFIX)
    if short not in _CATALOGUE:
        similar = difflib.get_close_matches(short, _CATALOGUE, n=3)
        hint = f"did you mean {' or '.join(similar)}?" if similar else f"there are {', '.join(_CATALOGUE)}"
        raise DefinitionError(f"there is no workload {name!r} in the catalogue; {hint}")
    return _CATALOGUE[short]
