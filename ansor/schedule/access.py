"""What the operations of a graph read, and the few facts that every scheduling rule asks about it.

A schedule never looks into expressions: it asks this module whether an operation is cheap enough to be
inlined, whether tiling would pay (some input is reused along some axis), or whether two operations walk
their tensors in the same order, so that one can be computed inside the loops of the other.

The analysis works on any tuple of operations that is closed under reading, in any order: the graph as the
user wrote it, or the graph of a schedule in which caching, inlining or a factored reduction rebuilt some
operations. Relations here are the direct ones; a schedule skips inlined stages itself.

Source: Zheng et al., OSDI 2020, section 4.1 (the conditions of the sketch rules), with the definitions that
TVM's auto_scheduler gives them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ansor.schedule.places import Place, place_of, uses_at
from ansor.te.expr import (
    Binary,
    BinaryOp,
    Call,
    Expr,
    IterVar,
    Read,
    Reduce,
    Select,
    Var,
    distinct_nodes,
    free_vars,
    int_value,
)
from ansor.te.tensor import ComputeOp, Operation

Indices = tuple[Expr, ...]

EXPENSIVE_INTRINSICS: Final = frozenset({"exp"})
"""Intrinsics that are never recomputed without asking: an operation that calls one keeps its own loops."""

SIMPLIFY_CONST_ATTR: Final = "auto_scheduler_simplify_const_tensor_indices"
NO_SPLIT_ATTR: Final = "auto_scheduler_no_split_at_inner"
ALWAYS_UNROLL_ATTR: Final = "auto_scheduler_always_unroll_inner"
UNROLLED_TILES_ATTR: Final = "unrolled_tiles"
AMPLIFICATION_ATTR: Final = "rounding_amplification"
"""How much larger rounding errors are than those of a plain sum of as many terms."""
LAYOUT_FREE_ATTR: Final = "layout_free_placeholders"
_TRANSFORMS: Final = frozenset({SIMPLIFY_CONST_ATTR, UNROLLED_TILES_ATTR})


@dataclass(frozen=True, slots=True)
class AxisPattern:
    """How one simple read walks the axes of its reader.

    `axes` lists, per non-constant index, the position of the spatial axis that the index is (up to a
    constant shift); `missing` says that some axis of the reader does not occur, `duplicated` that one
    occurs twice, `in_order` that `axes` does not decrease.
    """

    axes: tuple[int, ...]
    missing: bool
    duplicated: bool
    in_order: bool

    @property
    def is_elementwise(self) -> bool:
        """Whether every axis occurs exactly once, in order."""
        return self.in_order and not self.missing and not self.duplicated


def is_shifted(index: Expr, axis: Var) -> bool:
    """Whether `index` is `axis`, or `axis` plus or minus an integer constant."""
    if index is axis:
        return True
    if not isinstance(index, Binary):
        return False
    if index.op is BinaryOp.ADD and index.b is axis:
        return int_value(index.a) is not None
    return index.op in (BinaryOp.ADD, BinaryOp.SUB) and index.a is axis and int_value(index.b) is not None


def match_axes(op: ComputeOp, indices: Indices) -> AxisPattern | None:
    """The pattern of a simple read by `op`, or None if some index is more than a shifted spatial axis."""
    found: list[int] = []
    for index in indices:
        if int_value(index) is not None:
            continue
        position = next((p for p, axis in enumerate(op.axis) if is_shifted(index, axis)), None)
        if position is None:
            return None
        found.append(position)
    distinct = set(found)
    return AxisPattern(
        axes=tuple(found),
        missing=len(distinct) < len(op.axis),
        duplicated=len(distinct) < len(found),
        in_order=found == sorted(found),
    )


def reads_own_element(op: ComputeOp, read: Read) -> bool:
    """Whether a read by an operation is of the element that it computes: at its axes, not shifted."""
    pairs = zip(read.indices, op.axis, strict=False)
    return len(read.indices) == len(op.axis) and all(index is axis for index, axis in pairs)


def named_tile(op: Operation) -> Mapping[int, int] | None:
    """The small tile that an operation's author names, lengths by positions of axes; None if none."""
    if not isinstance(op, ComputeOp) or UNROLLED_TILES_ATTR not in op.attrs:
        return None
    names = [axis.name for axis in (*op.axis, *op.reduce_axis)]
    return {names.index(name): length for name, length in op.attrs[UNROLLED_TILES_ATTR].items()}


