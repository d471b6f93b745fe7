"""Scalar expressions: the one node family shared by tensor expressions and loop nests.

A tensor expression reads tensors (`Read`) and may be one reduction (`Reduce`) at its root; a loop nest
reads buffers (`Load`) and holds neither of the two. All other nodes mean the same at both levels, so
interpreters, printers and code generators share them.

Two doors: the Python operators and the functions below check dtypes and fold constants; the raw
dataclass constructors do neither and are meant for passes that already know what they build.

Nodes are immutable and compare by identity: `a == b` *builds* an equality expression, hashing uses the
identity, and truth-testing an expression is refused except for `==`/`!=`, which answer whether the two
sides are the same node (so that `axis in axes` works).

The parts: `nodes` (the classes), `construct` (the checked constructors), `traversal` (walking, rewriting).
This module is their one door.
"""

from ansor.te.construct import (
    FOLDERS,
    MixedIdentityTest,
    arithmetic_of_bits,
    as_expr,
    as_index,
    binary,
    bitwise,
    call,
    cast,
    const,
    equality,
    fold,
    int_value,
    inverted,
    logical_not,
    negate,
    refuse_tensor,
    select,
    wrap_int,
)
from ansor.te.nodes import (
    BITWISE,
    COMPARISONS,
    DIVISIONS,
    FLOAT_MAX,
    INDEX_DTYPE,
    INTRINSICS,
    LOGICAL,
    AxisKind,
    Binary,
    BinaryOp,
    Call,
    Cast,
    Combiner,
    Const,
    Expr,
    ExprLike,
    IterVar,
    Load,
    Not,
    Number,
    Read,
    Reduce,
    Select,
    Var,
)
from ansor.te.traversal import (
    children,
    distinct_nodes,
    every_node,
    free_vars,
    memoised,
    reached,
    rewrite,
    substitute,
    used_by_both,
    with_children,
)

__all__ = [
    "BITWISE",
    "COMPARISONS",
    "DIVISIONS",
    "FLOAT_MAX",
    "FOLDERS",
    "INDEX_DTYPE",
    "INTRINSICS",
    "LOGICAL",
    "AxisKind",
    "Binary",
    "BinaryOp",
    "Call",
    "Cast",
    "Combiner",
    "Const",
    "Expr",
    "ExprLike",
    "IterVar",
    "Load",
    "MixedIdentityTest",
    "Not",
    "Number",
    "Read",
    "Reduce",
    "Select",
    "Var",
    "arithmetic_of_bits",
    "as_expr",
    "as_index",
    "binary",
    "bitwise",
    "call",
    "cast",
    "children",
    "const",
    "distinct_nodes",
    "equality",
    "every_node",
    "fold",
    "free_vars",
    "int_value",
    "inverted",
    "logical_not",
    "memoised",
    "negate",
    "reached",
    "refuse_tensor",
    "rewrite",
    "select",
    "substitute",
    "used_by_both",
    "with_children",
    "wrap_int",
]
