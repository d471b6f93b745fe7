"""Long reductions to a few values, shared by the blocks of a GPU.

`CrossThreadReduction` gives every value one block, so a norm of a matrix would keep one multiprocessor busy.
Here each of several blocks adds up one part, by its threads, and a second kernel adds up what they found:

    blockIdx.x k.0:  for k.1.0:  threadIdx.x k.1.1:  S.rf[k.0] += ...
    for k.0.0:  threadIdx.x k.0.1:  S += S.rf[k.0]

The number of parts is a hole, and how many threads share each of the two reductions.

Source: rule 6 of the paper, for the blocks of a GPU. Not in TVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ansor.schedule.state import State
from ansor.task.device import DeviceModel
from sketches.launch import most_parts, most_threads
from sketches.rule import SketchContext, Successor, Verdict
from sketches.rules.cross_thread import host_of, reduce_over_threads
from sketches.rules.rfactor import fuse_reduction, reduction_of_one_loop

_TURNS: Final = 16
"""Terms of each thread of the largest block from which on a second kernel may be worth its launch."""


class AddRfactorBlocks:
    """Results for less than half of the multiprocessors, terms for many turns of a block -> parts of them."""

    name = "AddRfactorBlocks"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        products = reduction_of_one_loop(context, state, stage_id, beyond=most_parts(context))
        if products is None:
            return Verdict.PASS
        results, terms = products
        few = 2 * results < DeviceModel.for_target(context.target).multiprocessors
        long = terms >= _TURNS * most_threads(context.hardware)
        return Verdict.APPLY if few and long else Verdict.PASS

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        fused, position = fuse_reduction(state, stage_id)
        parts = fused.split(stage_id, position, (1,), inner_to_outer=False)
        made = parts.rfactor(stage_id, position, position)
        merge = stage_id + 1
        made = reduce_over_threads(context, made, merge, host_of(made, merge))
        return [(reduce_over_threads(context, made, stage_id, None), stage_id - 1)]