def amplification(ops: Iterable[Operation]) -> float:
    """How many times larger than plain ones an algorithm's rounding errors are, as its operations state."""
    return max(1.0, *(float(op.attrs.get(AMPLIFICATION_ATTR, 1.0)) for op in ops))


def body_roots(op: ComputeOp) -> Iterator[Expr]:
    """The expressions of an operation's body; the parts that the outputs of one reduction share come once."""
    seen: list[tuple[Expr, ...]] = []
    for root in op.body:
        if isinstance(root, Reduce):
            if any(root.sources is sources for sources in seen):
                continue
            seen.append(root.sources)
        yield root


def same_shape(one: Sequence[Expr | int], other: Sequence[Expr | int]) -> bool:
    """Whether two shapes agree: equal numbers, or the very same symbolic expression."""
    return len(one) == len(other) and all(_same_extent(a, b) for a, b in zip(one, other, strict=True))


def _same_extent(a: Expr | int, b: Expr | int) -> bool:
    value = int_value(a)
    return a is b if value is None else value == int_value(b)


@dataclass(frozen=True, slots=True)
class _Scan:
    """What one pass over a body finds."""

    reads: dict[Operation, tuple[Indices, ...]]
    has_branch: bool
    has_expensive_call: bool


def _scan(op: Operation) -> _Scan:
    reads: dict[Operation, list[Indices]] = {}
    has_branch = has_expensive_call = False
    if isinstance(op, ComputeOp):
        for node in (node for root in body_roots(op) for node in distinct_nodes(root)):
            match node:
                case Read(tensor=tensor, indices=indices):
                    reads.setdefault(tensor.op, []).append(indices)
                case Select():
                    has_branch = True
                case Call(name=name):
                    has_expensive_call = has_expensive_call or name in EXPENSIVE_INTRINSICS
                case _:
                    pass
    return _Scan(
        {producer: tuple(accesses) for producer, accesses in reads.items()}, has_branch, has_expensive_call
    )


