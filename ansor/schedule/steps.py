"""The transform steps: what a schedule is made of, and what a record stores.

This module gathers them: `step_base` holds what they share, `loop_steps` change loops, `place_steps` say
where stages are computed, `cache_steps` and `rfactor_step` add stages, `pad_steps` one that computes more
than asked for, `distribute_step` those of products that are multiplied out, `layout_steps` change the order
of what stages store, `convert_steps` its dtype, `tensor_steps` compute innermost loops by tensor intrinsics,
`store_steps` say how results are stored, `prefetch_steps` that inputs are asked for ahead, `buffer_steps` how
tiles in shared memory are kept.
"""

from ansor.schedule.buffer_steps import MultiBufferStep, SwizzleStep
from ansor.schedule.cache_steps import CacheReadPartStep, CacheReadStep, CacheWriteStep
from ansor.schedule.convert_steps import StoreConvertedStep
from ansor.schedule.distribute_step import DistributeStep
from ansor.schedule.layout_steps import FollowLayoutStep, RewriteLayoutStep
from ansor.schedule.loop_steps import (
    UNROLL_PRAGMA,
    AnnotationStep,
    FollowFusedSplitStep,
    FollowSplitStep,
    FuseStep,
    PragmaStep,
    ReorderStep,
    SplitStep,
    StorageAlignStep,
)
from ansor.schedule.pad_steps import PadStep
from ansor.schedule.place_steps import ComputeAtStep, ComputeInlineStep, ComputeRootStep, SetScopeStep
from ansor.schedule.prefetch_steps import PrefetchStep, ReadAheadStep
from ansor.schedule.rfactor_step import RfactorStep
from ansor.schedule.step_base import STEP_CODES, Step, step_from_json
from ansor.schedule.store_steps import StreamingStoresStep
from ansor.schedule.tensor_steps import TensorizeStep

__all__ = [
    "STEP_CODES",
    "UNROLL_PRAGMA",
    "AnnotationStep",
    "CacheReadPartStep",
    "CacheReadStep",
    "CacheWriteStep",
    "ComputeAtStep",
    "ComputeInlineStep",
    "ComputeRootStep",
    "DistributeStep",
    "FollowFusedSplitStep",
    "FollowLayoutStep",
    "FollowSplitStep",
    "FuseStep",
    "MultiBufferStep",
    "PadStep",
    "PragmaStep",
    "PrefetchStep",
    "ReadAheadStep",
    "ReorderStep",
    "RewriteLayoutStep",
    "RfactorStep",
    "SetScopeStep",
    "SplitStep",
    "Step",
    "StorageAlignStep",
    "StoreConvertedStep",
    "StreamingStoresStep",
    "SwizzleStep",
    "TensorizeStep",
    "step_from_json",
]
