"""Checking what a caller passes, before machine code sees an address.

Compiled code trusts its arguments blindly, so everything is checked here, but for what is just as described
(`ansor.runtime.plain_call`): number, shape, dtype, byte order, layout, device, alignment, writability,
overlap. Arrays are used where they lie: nothing is copied or converted, and what would need it is refused
with the call that does it. Symbolic sizes are deduced from the shapes and must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from numbers import Integral
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ansor.alignment import address_of, aligned_empty
from ansor.dtypes import int_range, to_numpy
from ansor.errors import ArgumentError
from ansor.ir.dims import evaluate, format_dim, solve
from ansor.runtime.signature import Argument, Signature, describe
from ansor.te.expr import INDEX_DTYPE

Array = NDArray[Any]

_MOST: Final = int_range(INDEX_DTYPE)[1]
_CPU_DEVICES: Final = (1, 3, 11)  # DLPack: CPU, and host memory pinned by CUDA or ROCm


@dataclass(frozen=True, slots=True)
class BoundCall:
    """Checked arguments: arrays and their addresses in calling order, symbolic sizes; outputs made here."""

    arrays: tuple[Array, ...]
    addresses: tuple[int, ...]
    sizes: tuple[int, ...]
    outputs: tuple[Array, ...]


def bind(signature: Signature, values: Sequence[object], sizes: Mapping[str, int] | None = None) -> BoundCall:
    """Check the arguments of a call and allocate the outputs if only inputs are given.

    Parameters
    ----------
    values
        One array for every argument, or one for every input.
    sizes
        Symbolic sizes that the shapes do not tell; usually none.

    Raises
    ------
    ArgumentError
        With the argument's name, what was expected, what was found and what to do.
    """
    taken = take_arguments(signature, values, sizes, host_array, allocate_host)
    addresses = tuple(map(address_of, taken.arrays))
    if taken.complete:
        spans = [(a, a + array.nbytes) for a, array in zip(addresses, taken.arrays, strict=True)]
        refuse_overlap(signature, spans)
    return BoundCall(taken.arrays, addresses, taken.sizes, taken.outputs)


class ArrayLike(Protocol):
    """What is asked of an argument wherever it lies."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def ndim(self) -> int: ...


Kept = TypeVar("Kept", bound=ArrayLike)


@dataclass(frozen=True, slots=True)
class TakenArguments(Generic[Kept]):
    """Arrays in calling order, symbolic sizes, and the outputs made here, none if all arrays were given.

    `complete` says whether they were.
    """

    arrays: tuple[Kept, ...]
    sizes: tuple[int, ...]
    outputs: tuple[Kept, ...]
    complete: bool


def take_arguments(
    signature: Signature,
    values: Sequence[object],
    sizes: Mapping[str, int] | None,
    check: Callable[[Signature, Argument, object], Kept],
    allocate: Callable[[Signature, Argument, tuple[int, ...], Sequence[Kept]], Kept],
) -> TakenArguments[Kept]:
    """Check the arguments of a call and make the outputs, if only inputs are given, wherever they lie.

    Parameters
    ----------
    values, sizes
        As in `bind`.
    check
        Gives a value as an array of the argument's dtype and number of dimensions, or refuses it; called for
        all values that are given.
    allocate
        Makes an output, of this shape, beside the arrays that there are; called after that.

    Raises
    ------
    ArgumentError
        As in `bind`.
    """
    arguments = signature.arguments
    complete = len(values) == len(arguments)
    if not complete and len(values) != len(signature.inputs):
        raise ArgumentError(
            f"{signature.name} takes all {len(arguments)} arrays ({_names(arguments)}) or only the "
            f"{len(signature.inputs)} inputs ({_names(signature.inputs)}); found {len(values)}"
        )
    given = arguments if complete else signature.inputs
    arrays = {
        argument.name: check(signature, argument, value)
        for argument, value in zip(given, values, strict=True)
    }
    known = _deduce(signature, given, arrays, sizes or {})
    for argument in arguments:
        if argument.name not in arrays:
            shape = _shape(signature, argument, known)
            arrays[argument.name] = allocate(signature, argument, shape, tuple(arrays.values()))
    return TakenArguments(
        tuple(arrays[argument.name] for argument in arguments),
        tuple(known[size] for size in signature.sizes),
        () if complete else tuple(arrays[argument.name] for argument in signature.outputs),
        complete,
    )