class AccessAnalysis:
    """Reads, consumers and scheduling predicates of a set of operations.

    Parameters
    ----------
    ops
        The operations, with the producers of everything they read; their order is kept for listing consumers.
    outputs
        Operations whose tensors leave the program although another operation reads them too. What nobody
        reads is an output in any case.

    Notes
    -----
    Operations are keys by identity. Every method takes operations of `ops` and answers from one scan of
    the bodies done at construction.
    """

    def __init__(self, ops: Sequence[Operation], outputs: Collection[Operation] = ()) -> None:
        self.ops: Final = tuple(ops)
        self._scans: Final = {op: _scan(op) for op in self.ops}
        self._exposed: Final = frozenset(outputs)
        self._common: Final[dict[tuple[Operation, Operation], int | None]] = {}
        self._places: Final[dict[ComputeOp, Mapping[Operation, frozenset[Place]]]] = {}

    @cached_property
    def _readers(self) -> dict[Operation, tuple[Operation, ...]]:
        readers: dict[Operation, list[Operation]] = {op: [] for op in self.ops}
        for op in self.ops:
            for producer in self._scans[op].reads:
                readers.setdefault(producer, []).append(op)
        return {op: tuple(found) for op, found in readers.items()}

    # -- one operation -----------------------------------------------------------------------------

    def reads(self, op: Operation) -> Mapping[Operation, tuple[Indices, ...]]:
        """Producer -> the index tuple of each place in the body that reads it, left to right.

        Indices nested in other indices (`A[B[i]]`) count as reads, too, before the read that uses them.
        """
        return self._scans[op].reads

    def places(self, op: ComputeOp) -> Mapping[Operation, frozenset[Place]]:
        """Producer -> where `op` reads it, without the reads at no place."""
        if op not in self._places:
            reads = {
                producer: (place_of(op.axis, indices) for indices in accesses)
                for producer, accesses in self._scans[op].reads.items()
            }
            self._places[op] = {
                producer: frozenset(place for place in places if place is not None)
                for producer, places in reads.items()
            }
        return self._places[op]

    @cached_property
    def used_once(self) -> frozenset[Operation]:
        """Operations that one other reads, each element for one of its own, and so on to an output.

        Reads at no place do not count, as those of reductions.
        """
        found: set[Operation] = set()
        pending = [op for op in self.ops if not self._readers[op]]
        while pending:
            op = pending.pop()
            found.add(op)
            for producer, places in self.places(op).items() if isinstance(op, ComputeOp) else ():
                if len(self._readers[producer]) == 1 and uses_at(places) <= 1:
                    pending.append(producer)
        return frozenset(found)

    def is_read_around(self, op: Operation) -> bool:
        """Whether another operation reads each element of `op` for several of its own, as a stencil does."""
        readers = (reader for reader in self._readers[op] if isinstance(reader, ComputeOp))
        return any(uses_at(self.places(reader)[op]) > 1 for reader in readers)

    def producers(self, op: Operation) -> tuple[Operation, ...]:
        """Operations that `op` reads, in order of first occurrence."""
        return tuple(self._scans[op].reads)

    def consumers(self, op: Operation) -> tuple[Operation, ...]:
        """Operations that read `op`, in the order of `ops`."""
        return self._readers[op]

    def is_output(self, op: Operation) -> bool:
        """Whether the tensors of `op` leave the program."""
        return not self._readers[op] or op in self._exposed

    def has_branch(self, op: Operation) -> bool:
        """Whether the body chooses between values (`te.if_then_else`, `te.select`)."""
        return self._scans[op].has_branch

    def has_expensive_call(self, op: Operation) -> bool:
        """Whether the body calls one of `EXPENSIVE_INTRINSICS`."""
        return self._scans[op].has_expensive_call

    def patterns(self, op: Operation) -> tuple[AxisPattern | None, ...]:
        """The axis pattern of each read of `op`, None for the reads that are not simple.

        A read is simple if each of its indices is a spatial axis, shifted by a constant, or a constant.
        """
        if not isinstance(op, ComputeOp):
            return ()
        return tuple(
            match_axes(op, indices) for accesses in self._scans[op].reads.values() for indices in accesses
        )

    def is_strictly_inlineable(self, op: Operation) -> bool:
        """Whether inlining `op` into its consumers can only help.

        So it is if all reads are simple, with the axes in order and none twice (broadcasts are fine,
        transposes are not), and the body has neither a branch nor an expensive call.
        """
        if not isinstance(op, ComputeOp) or self.has_branch(op) or self.has_expensive_call(op):
            return False
        return self.reads_in_order(op)

    def reads_in_order(self, op: ComputeOp) -> bool:
        """Whether all reads of `op` are simple, with the axes in order and none twice."""
        return all(p is not None and p.in_order and not p.duplicated for p in self.patterns(op))

    def needs_multi_level_tiling(self, op: Operation) -> bool:
        """Whether `op` reuses its inputs, so that blocking pays.

        An input is reused if some spatial axis longer than 1 occurs in none of its indices: once for
        each value of that axis. One such input is enough under a reduction. Otherwise it takes two, and no
        other input: where one is read element by element, as the result that a batch norm scales and shifts,
        blocks of it save nothing. An input that is read along different axes, as of a product with its own
        transpose, counts as several. Weighted sums of rows that go back into rows are left to these.
        """
        if not isinstance(op, ComputeOp) or not _TRANSFORMS.isdisjoint(op.attrs):
            return False
        wide = {axis for axis in op.axis if int_value(axis.extent) != 1}
        reads = [used for producer in self._scans[op].reads for used in self.axes_of_reads(op, producer)]
        reused = sum(not wide <= used for used in reads)
        if not op.reduce_axis:
            return 2 <= reused == len(reads)
        return reused >= 1 and not (self._weighs_rows(op, wide) and self._goes_into_rows(op))

    def _weighs_rows(self, op: ComputeOp, wide: set[IterVar]) -> bool:
        """Whether `op` reads each element of some rows once, all that it reuses being for all rows the same.

        So are sums of rows times a vector: blocks of rows save loads of the vector, one of two or more.
        """
        terms = set(op.reduce_axis)
        has_rows = False
        for indices in (indices for accesses in self._scans[op].reads.values() for indices in accesses):
            axes = [index for index in indices if int_value(index) is None]
            if not all(isinstance(axis, IterVar) for axis in axes) or len({*axes}) < len(axes):
                return False
            if not (wide.isdisjoint(axes) or wide.issubset(axes)):
                return False
            has_rows = has_rows or ((wide | terms).issubset(axes) and axes[-1] in terms)
        return has_rows

    def _goes_into_rows(self, op: ComputeOp) -> bool:
        """Whether `op` is no output, and what reduces nothing uses its elements again along an axis."""
        if self.is_output(op):
            return False
        pending, seen = [op], {op}
        while pending:
            current = pending.pop()
            for reader in self._readers[current]:
                if not isinstance(reader, ComputeOp) or reader.reduce_axis or reader in seen:
                    continue
                wide = {axis for axis in reader.axis if int_value(axis.extent) != 1}
                if any(not wide <= used for used in self.axes_of_reads(reader, current)):
                    return True
                seen.add(reader)
                pending.append(reader)
        return False

    def axes_of_reads(self, op: ComputeOp, producer: Operation) -> frozenset[frozenset[Var]]:
        """The axes along which `op` reads an input: those of each read, once for reads along the same."""
        return frozenset(frozenset(free_vars(*indices)) for indices in self._scans[op].reads[producer])

    # -- two operations ----------------------------------------------------------------------------

    def num_common_outer_iterators(self, op: Operation, producer: Operation) -> int:
        """The number of leading dimensions that `op` and `producer` walk together.

        Dimension d is common if both shapes agree on it and every read of the producer indexes it with
        the reader's axis d, up to a constant shift. For operations further apart it is the minimum along
        all paths between them, and 0 if there is none. The two may be given in either order.
        """
        for upper, lower in ((producer, op), (op, producer)):
            common = self._common_on_paths(upper, lower)
            if common is not None:
                return common
        return 0

    def _common_on_paths(self, producer: Operation, target: Operation) -> int | None:
        """The minimum over paths from `producer` down to `target`; None if there is no path."""
        known = self._common
        known[target, target] = len(target.output(0).shape)
        pending = [producer]
        while pending:
            op = pending[-1]
            readers = self._readers[op] if (op, target) not in known else ()
            ahead = [reader for reader in readers if (reader, target) not in known]
            if ahead:  # readers first, so that nothing recurses down a chain
                pending += ahead
                continue
            pending.pop()
            if (op, target) not in known:
                paths = [(reader, known[reader, target]) for reader in readers]
                common = [min(n, self._common_with_reader(op, x)) for x, n in paths if n is not None]
                known[op, target] = min(common, default=None)
        return known[producer, target]

    def _common_with_reader(self, producer: Operation, consumer: Operation) -> int:
        assert isinstance(consumer, ComputeOp)
        accesses = self._scans[consumer].reads[producer]
        pairs = zip(consumer.output(0).shape, producer.output(0).shape, strict=False)
        common = 0
        for dim, (ours, theirs) in enumerate(pairs):
            if not _same_extent(ours, theirs):
                break
            if not all(is_shifted(indices[dim], consumer.axis[dim]) for indices in accesses):
                break
            common += 1
        return common

    def elementwise_match(self, op: Operation, target: Operation) -> bool:
        """Whether a chain of only consumers leads from `op` to `target`, each element using the same element.

        At every hop both operations compute, all their outputs have one shape, and each read of the upper
        one is simple and uses every axis once and in order.
        """
        current = op
        while current is not target:
            consumers = self._readers[current]
            if len(consumers) != 1:
                return False
            follower = consumers[0]
            if not isinstance(current, ComputeOp) or not isinstance(follower, ComputeOp):
                return False
            shape = current.output(0).shape
            if not all(same_shape(t.shape, shape) for t in (*current.outputs, *follower.outputs)):
                return False
            for indices in self._scans[follower].reads[current]:
                pattern = match_axes(follower, indices)
                if pattern is None or not pattern.is_elementwise:
                    return False
            current = follower
        return True


def constant_extents(axes: Sequence[IterVar]) -> tuple[int, ...] | None:
    """The extents of `axes` as ints, or None if one of them is symbolic."""
    values = [int_value(axis.extent) for axis in axes]
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else None
