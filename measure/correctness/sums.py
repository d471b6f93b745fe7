"""The same computation, with sums and products that are kept in floats of more digits.

The order of a reduction is not promised, and now and then much hangs on it. Terms of one sign that are added
up one by one in bfloat16 give no more than 256 of them; in sixteen parts, sixteen times that. Equal terms of
float32 are rounded to the same side time and again. One by one, and without any such loss, are the two ends
of what programs may give: what lies between them is right. That is said of each output of floats, which may
depend on sums in ways in which the ends are not the extremes. Integers that are made of sums, and reducers of
the user's own, have one end only.
"""

from __future__ import annotations

from typing import Final

from ansor.schedule.dag import ComputeDAG
from ansor.schedule.rebuilding import redirect
from ansor.te.define import compute
from ansor.te.expr import Cast, Expr, Reduce
from ansor.te.reduction import builtin_combiner, builtin_name
from ansor.te.tensor import ComputeOp, Tensor

_WIDER: Final = {"float16": "float32", "bfloat16": "float32", "float32": "float64"}
"""What sums of each dtype are kept in."""


def summed_dtypes(dag: ComputeDAG) -> set[str]:
    """The dtypes of sums and products that could be kept in more digits."""
    bodies = [root for op in dag.ops if isinstance(op, ComputeOp) for root in op.body]
    return {root.dtype for root in bodies if _loses_digits(root)}


def widened(dag: ComputeDAG) -> ComputeDAG:
    """The graph of the same inputs and outputs whose sums and products are rounded to their dtype at last."""
    moved: dict[Tensor, Tensor] = {}
    for op in dag.ops:
        made = redirect(op, moved)
        if isinstance(made, ComputeOp) and isinstance(made.body[0], Reduce) and _loses_digits(made.body[0]):
            moved[op.output(0)] = _rounded_at_last(made, made.body[0])
        else:
            moved.update(zip(op.outputs, made.outputs, strict=True))
    return ComputeDAG([moved[tensor] for tensor in dag.tensors])


def _loses_digits(root: Expr) -> bool:
    """Whether a body is a sum or product whose steps are rounded."""
    return (
        isinstance(root, Reduce) and root.dtype in _WIDER and builtin_name(root.combiner) in ("sum", "prod")
    )


def _rounded_at_last(op: ComputeOp, root: Reduce) -> Tensor:
    name, dtype = builtin_name(root.combiner), _WIDER[root.dtype]
    assert name is not None
    terms = tuple(Cast(term, dtype) for term in root.sources)
    wide = Reduce(builtin_combiner(name, dtype), terms, root.axes, root.index, dtype, root.condition)
    total = ComputeOp(f"{op.name}.{dtype}", op.axis, op.reduce_axis, (wide,)).output(0)
    return compute(op.shape, lambda *indices: Cast(total(*indices), root.dtype), op.name)
