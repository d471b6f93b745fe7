"""How much work a statement is: an estimate of the instructions that are executed for it.

It counts what `ansor.ir.code_size` counts, as often as it runs. As there, an element that is added to counts
as loaded and stored, so that a product in registers comes out some three times too long. What that is good
for is to tell what takes a microsecond from what takes a second.
"""

from __future__ import annotations

from typing import Final

from ansor.ir.code_size import own_instructions, stored_bits
from ansor.ir.nest import For, If, LoopKind, Stmt, sub_statements
from ansor.te.expr import int_value

_UNKNOWN: Final = 16
"""Iterations that a loop of unknown extent is taken to have."""


def executed_instructions(stmt: Stmt, vector_bits: int) -> int:
    """
    Estimate the instructions that are executed for a statement, by all threads together.

    Parameters
    ----------
    stmt
        Of a choice the longer side counts; a loop that an instruction computes as a whole counts once.
    vector_bits
        Size of the machine's vectors.
    """
    inner = [executed_instructions(part, vector_bits) for part in sub_statements(stmt)]
    if isinstance(stmt, If):
        return max(inner)
    total = own_instructions(stmt) + sum(inner)
    return total * _iterations(stmt, vector_bits) if isinstance(stmt, For) else total


def _iterations(loop: For, vector_bits: int) -> int:
    """How often the instructions of a loop's body run."""
    if loop.kind is LoopKind.TENSORIZE:
        return 1
    extent = int_value(loop.extent)
    if extent is None:
        return _UNKNOWN
    if loop.kind is not LoopKind.VECTORIZED:
        return extent
    return -(-extent * stored_bits(loop.body) // vector_bits)
