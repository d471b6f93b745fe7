"""The passes that every lowered program goes through, in order.

1. Tiles of which a condition lets nothing through are not computed, loops end where what they do fails its
   guard for good, and guards are tested only where they may fail.
2. Reductions whose tile fits the vector registers accumulate there.
3. Guards are removed, hoisted and peeled, so that the bulk of a tile runs without them: one test outside
   the reduction, since a register tile is one statement by then. Terms that change nothing, as those of
   padding, are left out, and loops end where all are.
4. Tiles that read no padding, and nothing at an edge, are computed without asking for each element.
5. Reductions that are to read ahead ask for what they read next of large arrays.
6. Iterations of loops that are to be pipelined overlap, statements being as they stay by then.

Vectorising and unrolling come before these, during lowering, as pragmas are set stage by stage.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ansor.ir.bounds import Bounds
from ansor.ir.nest import Buffer, LoopNest, Stmt
from ansor.ir.passes.choices import peel_choices
from ansor.ir.passes.guards import settle_guards, simplify_guards
from ansor.ir.passes.identities import skip_identities
from ansor.ir.passes.index_set_splitting import split_index_sets
from ansor.ir.passes.read_ahead import ask_for_inputs
from ansor.ir.passes.register_tile import promote_accumulators
from ansor.ir.passes.software_pipeline import pipeline_loops
from ansor.ir.passes.unchosen import skip_unchosen
from ansor.ir.ranges import loop_ranges, nest_bounds
from ansor.ir.registers import RegisterLimits
from ansor.ir.rewriting import map_expressions
from ansor.ir.simplify import simplify


def polish(
    nest: LoopNest, limits: RegisterLimits, ahead: Mapping[str, Collection[Buffer]] | None = None
) -> LoopNest:
    """The same program with fewer guards and with its accumulators in registers.

    `ahead` are arrays that reductions ask for before they read them, by the name of what these store to.
    """
    known = nest_bounds(nest)
    body = skip_unchosen(map_expressions(nest.body, lambda expr: simplify(expr, known)), known)
    known = known.extended(loop_ranges(body))
    body = _within_bands(body, known)
    body = promote_accumulators(body, limits, known)
    known = known.extended(loop_ranges(body))  # A pass that finds no other loops has what was simplified.
    body = skip_identities(simplify_guards(body, known), known)
    body = peel_choices(split_index_sets(body, known), known)
    body = ask_for_inputs(body, ahead or {}, known)
    return replace(nest, body=pipeline_loops(body, known))


def _within_bands(stmt: Stmt, known: Bounds) -> Stmt:
    """A statement whose loops end where their guards fail for good; without such loops, as it is."""
    settled = settle_guards(stmt, known)
    parted = split_index_sets(settled, known)
    return stmt if parted is settled else parted
