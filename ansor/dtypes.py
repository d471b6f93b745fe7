"""Scalar data types: their names, sizes, kinds and numpy equivalents.

A dtype is its name, a plain string, everywhere in ansor; this is the one table of facts about the names.
"""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from ansor.errors import DefinitionError

if TYPE_CHECKING:
    import numpy as np

Kind = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True, slots=True)
class DTypeInfo:
    """Facts of one dtype: `bits` of its values; `bytes` is the size of an element in memory."""

    name: str
    kind: Kind
    bits: int
    bytes: int


def _info(name: str, kind: Kind, bits: int) -> DTypeInfo:
    return DTypeInfo(name, kind, bits, max(1, bits // 8))


_TABLE: Final = {
    info.name: info
    for info in (
        _info("float64", "float", 64),
        _info("float32", "float", 32),
        _info("float16", "float", 16),
        _info("bfloat16", "float", 16),
        *(_info(f"int{bits}", "int", bits) for bits in (8, 16, 32, 64)),
        *(_info(f"uint{bits}", "uint", bits) for bits in (8, 16, 32, 64)),
        _info("bool", "bool", 1),
    )
}

DTYPES: Final = tuple(_TABLE)


def dtype_info(dtype: str) -> DTypeInfo:
    """Facts of `dtype`; a `DefinitionError` that lists the known names if there is no such dtype."""
    try:
        return _TABLE[dtype]
    except (KeyError, TypeError):
        raise DefinitionError(f"unknown dtype {dtype!r}; use one of {', '.join(DTYPES)}") from None


def is_float(dtype: str) -> bool:
    return dtype_info(dtype).kind == "float"


def is_integer(dtype: str) -> bool:
    """Whether `dtype` is a signed or unsigned integer; bool is not."""
    return dtype_info(dtype).kind in ("int", "uint")


@cache
def to_numpy(dtype: str) -> "np.dtype[Any]":
    """The numpy dtype of the same name; bfloat16 comes from `ml_dtypes`."""
    import numpy as np

    if dtype == "bfloat16":
        import ml_dtypes

        kind: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return kind
    return np.dtype(dtype_info(dtype).name)


@cache
def int_range(dtype: str) -> tuple[int, int]:
    """Smallest and largest value of an integer (or bool) dtype."""
    info = dtype_info(dtype)
    if info.kind == "int":
        return -(1 << (info.bits - 1)), (1 << (info.bits - 1)) - 1
    return 0, (1 << info.bits) - 1


def other_sign(dtype: str) -> str:
    """The integer dtype of as many bits that is unsigned if `dtype` is signed, and signed if not."""
    info = dtype_info(dtype)
    return f"uint{info.bits}" if info.kind == "int" else f"int{info.bits}"