def allocate_host(
    signature: Signature, argument: Argument, shape: tuple[int, ...], others: Sequence[Array] = ()
) -> Array:
    """Make an output in this process's memory, apart from other arrays."""
    try:
        return aligned_empty(shape, argument.dtype, others)
    except (MemoryError, ValueError, OverflowError):  # numpy's words for: more than there is, or than can be
        gib = prod(shape) * to_numpy(argument.dtype).itemsize / 2**30
        raise ArgumentError(
            f"{signature.name}: no memory for the output {argument.name!r}, {argument.dtype} of shape "
            f"{shape}, {gib:.4g} GiB; use smaller sizes, or pass an array of your own, e.g. an np.memmap"
        ) from None


def _names(arguments: Sequence[Argument]) -> str:
    return ", ".join(argument.name for argument in arguments)


def host_array(signature: Signature, argument: Argument, value: object) -> Array:
    """View what is passed as a numpy array that compiled code can use, or refuse it."""
    array = value if type(value) is np.ndarray else _as_array(signature, argument, value)
    check_form(signature, argument, array)
    flags = array.flags
    if not flags.c_contiguous:
        refuse(
            signature,
            argument,
            f"is not contiguous in row-major order (shape {array.shape}, strides {array.strides} bytes)",
            "pass a new array and copy back" if argument.output else "pass np.ascontiguousarray(...)",
        )
    if argument.output and not flags.writeable:
        remedy = "pass a writable array"
        if array is not value and not isinstance(value, np.ndarray):
            remedy += " of numpy: it takes whatever DLPack hands over without a version for read-only"
        refuse(signature, argument, "is read-only, and it is an output", remedy)
    if not flags.aligned:
        refuse(
            signature,
            argument,
            f"starts at an address that is no multiple of {array.dtype.itemsize}",
            "copy it",
        )
    return array


def check_form(signature: Signature, argument: Argument, array: ArrayLike) -> None:
    """Refuse an array of another dtype or number of dimensions."""
    expected = to_numpy(argument.dtype)
    if array.dtype != expected:
        _refuse_dtype(signature, argument, array, expected)
    if array.ndim != len(argument.shape):
        refuse(signature, argument, f"has {array.ndim} dimensions {array.shape}", "reshape it")


def _as_array(signature: Signature, argument: Argument, value: object) -> Array:
    """View a foreign array, without copying, as a numpy array."""
    kind = type(value).__name__
    if isinstance(value, np.ma.MaskedArray):
        refuse(signature, argument, f"is a {kind}", "pass its .data, or .filled(...)")
    if isinstance(value, np.ndarray):
        return value.view(np.ndarray)
    if hasattr(value, "__cuda_array_interface__"):
        refuse(signature, argument, f"is a {kind} in GPU memory", "copy it to the CPU first")
    if isinstance(value, np.generic) and not argument.output:
        return np.asarray(value)
    dlpack_device = getattr(value, "__dlpack_device__", None)
    if dlpack_device is not None and not isinstance(value, np.generic):
        device = int(dlpack_device()[0])
        if device not in _CPU_DEVICES:
            found = f"is a {kind} on a device of DLPack type {device}"
            refuse(signature, argument, found, "copy it to the CPU first")
        try:
            viewed: Array = np.from_dlpack(value)  # type: ignore[arg-type]
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            found = f"is a {kind} that numpy cannot view ({error})"
            refuse(signature, argument, found, "convert it to a numpy array first")
        return viewed
    if isinstance(value, np.generic) or not hasattr(value, "__array_interface__"):
        refuse(signature, argument, f"is a {kind}", f"pass np.asarray(..., dtype={argument.dtype!r})")
    return np.asarray(value)


def _refuse_dtype(
    signature: Signature, argument: Argument, array: ArrayLike, expected: np.dtype[Any]
) -> None:
    if array.dtype == expected.newbyteorder():
        found = f"has dtype {array.dtype.str!r}, the other byte order"
        refuse(signature, argument, found, "pass array.astype(array.dtype.newbyteorder('='))")
    refuse(signature, argument, f"has dtype {array.dtype}", f"pass array.astype({str(expected)!r})")


def returned(outputs: Sequence[object]) -> Any:
    """What a call gives back of the outputs made for it: nothing, the only one, or all."""
    if not outputs:
        return None
    return outputs[0] if len(outputs) == 1 else outputs


def refuse_keywords(signature: Signature, named: Mapping[str, object]) -> None:
    """Refuse arrays that are passed by name."""
    if named:
        raise ArgumentError(
            f"{signature.name} takes its arrays by position, found the keyword {next(iter(named))!r}; "
            f"pass ({_names(signature.arguments)}) in this order; sizes={{...}} is the only keyword"
        )


