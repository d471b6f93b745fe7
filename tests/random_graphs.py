"""Random graphs of tensor expressions, small enough to interpret.

`random_graph` covers dtypes, padding, windows, reshapes, gathers, argmax, several outputs, zero rank;
`random_symbolic_graph` chains of operations over symbolic sizes. Inputs hold small integers, so that float
arithmetic is nearly exact whatever its order. Operations that would turn a rounding error into a jump
(comparisons, casts to integers, argmax) read only exact tensors: inputs, integers and booleans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from math import prod
from typing import Any

import numpy as np

from ansor import te
from ansor.dtypes import is_float, to_numpy
from ansor.schedule.dag import ComputeDAG
from ansor.te.tensor import ComputeOp, PlaceholderOp, Tensor
from tests.random_choice import Chooser

EXTENTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 33)
MAX_ELEMENTS = 2000
MAX_POINTS = 20000
DTYPES = (
    "float32",
    "float32",
    "float32",
    "int32",
    "float64",
    "int8",
    "uint8",
    "int64",
    "float16",
    "bfloat16",
)

Maker = Callable[["Builder", Tensor], Any]


def number(value: float, dtype: str) -> Any:
    """A constant of any dtype; integers get the value rounded up."""
    if dtype == "bool":
        return te.const(value > 0, "bool")
    return te.const(value if is_float(dtype) else int(np.ceil(value)), dtype)


def is_exact(tensor: Tensor) -> bool:
    """Whether the tensor's values cannot differ between two orders of evaluation."""
    return not is_float(tensor.dtype) or isinstance(tensor.op, PlaceholderOp)


def sizes(tensor: Tensor) -> tuple[int, ...]:
    return tuple(int(extent) for extent in tensor.shape)  # type: ignore[arg-type]


class Builder:
    """Grows a graph; `made` holds all tensors, `inputs` the placeholders among them."""

    def __init__(self, c: Chooser) -> None:
        self.c = c
        self.made: list[Tensor] = []
        self.inputs: list[Tensor] = []
        self.count = 0
        self.axes: list[str] = []

    def name(self) -> str:
        """The name of the next operation, before anything of it is made."""
        self.count += 1
        self.axes = []
        return f"T{self.count - 1}"

    def reduce_axis(self, bounds: tuple[int, int], name: str) -> Any:
        """A reduction axis of the operation, now and then called as steps call what they make of others."""
        if self.c.chance(3):
            known = ["i0", "i1", *self.axes]
            hostile = [axis + ending for axis in known for ending in (".0", ".1", "_c", "_o", "_i", "_v")]
            name = self.c.one_of([x for x in (*hostile, "i0@i1@", "i0_i1_fused") if x not in self.axes])
        self.axes.append(name)
        return te.reduce_axis(bounds, name=name)

    def compute(self, shape: Sequence[Any], body: Callable[..., Any], name: str, **attrs: Any) -> Any:
        """The operation, now and then with an axis called as steps call what they make of others."""
        names = [f"i{d}" for d in range(len(shape))]
        if names and self.c.chance(4):
            known = [axis for axis in (*names, *self.axes) if axis.isidentifier()]
            hostile = [axis + ending for axis in known for ending in ("_c", "_o", "_i", "_u", "_v")]
            names[self.c.below(len(names))] = self.c.one_of([x for x in hostile if x not in self.axes])
            body = with_parameters(body, names)
        return te.compute(shape, body, name=name, attrs=attrs)

    def placeholder(self, shape: Sequence[Any], dtype: str, name: str | None = None) -> Tensor:
        tensor = te.placeholder(shape, dtype, name or f"In{len(self.inputs)}")
        self.inputs.append(tensor)
        return tensor

    def add(self, result: Any) -> None:
        """Keep what an operation gave, unless it is too large to interpret quickly."""
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        op = outputs[0].op
        points = prod(sizes(outputs[0])) * prod(int(axis.extent.value) for axis in op.reduce_axis)
        if prod(sizes(outputs[0])) <= MAX_ELEMENTS and points <= MAX_POINTS:
            self.made.extend(outputs)


