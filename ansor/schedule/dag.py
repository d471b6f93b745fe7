"""The graph of a computation: which operations there are, in which order, and what each computes.

A `ComputeDAG` is made from the tensors that a workload returns: its inputs and outputs, in the order in
which a kernel takes them. Everything else follows by reading backwards from the outputs. The graph never
changes; a schedule is a list of steps beside it.

The *stage order* is an interface: records refer to operations by their position in it, so it is TVM's order
exactly. Outputs are visited in a topological order of their own (see `_output_order`), and from each one the
operations it needs are listed in post-order, inputs in the order in which its expression mentions them.

Printed, each stage is one line:

    A = PLACEHOLDER [64, 128]
    B = PLACEHOLDER [128, 96]
    C(i, j) += (A[i, k]*B[k, j])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from ansor.depth import with_depth
from ansor.errors import DefinitionError
from ansor.schedule.access import AccessAnalysis
from ansor.schedule.access_check import check_accesses
from ansor.schedule.attributes import check_attributes
from ansor.schedule.flops import count_flops
from ansor.schedule.structure import structure_hash, workload_key
from ansor.te.expr import Expr, IterVar, Reduce, Var, children, free_vars
from ansor.te.printer import format_expr, format_together, where
from ansor.te.reduction import builtin_name
from ansor.te.sizes import size_bytes
from ansor.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor, format_shape

if TYPE_CHECKING:
    import networkx

_REDUCTION_SIGNS: Final = {"sum": "+=", "prod": "*="}


class ComputeDAG:
    """The operations that `tensors` are made of.

    Parameters
    ----------
    tensors
        Every input and every output, in the order of the kernel's arguments.

    Raises
    ------
    DefinitionError
        If an element is not a tensor or occurs twice, an operation is neither placeholder nor compute, an
        input is missing, there is no output, two axes of an operation share a name, an operation certainly
        reads outside a tensor (`ansor.schedule.access_check`), or has an attribute that cannot be used
        (`ansor.schedule.attributes`).
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors: Final = _checked_tensors(tensors)
        self.ops: Final = stage_order(self.tensors)
        self.outputs: Final = tuple(t for t in self.tensors if isinstance(t.op, ComputeOp))
        self.inputs: Final = tuple(t for t in self.tensors if isinstance(t.op, PlaceholderOp))
        if not self.outputs:
            raise DefinitionError(
                f"the tensors {', '.join(t.name for t in self.tensors)} are all inputs; add what is computed"
            )
        given = set(self.tensors)
        missing = [op.name for op in self.ops if isinstance(op, PlaceholderOp) and op.output(0) not in given]
        if missing:
            raise DefinitionError(
                f"{', '.join(t.name for t in self.outputs)} reads {', '.join(map(repr, missing))}, which is "
                f"not among the given tensors ({', '.join(t.name for t in self.tensors)}); add it to the list"
            )
        check_accesses(self.ops)
        for op in self.ops:
            if isinstance(op, ComputeOp):
                check_attributes(op)

    @cached_property
    def access(self) -> AccessAnalysis:
        """What the operations read, and the predicates that scheduling rules ask for."""
        return AccessAnalysis(self.ops, outputs={t.op for t in self.outputs})

    def graph(self) -> networkx.DiGraph:
        """Make a graph of networkx of the operations, with an edge from each to every one that reads it."""
        return operation_graph(self.ops)

    @cached_property
    def sizes(self) -> tuple[Var, ...]:
        """The symbolic sizes that the operations use, by name."""
        exprs = [part for op in self.ops for part in _parts(op)]
        found = (var for var in free_vars(*exprs) if not isinstance(var, IterVar))
        return tuple(sorted(found, key=lambda var: var.name))

    @cached_property
    def flop_count(self) -> float:
        """Operations of the expression as written [flop]; -1 if sizes are symbolic."""
        return count_flops(self.ops)

    @cached_property
    def traffic_bytes(self) -> int:
        """Size of all inputs and outputs [bytes], what any program moves; symbolic ones count as empty."""
        return sum(map(size_bytes, self.tensors))

    @property
    def flop_ct(self) -> float:
        """TVM's name of `flop_count`."""
        return self.flop_count

    @cached_property
    def structure_hash(self) -> str:
        """The hash of `ansor.schedule.structure`: equal for computations that differ in names only."""
        return with_depth(lambda: structure_hash(self.tensors, self.ops))

    def workload_key(self) -> str:
        """A key for a graph that no registered function makes: the structure hash, then all shapes."""
        return workload_key(self.structure_hash, self.tensors)

    def __str__(self) -> str:
        return "".join(f"{line}\n" for op in self.ops for line in format_operation(op))

    def __repr__(self) -> str:
        return f"ComputeDAG({', '.join(t.name for t in self.tensors)})"


def _checked_tensors(tensors: object) -> tuple[Tensor, ...]:
    if not isinstance(tensors, (list, tuple)):
        raise DefinitionError(
            f"a compute DAG is made from a list of tensors, inputs and outputs; found {tensors!r}"
        )
    checked: dict[Tensor, None] = {}
    for position, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise DefinitionError(f"element {position} of the tensors is {tensor!r}, not a tensor")
        if tensor in checked:
            raise DefinitionError(f"tensor {tensor.name!r} is given twice")
        checked[tensor] = None
    return tuple(checked)