def refuse(signature: Signature, argument: Argument, found: str, remedy: str) -> NoReturn:
    """Say by name what an argument must be, what it is, and what to do."""
    raise ArgumentError(
        f"{signature.name}: argument {argument.name!r} must be {describe(argument)}; it {found}; {remedy}"
    )


def _deduce(
    signature: Signature, given: Sequence[Argument], arrays: Mapping[str, ArrayLike], sizes: Mapping[str, int]
) -> dict[str, int]:
    """Find all symbolic sizes and check every given shape against them."""
    known = _given_sizes(signature, sizes)
    for _ in signature.sizes:  # a size may become solvable once another is known
        for argument in given:
            for dim, extent in zip(argument.shape, arrays[argument.name].shape, strict=True):
                if type(dim) is str:
                    known.setdefault(dim, extent)
                elif type(dim) is not int:
                    solve(dim, extent, known)
        if len(known) == len(signature.sizes):
            break
    if signature.sizes:
        _require_sizes(signature, known)
    for argument in given:
        shape = arrays[argument.name].shape
        if shape != argument.shape and shape != _shape(signature, argument, known):
            _refuse_shape(signature, argument, shape, known)
    return known


def _given_sizes(signature: Signature, sizes: Mapping[str, object]) -> dict[str, int]:
    known = {}
    if not isinstance(sizes, Mapping):
        raise ArgumentError(f"{signature.name}: sizes must be a dict of sizes by name, found {sizes!r}")
    for name, size in sizes.items():
        if name not in signature.sizes:
            raise ArgumentError(
                f"{signature.name} has no size {name!r}; its sizes are {list(signature.sizes)}"
            )
        if isinstance(size, bool) or not isinstance(size, Integral) or size < 0:
            raise ArgumentError(
                f"{signature.name}: the size {name!r} must be an integer of at least 0, found {size!r}"
            )
        known[name] = int(size)
    return known


def _require_sizes(signature: Signature, known: Mapping[str, int]) -> None:
    missing = [size for size in signature.sizes if size not in known]
    if missing:
        raise ArgumentError(
            f"{signature.name}: the size {missing[0]!r} cannot be deduced from the shapes given; "
            f"pass the outputs too, or sizes={{{missing[0]!r}: ...}}"
        )
    for name, value in known.items():
        if value < 0:
            raise ArgumentError(f"{signature.name}: the shapes make the size {name!r} negative ({value})")
    for what, dim in signature.extents:
        extent = evaluate(dim, known)
        if extent is not None and extent < 0:
            sizes = ", ".join(f"{name} = {value}" for name, value in known.items())
            raise ArgumentError(
                f"{signature.name}: with {sizes} the {what}, of {format_dim(dim)}, has {extent} elements; it "
                "takes larger arrays"
            )


def _shape(signature: Signature, argument: Argument, known: Mapping[str, int]) -> tuple[int, ...]:
    shape = []
    for dim in argument.shape:
        extent = known[dim] if type(dim) is str else evaluate(dim, known)
        assert extent is not None, (signature.name, argument.name)  # all sizes are known by now
        if not 0 <= extent <= _MOST:
            raise ArgumentError(
                f"{signature.name}: the sizes make an extent of {argument.name!r}, {describe(argument)}, "
                f"{extent}; extents are 0 to {_MOST}, as loops count to that"
            )
        shape.append(extent)
    return tuple(shape)


def _refuse_shape(
    signature: Signature, argument: Argument, shape: tuple[int, ...], known: Mapping[str, int]
) -> None:
    expected = _shape(signature, argument, known)
    position = next(i for i, pair in enumerate(zip(shape, expected, strict=True)) if pair[0] != pair[1])
    reason = ""
    if not isinstance(argument.shape[position], int):
        values = ", ".join(f"{name} = {known[name]}" for name in signature.sizes)
        reason = f" ({format_dim(argument.shape[position])} with {values} by the other dimensions)"
    found = f"has shape {shape}: dimension {position} must be {expected[position]}{reason}"
    refuse(signature, argument, found, "check the order of the arguments and their shapes")


def refuse_overlap(signature: Signature, spans: Sequence[tuple[int, int]]) -> None:
    """Refuse an output that shares memory with another argument: it would be read half written.

    `spans` are the first address of each argument and the one behind its last.
    """
    for i, argument in enumerate(signature.arguments):
        if not argument.output:
            continue
        for j, other in enumerate(signature.arguments):
            if i != j and spans[i][0] < spans[j][1] and spans[j][0] < spans[i][1]:
                refuse(
                    signature, argument, f"shares memory with {other.name!r}", "pass a separate output array"
                )