def with_parameters(function: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """The function with other names for its parameters."""

    def renamed(*values: Any) -> Any:
        return function(*values)

    parameters = [Parameter(name, Parameter.POSITIONAL_ONLY) for name in names]
    renamed.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return renamed


# -- operations that keep each element's neighbours apart ------------------------------------------------


def elementwise(b: Builder, x: Tensor) -> Any:
    low, step = number(-0.5, x.dtype), number(0.25, x.dtype)
    if x.dtype == "bool":
        return b.compute(x.shape, lambda *i: te.logical_not(x(*i)), name=b.name())
    if x.dtype == "uint8":
        low = te.const(1, "uint8")
    return b.compute(x.shape, lambda *i: te.maximum(x(*i), low) + step, name=b.name())


def mixed_index(b: Builder, x: Tensor) -> Any:
    """An element's value and its coordinates."""
    if x.dtype == "bool" or not x.ndim:
        return elementwise(b, x)
    d = b.c.below(x.ndim)
    return b.compute(x.shape, lambda *i: x(*i) + te.cast(i[d] % 3, x.dtype), name=b.name())


def intrinsic(b: Builder, x: Tensor) -> Any:
    kinds: list[Callable[[Any], Any]] = [
        te.abs,
        te.tanh,
        te.sigmoid,
        te.erf,
        lambda v: te.exp(te.minimum(v, te.const(2, x.dtype))),
        lambda v: te.sqrt(te.abs(v)),
        lambda v: te.log(te.abs(v) + te.const(1, x.dtype)),
        lambda v: te.rsqrt(te.abs(v) + te.const(1, x.dtype)),
        lambda v: te.fma(v, te.const(2, x.dtype), te.const(1, x.dtype)),
        lambda v: te.power(te.abs(v) + te.const(1, x.dtype), te.const(0.5, x.dtype)),
    ]
    if isinstance(x.op, PlaceholderOp):
        kinds += [te.floor, te.ceil, te.round]
    if not is_float(x.dtype):
        return elementwise(b, x)
    function = b.c.one_of(kinds)
    return b.compute(x.shape, lambda *i: function(x(*i)), name=b.name())


def several_outputs(b: Builder, x: Tensor) -> Any:
    if x.dtype == "bool":
        return b.compute(x.shape, lambda *i: (te.logical_not(x(*i)), te.cast(x(*i), "int32")), name=b.name())
    two = number(2, x.dtype)
    return b.compute(x.shape, lambda *i: (x(*i) + two, x(*i) * two), name=b.name())


def convert(b: Builder, x: Tensor) -> Any:
    """Another dtype; floats become integers only where they are exact and in range."""
    wanted = [d for d in (*DTYPES, "bool") if d != x.dtype]
    if is_float(x.dtype) and not is_exact(x):
        wanted = [d for d in wanted if is_float(d)]
    if is_float(x.dtype):
        wanted = [d for d in wanted if d != "uint8"]
    dtype = b.c.one_of(wanted)
    return b.compute(x.shape, lambda *i: te.cast(x(*i), dtype), name=b.name())


def compare(b: Builder, x: Tensor) -> Any:
    """A mask, a choice by a mask, or what is let through by a condition on it."""
    if not is_exact(x) or x.dtype == "bool":
        return elementwise(b, x)
    one, two = number(1, x.dtype), number(2, x.dtype)
    kind = b.c.below(3)
    if kind == 0:
        return b.compute(x.shape, lambda *i: te.any(x(*i) > one, x(*i) == two), name=b.name())
    if kind == 1:
        return b.compute(x.shape, lambda *i: _let_through(x(*i), one), name=b.name())
    return b.compute(x.shape, lambda *i: te.select(x(*i) < two, x(*i) + one, one), name=b.name())


def _let_through(value: Any, least: Any) -> Any:
    """One element that a condition, what it decides about, and what is added to that all share."""
    return te.if_then_else(value > least, value, te.const(0, value.dtype)) + value


def divide(b: Builder, x: Tensor) -> Any:
    """Integer division by a constant of either sign."""
    if is_float(x.dtype):
        return b.compute(x.shape, lambda *i: x(*i) / te.const(4, x.dtype), name=b.name())
    if x.dtype == "bool":
        return elementwise(b, x)
    function = b.c.one_of([te.floordiv, te.floormod, te.truncdiv, te.truncmod])
    by = te.const(b.c.one_of((2, 3) if x.dtype == "uint8" else (2, 3, -2)), x.dtype)
    return b.compute(x.shape, lambda *i: function(x(*i), by), name=b.name())


# -- operations that move elements ------------------------------------------------------------------------


def broadcast(b: Builder, x: Tensor) -> Any:
    extra = b.c.one_of(EXTENTS[:5])
    at = b.c.between(0, x.ndim)
    shape = (*x.shape[:at], extra, *x.shape[at:])
    return b.compute(shape, lambda *i: x(*i[:at], *i[at + 1 :]), name=b.name())


def transpose(b: Builder, x: Tensor) -> Any:
    order = b.c.permutation(x.ndim)
    shape = [x.shape[d] for d in order]
    inverse = [order.index(d) for d in range(x.ndim)]
    return b.compute(shape, lambda *i: x(*(i[inverse[d]] for d in range(x.ndim))), name=b.name())


def pad(b: Builder, x: Tensor) -> Any:
    amounts = [b.c.below(3) for _ in x.shape]

    def body(*i: Any) -> Any:
        tests = zip(i, sizes(x), amounts, strict=True)
        inside = [t for v, n, p in tests if p for t in (v >= p, v < n + p)]
        read = x(*(v - p if p else v for v, p in zip(i, amounts, strict=True)))
        around = number(0.5 if sum(amounts) % 2 else 0, x.dtype)
        return te.if_then_else(te.all(*inside), read, around) if inside else read

    return b.compute([n + 2 * p for n, p in zip(sizes(x), amounts, strict=True)], body, name=b.name())


def reshape(b: Builder, x: Tensor) -> Any:
    total = prod(sizes(x))
    inner = b.c.one_of([d for d in range(1, total + 1) if total % d == 0])

    def body(i: Any, j: Any) -> Any:
        flat = i * inner + j
        index = []
        for n in reversed(sizes(x)):
            index.append(te.floormod(flat, n))
            flat = te.floordiv(flat, n)
        return x(*reversed(index))

    return b.compute((total // inner, inner), body, name=b.name())


def repeat(b: Builder, x: Tensor) -> Any:
    """Nearest-neighbour enlargement, or reading round and round."""
    if not x.ndim:
        return broadcast(b, x)
    d, times = b.c.below(x.ndim), b.c.between(2, 3)
    shape = [n * times if at == d else n for at, n in enumerate(sizes(x))]
    wrap = b.c.chance(2)

    def body(*i: Any) -> Any:
        place = te.floormod(i[d], sizes(x)[d]) if wrap else te.floordiv(i[d], times)
        return x(*i[:d], place, *i[d + 1 :])

    return b.compute(shape, body, name=b.name())


def mirror(b: Builder, x: Tensor) -> Any:
    if not x.ndim:
        return elementwise(b, x)
    d = b.c.below(x.ndim)
    last = sizes(x)[d] - 1
    return b.compute(x.shape, lambda *i: x(*i[:d], last - i[d], *i[d + 1 :]), name=b.name())


def gather(b: Builder, x: Tensor) -> Any:
    """Rows chosen by an index input, as embeddings do; its name says how many rows there are."""
    if not x.ndim:
        return elementwise(b, x)
    rows = sizes(x)[0]
    count = b.c.one_of(EXTENTS)
    index = b.placeholder((count,), b.c.one_of(("int32", "int64", "uint8")), f"Row{len(b.inputs)}_of_{rows}")
    return b.compute(
        (count, *x.shape[1:]), lambda *i: x(te.cast(index(i[0]), "int32"), *i[1:]), name=b.name()
    )


# -- reductions ---------------------------------------------------------------------------------------------


def reductions(x: Tensor) -> list[Callable[..., Any]]:
    if x.dtype == "bool":
        either = te.comm_reducer(lambda p, q: te.any(p, q), lambda dtype: te.const(False, "bool"), name="any")
        return [either]
    kinds: list[Callable[..., Any]] = [te.sum, te.sum, te.max, te.min]
    if not is_float(x.dtype):
        kinds.append(te.prod)
    return kinds


def window(b: Builder, x: Tensor) -> Any:
    """A strided, possibly dilated window over some dimensions, reduced."""
    c, name = b.c, b.name()
    reduced, shape, taken = [], [], []
    for d, n in enumerate(sizes(x)):
        size = c.between(1, min(3, n)) if c.chance(2) else 1
        stride = c.between(1, 2)
        dilation = 2 if size > 1 and 2 * (size - 1) < n and c.chance(3) else 1
        count = (n - dilation * (size - 1) - 1) // stride + 1
        shape.append(count)
        axis = b.reduce_axis((0, size), f"{name}r{d}") if size > 1 else None
        reduced += [axis] if axis is not None else []
        taken.append((stride, axis, dilation))
    kind = c.one_of(reductions(x))

    def body(*i: Any) -> Any:
        places = zip(i, taken, strict=True)
        read = x(*(v * s + r * dil if r is not None else v * s for v, (s, r, dil) in places))
        return kind(read, axis=reduced) if reduced else read

    return b.compute(shape, body, name=name)


def row_reduce(b: Builder, x: Tensor) -> Any:
    """The last dimensions reduced, now and then not from 0 or only where the axes or data say so."""
    c, name = b.c, b.name()
    keep = c.below(max(1, x.ndim))
    if not x.ndim:
        return elementwise(b, x)
    axes = []
    for d, n in enumerate(sizes(x)[keep:]):
        begin = 1 if n > 2 and c.chance(6) else 0
        axes.append(b.reduce_axis((begin, n), f"{name}k{d}"))
    kind = c.one_of(reductions(x))
    only = c.chance(6)
    mask = b.placeholder(sizes(x)[keep:], "bool") if only and c.chance(2) else None

    def body(*i: Any) -> Any:
        where = te.any(axes[0] > 1, axes[-1] == 0) if only else None
        where = where if mask is None else mask(*axes)
        return kind(x(*i, *axes), axis=axes, where=where)

    return b.compute(x.shape[:keep], body, name=name)


def argmax(b: Builder, x: Tensor) -> Any:
    """The greatest element and where it is first found: a reduction of two values."""
    if not x.ndim or not is_exact(x) or x.dtype == "bool":
        return elementwise(b, x)
    name = b.name()

    def combine(p: Any, q: Any) -> Any:
        first = te.any(p[1] > q[1], te.all(p[1] == q[1], p[0] <= q[0]))
        return te.select(first, p[0], q[0]), te.select(first, p[1], q[1])

    reducer = te.comm_reducer(
        combine, lambda index, value: (te.max_value(index), te.min_value(value)), name="argmax"
    )
    k = b.reduce_axis((0, sizes(x)[-1]), f"{name}k")
    return b.compute(x.shape[:-1], lambda *i: reducer((k + 0, x(*i, k)), axis=k), name=name)


def contract(b: Builder, x: Tensor, y: Tensor) -> Any:
    """A matmul-like product over the last dimension of x and the first of y (cut to the shorter)."""
    name = b.name()
    k = b.reduce_axis((0, min(sizes(x)[-1], sizes(y)[0])), f"{name}k")
    n, m = x.ndim - 1, y.ndim - 1
    dtype = x.dtype if is_float(x.dtype) else "int32"

    def body(*i: Any) -> Any:
        left, right = te.cast(x(*i[:n], k), dtype), te.cast(y(k, *i[n : n + m]), dtype)
        return te.sum(left * right, axis=k)

    return b.compute((*x.shape[:-1], *y.shape[1:]), body, name=name)


def combine(b: Builder, x: Tensor, y: Tensor) -> Any:
    shape = tuple(min(p, q) for p, q in zip(sizes(x), sizes(y), strict=True))
    return b.compute(shape, lambda *i: x(*i) - te.cast(y(*i), x.dtype), name=b.name())


UNARY: tuple[Maker, ...] = (
    *(elementwise, broadcast, transpose, pad, reshape, window, row_reduce, window, row_reduce),
    *(intrinsic, mixed_index, several_outputs, convert, compare, divide, repeat, mirror, gather, argmax),
)


# -- graphs ----------------------------------------------------------------------------------------------


def random_graph(c: Chooser, max_ops: int = 4, makers: Sequence[Maker] = UNARY) -> ComputeDAG:
    """A graph of at least one and mostly at most `max_ops` operations over one or two inputs."""
    b = Builder(c)
    dtype = c.one_of(DTYPES)
    for _ in range(c.between(1, 2)):
        rank = c.between(0 if c.chance(8) else 1, 3)
        extents = EXTENTS[:10] if rank == 3 else EXTENTS
        b.made.append(b.placeholder([c.one_of(extents) for _ in range(rank)], dtype))
    for _ in range(c.between(1, max_ops)):
        grow(b, makers)
    if len(b.made) == sum(t in b.made for t in b.inputs):
        b.made.append(elementwise(b, b.made[-1]))
    return graph_of(b)


def grow(b: Builder, makers: Sequence[Maker] = UNARY) -> None:
    """One more operation on recent tensors."""
    c = b.c
    x, y = c.one_of(b.made[-3:]), c.one_of(b.made)
    kinds_fit = x.dtype != "bool" and y.dtype != "bool" and (is_float(x.dtype) or not is_float(y.dtype))
    small = prod(sizes(x)) * prod(sizes(y)) <= 4000
    if c.chance(3) and x.ndim and y.ndim and x.ndim + y.ndim <= 5 and small and kinds_fit:
        b.add(contract(b, x, y))
    elif c.chance(4) and x.ndim == y.ndim and kinds_fit:
        b.add(combine(b, x, y))
    else:
        b.add(c.one_of(makers)(b, x))


def graph_of(b: Builder) -> ComputeDAG:
    """The graph whose outputs are the tensors that nothing reads, and now and then one that is read."""
    used = {t for made in b.made for t in made.op.input_tensors}
    computed = [t for t in b.made if isinstance(t.op, ComputeOp)]
    outputs = [t for t in computed if t not in used or b.c.chance(10)]
    reached: set[Tensor] = set()
    pending = list(outputs)
    while pending:
        t = pending.pop()
        if t not in reached:
            reached.add(t)
            pending.extend(t.op.input_tensors)
    return ComputeDAG([t for t in b.inputs if t in reached] + outputs)


def random_symbolic_graph(c: Chooser) -> tuple[ComputeDAG, dict[Any, int]]:
    """A chain of operations over symbolic sizes, and values of those sizes."""
    n, m = te.var("n"), te.var("m")
    x = te.placeholder([(n,), (n, m), (n, 5), (3, n)][c.below(4)], "float32", "X")
    inputs, t = [x], x
    for step in range(c.between(1, 3)):
        kind, name = c.below(4), f"T{step}"
        if kind == 1:
            other = te.placeholder(t.shape, "float32", f"Y{step}")
            inputs.append(other)
            t = te.compute(t.shape, lambda *i, t=t, other=other: t(*i) - other(*i), name=name)
        elif kind == 2 and t.ndim == 2:
            t = te.compute(t.shape[::-1], lambda i, j, t=t: t[j, i], name=name)
        elif kind == 3 and t.ndim == 2:
            k = te.reduce_axis((0, t.shape[1]), name=f"{name}k")
            t = te.compute(t.shape[:1], lambda i, t=t, k=k: te.sum(t[i, k], axis=k), name=name)
        else:
            t = te.compute(t.shape, lambda *i, t=t: t(*i) * te.const(2, "float32"), name=name)
    values = {n: c.between(1, 20), m: c.between(1, 9)}
    used = {v: k for v, k in values.items() if any(v is e for p in inputs for e in p.shape)}
    return ComputeDAG([*inputs, t]), used


# -- arrays ----------------------------------------------------------------------------------------------


def random_inputs(dag: ComputeDAG, seed: int = 0, values: dict[Any, int] | None = None) -> dict[Tensor, Any]:
    """Small integers of each input's dtype; rows to gather are in range."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for tensor in dag.inputs:
        rows = tensor.name.partition("_of_")[2]
        low, high = (0, int(rows)) if rows else (-4, 5)
        shape = shape_of(tensor, values)
        arrays[tensor] = rng.integers(low, high, shape).astype(to_numpy(tensor.dtype))
    return arrays


def shape_of(tensor: Tensor, values: dict[Any, int] | None = None) -> tuple[int, ...]:
    """The shape, symbolic sizes replaced by their values."""
    return tuple(e if isinstance(e, int) else (values or {})[e] for e in tensor.shape)