def _parts(op: Operation) -> Iterator[Expr]:
    """The expressions of an operation: what it computes, and extents that are no numbers."""
    yield from (extent for extent in op.shape if isinstance(extent, Expr))
    if isinstance(op, ComputeOp):
        yield from (axis.extent for axis in op.reduce_axis)
        yield from op.body


def check_operation(op: Operation) -> None:
    """Refuse an operation that no schedule could address: an unknown kind, or two axes of one name."""
    if isinstance(op, PlaceholderOp):
        return
    if not isinstance(op, ComputeOp):
        raise DefinitionError(
            f"operation {getattr(op, 'name', op)!r} is a {type(op).__name__}; "
            "only te.placeholder and te.compute can be scheduled"
        )
    seen: set[str] = set()
    for axis in (*op.axis, *op.reduce_axis):
        if axis.name in seen:
            raise DefinitionError(
                f"{op.name!r} has two axes named {axis.name!r}; axis names are unique within an operation"
            )
        seen.add(axis.name)


def with_inputs(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The inputs that some tensors need and that are not among them, as they are first used, then these."""
    given, inputs = set(tensors), dict[Tensor, None]()
    seen: set[Operation] = set()
    pending = list(reversed(tensors))
    while pending:
        tensor = pending.pop()
        if tensor.op in seen:
            continue
        seen.add(tensor.op)
        pending.extend(reversed(_inputs(tensor.op)))
        if isinstance(tensor.op, PlaceholderOp) and tensor not in given:
            inputs[tensor] = None
    return [*inputs, *tensors]


# -- order -------------------------------------------------------------------------------------------


def stage_order(tensors: Sequence[Tensor]) -> tuple[Operation, ...]:
    """All operations that `tensors` need, each after everything it reads, in the order of TVM's stages.

    Raises
    ------
    DefinitionError
        If one of them cannot be scheduled (`check_operation`).
    """
    order: dict[Operation, None] = {}
    for root in _output_order(tensors):
        for op in _post_order(root, order):
            order[op] = None
    return tuple(order)


def _post_order(root: Operation, done: dict[Operation, None]) -> Iterator[Operation]:
    """The operations below `root` and itself, inputs first, leaving out those in `done`."""
    entered: set[Operation] = set()
    stack: list[tuple[Operation, bool]] = [(root, False)]
    while stack:
        op, expanded = stack.pop()
        if expanded:
            yield op
        elif op not in entered and op not in done:
            entered.add(op)
            stack.append((op, True))
            stack.extend((tensor.op, False) for tensor in reversed(_inputs(op)))


def _inputs(op: Operation) -> tuple[Tensor, ...]:
    return op.input_tensors if isinstance(op, ComputeOp) else ()


def _output_order(tensors: Sequence[Tensor]) -> list[Operation]:
    """The operations nobody reads, in a topological order that prefers what a depth-first visit meets last.

    The visit goes backwards from `tensors`, last one first. Where there is one such operation, as usual,
    none of this matters.
    """
    visit: dict[Operation, int] = {}
    read: set[Operation] = set()
    stack = [tensor.op for tensor in tensors]
    while stack:
        op = stack.pop()
        check_operation(op)
        if op not in visit:
            visit[op] = len(visit)
            producers = [tensor.op for tensor in _inputs(op)]
            read.update(producers)
            stack.extend(producers)
    ends = [op for op in visit if op not in read]
    if len(ends) < 2:
        return ends
    import networkx  # A tenth of a second, which most computations need not wait.

    order = networkx.lexicographical_topological_sort(operation_graph(visit), key=lambda op: -visit[op])
    return [op for op in order if op not in read]


def operation_graph(ops: Iterable[Operation]) -> networkx.DiGraph:
    """`ops` as a graph of networkx, with an edge from each operation to every one that reads it."""
    import networkx

    graph = networkx.DiGraph()
    for op in ops:
        graph.add_node(op)
        graph.add_edges_from((tensor.op, op) for tensor in _inputs(op))
    return graph


# -- text --------------------------------------------------------------------------------------------


def format_operation(op: Operation) -> list[str]:
    """What `op` computes, one line per output."""
    if isinstance(op, PlaceholderOp):
        dtype = "" if op.dtype == "float32" else f" {op.dtype}"
        return [f"{op.name} = PLACEHOLDER {format_shape(op.shape)}{dtype}"]
    axes = ", ".join(axis.name for axis in op.axis)
    if len(op.body) == 1:
        return [f"{op.name}({axes}) {_format_value(op.body[0])}"]
    return [f"{op.name}({axes}).v{v} {_format_value(value)}" for v, value in enumerate(op.body)]


def _format_value(value: Expr) -> str:
    if not isinstance(value, Reduce):
        return f"= {format_expr(value)}"
    sign = _REDUCTION_SIGNS.get(builtin_name(value.combiner) or "", f"{value.combiner.name}=")
    texts, definitions = format_together(children(value))
    sources = ", ".join(texts[: len(value.sources)])
    text = f"{sign} {sources}" if len(value.sources) == 1 else f"{sign} ({sources})"
    return f"{text}{''.join(f' if {test}' for test in texts[len(value.sources) :])}{where(definitions)}"
