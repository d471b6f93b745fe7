"""The plain program of a graph: compiled for the CPU with a trivial schedule, whatever the target.

Elementwise stages are inlined, loops are in the order of the definition, the outer one in parallel, the inner
one vectorised.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Final, Protocol

from ansor.errors import BuildError, MeasureTimeoutError, RunError, ScheduleError
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.stages import Annotation, Iterator, IteratorKind
from ansor.schedule.state import State
from ansor.task.target import Target
from ansor.task.task import Task
from ansor.te.expr import int_value
from ansor.te.tensor import ComputeOp
from measure.emit import emit_program
from measure.workers.arguments import ArgumentSpec
from measure.workers.jobs import compile_program, compute_reference
from measure.workers.process import RemoteError

COMPILE_TIMEOUT: Final = 60.0
RUN_TIMEOUT: Final = 300.0
FAILURES: Final = (BuildError, RunError, ScheduleError, MeasureTimeoutError, MemoryError, RemoteError)
"""What compiling and running plain programs may end with."""
_VECTOR: Final = 16


class TooLongError(RunError):
    """A plain program does not compute the answer in time."""


class TimedExecutor(Protocol):
    """The part of `WorkerPool` that is used here."""

    def submit_timed(self, timeout: float | None, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]: ...


def run_plain(
    task: Task,
    dag: ComputeDAG,
    specs: Sequence[ArgumentSpec],
    executor: TimedExecutor,
    threads: int | None,
) -> None:
    """Compile the trivially scheduled program for the CPU and let it write the output files."""
    target = Target("llvm") if task.target.is_gpu else task.target
    program = emit_program(trivial_state(dag), dag.tensors, target)
    for spec in specs:
        if spec.output:
            with open(spec.path, "wb") as file:
                file.truncate(spec.size_bytes)
    built = executor.submit_timed(COMPILE_TIMEOUT, compile_program, program.text, program.machine).result()
    plain = [spec.to_json() for spec in specs]
    running = executor.submit_timed(
        RUN_TIMEOUT, compute_reference, built["object"], program.entry, plain, threads, target.num_cores
    )
    try:
        running.result()
    except MeasureTimeoutError as error:
        raise TooLongError(
            f"computing the right answer of {task.workload_key} takes a plain program more than "
            f"{RUN_TIMEOUT:g} s; tune it for smaller sizes"
        ) from error


def iteration_points(dag: ComputeDAG) -> int:
    """Count the points of all iteration spaces, which is what the interpreter's time goes with."""
    total = 0
    for op in dag.ops:
        if isinstance(op, ComputeOp):
            axes = (*op.axis, *op.reduce_axis)
            total += math.prod(int_value(axis.extent) or 1 for axis in axes)
    return total


def trivial_state(dag: ComputeDAG) -> State:
    """Return a plain schedule: elementwise stages inlined, outer loops in parallel, inner ones vectorised.

    Stages that others read at several places are stored: eight filters of seven taps one after another would
    be one of six million.
    """
    state = State.initial(dag)
    for op in dag.ops:
        stage = state.stage_id(op)
        if (
            isinstance(op, ComputeOp)
            and not op.reduce_axis
            and not state.is_output(stage)
            and state.access.is_strictly_inlineable(op)
            and not state.access.is_read_around(op)
        ):
            state = state.compute_inline(stage)
    for stage, here in enumerate(state.stages):
        spatial = [loop for loop in here.iterators if loop.kind is IteratorKind.SPATIAL]
        if not here.is_placeholder and here.compute_at == "root" and spatial:
            state = _spread(state, stage, spatial)
    return state


def _spread(state: State, stage: int, spatial: Sequence[Iterator]) -> State:
    """Vectorise the innermost of a stage's spatial loops, and run the outermost in parallel."""
    last, inner, outer = len(spatial) - 1, spatial[-1].extent, spatial[0].extent
    if last and isinstance(inner, int) and inner % _VECTOR == 0 and inner > _VECTOR:
        count = len(state.stages[stage].iterators) + 1
        lanes = last + 1
        state = state.split(stage, last, [_VECTOR])
        state = state.reorder(stage, [*(at for at in range(count) if at != lanes), lanes])
        state = state.annotate(stage, count - 1, Annotation.VECTORIZE)
    if last and isinstance(outer, int) and outer < 8:
        state = state.fuse(stage, [0, 1])
    return state.annotate(stage, 0, Annotation.PARALLEL)
