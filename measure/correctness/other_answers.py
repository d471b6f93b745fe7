"""What else is right than the answer as it was computed: sums in another order, and single roundings.

An answer is computed a second time, with sums in another order or in more digits (`sums`), and beside
it how far rounding may move each element (`rounding`). What lies between the two answers is right
then, and what is off by no more than that.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from ansor.dtypes import is_float
from ansor.errors import DefinitionError, LoweringError
from ansor.schedule.dag import ComputeDAG
from ansor.task.task import Task
from measure.correctness.argument_files import interpret, remove_files, with_scale
from measure.correctness.plain import FAILURES, TimedExecutor, run_plain
from measure.correctness.rounding import rounding_errors
from measure.correctness.sums import summed_dtypes, widened
from measure.workers.arguments import ArgumentSpec
from measure.workers.check import Tolerance, loosened, mismatch

Specs = tuple[ArgumentSpec, ...]

MOST_UNCHECKED: Final = 0.5
"""The share of an output of which programs may give anything before a warning says what that means."""
_note = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OtherAnswers:
    """
    How to compute what else the outputs of a task may be.

    Parameters
    ----------
    compiled
        Whether its answer was computed by a compiled program.
    executor, threads
        Where compiled programs may run (None: the interpreter does it), and on how many threads.
    make_room
        Called before files of so many bytes are written.
    """

    task: Task
    compiled: bool
    executor: TimedExecutor | None
    threads: int | None
    make_room: Callable[[int], None]

    def added_to(self, specs: Specs) -> Specs:
        """The arguments, with what else outputs may be where the order of sums or single roundings matter."""
        return self._with_errors(self._with_other_sums(specs))

    def _with_errors(self, specs: Specs) -> Specs:
        """The arguments, with the errors of outputs where these allow far more than the tolerance."""
        dag = self.task.compute_dag
        errors = rounding_errors(dag)
        if not errors:
            return specs
        made = {
            tensor: ArgumentSpec(
                tensor.name, "float32", spec.shape, True, f"{spec.path}.errors", Tolerance(0.0)
            )
            for tensor, spec in zip(dag.tensors, specs, strict=True)
            if tensor in errors
        }
        self.make_room(sum(one.size_bytes for one in made.values()))
        graph = ComputeDAG([*dag.inputs, *(errors[tensor] for tensor in made)])
        wanted = (*(spec for spec in specs if not spec.output), *made.values())
        try:
            if self.compiled and self.executor is not None:
                run_plain(self.task, graph, wanted, self.executor, self.threads)
            else:
                interpret(graph, graph, wanted)
        except (*FAILURES, DefinitionError, LoweringError, OSError) as error:
            _note.warning("the rounding errors of %s are not computed: %s", self.task.workload_key, error)
            remove_files(made.values())
            return specs
        settled = list(specs)
        for position, (tensor, spec) in enumerate(zip(dag.tensors, specs, strict=True)):
            if tensor not in made:
                continue
            own, tolerance = made[tensor], with_scale(spec, tensor).tolerance
            more, anything = loosened(spec.map(), own.map(), tolerance)
            if more:
                settled[position] = replace(spec, errors=own.path)
            else:
                remove_files([own])
            if anything > MOST_UNCHECKED * math.prod(spec.shape):
                _note.warning(
                    "rounding may make anything of %.0f %% of output %r of %s, so programs are hardly "
                    "checked there; give the task inputs for which it does not (task_inputs=...)",
                    100 * anything / math.prod(spec.shape),
                    tensor.name,
                    self.task.workload_key,
                )
        return tuple(settled)

    def _with_other_sums(self, specs: Specs) -> Specs:
        """The arguments, with what outputs may be if sums are added up otherwise where that differs."""
        dag = self.task.compute_dag
        summed = summed_dtypes(dag)
        if not summed:
            return specs
        others = tuple(replace(spec, path=f"{spec.path}.other") if spec.output else spec for spec in specs)
        self.make_room(sum(spec.size_bytes for spec in specs if spec.output))
        try:
            if self.compiled and self.executor is not None:
                run_plain(self.task, widened(dag), others, self.executor, self.threads)
            elif summed & {"float16", "bfloat16"}:
                interpret(dag, widened(dag), others)
            elif self.executor is not None:  # The interpreter keeps sums of float32 in float64.
                run_plain(self.task, dag, others, self.executor, self.threads)
            else:
                return specs
        except (*FAILURES, DefinitionError, LoweringError, OSError) as error:
            _note.warning("the answer of %s is not computed a second time: %s", self.task.workload_key, error)
            remove_files(spec for spec in others if spec.output)
            return specs
        settled = list(specs)
        for position, (tensor, spec, other) in enumerate(zip(dag.tensors, specs, others, strict=True)):
            if not spec.output:
                continue
            tolerance = with_scale(spec, tensor).tolerance
            if is_float(spec.dtype) and mismatch(other.map(), spec.map(), spec.dtype, tolerance):
                settled[position] = replace(spec, other=other.path)
            else:
                remove_files([other])
        return tuple(settled)
