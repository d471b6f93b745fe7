"""What computations of the same kind have in common, whatever their sizes.

The *skeleton* of a graph is what a schedule addresses: which operations there are, what each reads, how many
loops it has and how it reduces. Extents, constants and index expressions are left out, so the same layer at
another size, stride or padding has the same skeleton, and steps made for one can be tried on the other.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

from ansor.schedule.dag import ComputeDAG
from ansor.te.expr import Binary, Call, Reduce, distinct_nodes
from ansor.te.tensor import ComputeOp, Operation


def skeleton(dag: ComputeDAG) -> str:
    """Digest of a graph's skeleton: equal for computations that differ in sizes and constants only."""
    position = {op: number for number, op in enumerate(dag.ops)}
    lines = [_operation(op, position) for op in dag.ops]
    lines.append(f"arguments {[position[tensor.op] for tensor in dag.tensors]}")
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=12).hexdigest()


def _operation(op: Operation, position: dict[Operation, int]) -> str:
    if not isinstance(op, ComputeOp):
        return f"placeholder {op.output(0).dtype} {op.output(0).ndim}"
    dtypes = [tensor.dtype for tensor in op.outputs]
    reads = [position[tensor.op] for tensor in op.input_tensors]
    first = op.body[0]
    how = _words(first) if isinstance(first, Reduce) else []
    return f"compute {dtypes} {len(op.axis)} {len(op.reduce_axis)} {reads} {how}"


def _words(reduce: Reduce) -> list[str]:
    """The operators of a reduction's combiner."""
    nodes = [node for result in reduce.combiner.result for node in distinct_nodes(result)]
    return [str(node.op) for node in nodes if isinstance(node, Binary)] + [
        node.name for node in nodes if isinstance(node, Call)
    ]


def size_distance(one: str, other: str) -> float:
    """
    How far apart the sizes in two workload keys are.

    Returns
    -------
    float
        Sum over all numbers of ``|log2(a / b)|`` (with 0 counted as 1/2), 0 for equal keys; infinite if
        anything but numbers differs, such as the function's name, a dtype or the number of arguments. The
        hash in a key without a name depends on the sizes and is not compared.
    """
    try:
        a, b = json.loads(one), json.loads(other)
    except ValueError:
        return 0.0 if one == other else math.inf
    if _is_hashed(a) and _is_hashed(b):
        a, b = a[1:], b[1:]
    return _distance(a, b)


def _is_hashed(key: Any) -> bool:
    if not isinstance(key, list) or len(key) < 2 or not all(isinstance(shape, list) for shape in key[1:]):
        return False
    head = key[0]
    return isinstance(head, int) or (
        isinstance(head, str) and len(head) in (32, 40) and set(head) <= set("0123456789abcdef")
    )


def _distance(a: Any, b: Any) -> float:
    if isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            return math.inf
        return math.fsum(_distance(x, y) for x, y in zip(a, b, strict=True))
    if type(a) is int and type(b) is int and a >= 0 and b >= 0:
        return abs(math.log2(max(a, 0.5) / max(b, 0.5)))
    return 0.0 if type(a) is type(b) and a == b else math.inf
