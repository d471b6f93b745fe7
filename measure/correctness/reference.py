"""What the right answer is: inputs and expected outputs of a task, computed once, kept in files.

Small tasks go through the numpy interpreter of the unscheduled graph. Large ones would take it minutes, so
they are compiled to the plain program (`plain`), run in a worker on memory-mapped files, and the
result is checked against the interpreter at random points (`spot_checks`). Should compiling or
running that program fail, the interpreter does the whole work after all, block by block; what the program
cannot do in time the interpreter could not either, and is refused.

If the answer is off at those points, or some program is found wrong, it is asked what else is right
(`other_answers`).

If the result is not finite in many places although the inputs are (square roots of negative numbers), the
inputs are made anew without signs.
"""

from __future__ import annotations

import logging
import math
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ansor.dtypes import is_float, to_numpy
from ansor.errors import LoweringError, RunError
from ansor.schedule.dag import ComputeDAG
from ansor.task.inputs import get_task_input_buffer
from ansor.task.task import Task
from ansor.te.preparation import prepare, source_of
from ansor.te.tensor import PlaceholderOp, Tensor
from measure.correctness.argument_files import interpret, remove_files, with_scale, write_argument
from measure.correctness.fill import Style, constant_shape, fill_inputs
from measure.correctness.other_answers import MOST_UNCHECKED, OtherAnswers
from measure.correctness.plain import FAILURES, TimedExecutor, TooLongError, iteration_points, run_plain
from measure.correctness.rounding import rounding_errors
from measure.correctness.spot_checks import contradiction
from measure.correctness.tolerance import alternative_tolerance, output_tolerance
from measure.scratch import ScratchFolder
from measure.workers.arguments import ArgumentSpec
from measure.workers.check import Tolerance

Array = npt.NDArray[Any]
INTERPRETED_POINTS: Final = 1 << 21
"""Tasks of at most so many iterations, all loops together, are interpreted, in a fraction of a second."""
CAPACITY_BYTES: Final = 1 << 30
"""Room for the data of, say, all layers of a network at once: a scheduler measures them in turn."""
_PREPARED: Final = "-prepared.bin"
_note = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reference:
    """Inputs and expected outputs of a task in calling order.

    `compiled` says how they were computed, and `settled` whether it is known what else outputs may be.
    """

    arguments: tuple[ArgumentSpec, ...]
    compiled: bool
    settled: bool = False

    def to_json(
        self, digits: Mapping[int, tuple[tuple[int, int, int], ...]] | None = None
    ) -> list[dict[str, Any]]:
        """The arguments for a worker; `digits` are layouts that a program wants inputs in, by position."""
        wanted = digits or {}
        return [replace(a, digits=wanted.get(at)).to_json() for at, a in enumerate(self.arguments)]


class ReferenceStore:
    """References of the tasks measured last, as many as there is room for.

    Their files are in a directory that disappears with the store.

    Parameters
    ----------
    seed
        Seed of the random inputs.
    capacity
        Room for the files that are kept [bytes]; those of one task always have room. The files of a task's
        alternatives go with its own.
    aligned
        Inputs are to begin on cache lines when programs are measured.
    """

    def __init__(self, seed: int = 0, capacity: int = CAPACITY_BYTES, aligned: bool = False) -> None:
        self._seed = seed
        self._aligned = aligned
        self._capacity = capacity
        self._known: OrderedDict[tuple[object, ...], Reference] = OrderedDict()
        self._given: dict[tuple[object, ...], Mapping[str, Array]] = {}
        """What each was made of: while the arrays are kept, no other array has their identity."""
        self._alternatives: dict[tuple[str, str], tuple[Reference, Reference]] = {}
        """References of alternatives by workload key and structure, behind those that they come from."""
        folder = ScratchFolder()
        self._folder = folder.path
        self._count = 0
        self.close = weakref.finalize(self, folder.remove)

    def get(self, task: Task, executor: TimedExecutor | None = None, threads: int | None = None) -> Reference:
        """Return the reference of a task, computing it the first time.

        Parameters
        ----------
        executor
            Where compiled programs may be built and run; None: use the interpreter always.
        threads
            Threads for them; None for the worker's default.

        Raises
        ------
        DefinitionError
            If the task's inputs cannot be made up, or its shapes are symbolic.
        RunError
            If the computation itself is faulty: it reads outside a tensor; or if memory does not suffice
            for it, or time.
        LoweringError
            If the compiled reference contradicts the interpreter.
        """
        if task.direct is not None:
            return self._of_alternative(task, self.get(task.direct, executor, threads))
        dag, given = task.compute_dag, _inputs_given(task)
        key = _key(task, given)
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        self._make_room(sum(map(_size_bytes, dag.tensors)))
        try:
            reference = self._make(task, dag, given, executor, threads)
        except MemoryError as error:
            raise RunError(
                f"there is not enough memory to compute the right answer of {task.workload_key}: {error}; "
                "tune it for smaller sizes, or on a larger machine"
            ) from error
        self._known[key], self._given[key] = reference, given
        return reference

    def reconsider(
        self, task: Task, executor: TimedExecutor | None = None, threads: int | None = None
    ) -> bool:
        """Whether more is right than was thought: asked when a program is found wrong, answered once a task.

        Parameters
        ----------
        task
            One whose reference was asked for.
        executor, threads
            As in `get`.
        """
        if task.direct is not None:
            return self.reconsider(task.direct, executor, threads)
        key = _key(task, _inputs_given(task))
        known = self._known.get(key)
        if known is None or known.settled:
            return False
        specs = self._others(task, known.compiled, executor, threads).added_to(known.arguments)
        self._known[key] = Reference(specs, known.compiled, settled=True)
        self._forget_alternatives(known)
        return specs != known.arguments

    def make_folder(self, name: str) -> Path:
        """Make a directory of this name, which disappears with the store."""
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        return folder

    def _make_room(self, wanted: int, kept: int = 0) -> None:
        """Forget tasks until so many bytes fit in; never the `kept` ones asked for last."""
        while len(self._known) > kept and self._bytes() + wanted > self._capacity:
            self._forget_oldest()

    def _bytes(self) -> int:
        """Size of all files [bytes]; an alternative shares most of its own with the task it is of."""
        alternatives = (made for _, made in self._alternatives.values())
        known = (*self._known.values(), *alternatives)
        specs = (spec for one in known for spec in one.arguments)
        return sum({path: spec.size_bytes for spec in specs for path in spec.files}.values())

    def _forget_oldest(self) -> None:
        """Drop the reference that was asked for longest ago, those that come from it, and their files."""
        key, old = self._known.popitem(last=False)
        del self._given[key]
        remove_files(old.arguments)
        self._forget_alternatives(old)

    def _forget_alternatives(self, old: Reference) -> None:
        """Drop the references that come from one, and the files that they have of their own."""
        for name, (direct, made) in list(self._alternatives.items()):
            if direct is old:
                del self._alternatives[name]
                _remove_prepared(made)

    def _of_alternative(self, task: Task, direct: Reference) -> Reference:
        """What programs of an alternative take and must give: the direct one's data, inputs in their form."""
        dag = task.compute_dag
        key = (task.workload_key, dag.structure_hash)
        known = self._alternatives.get(key)
        if known is not None and known[0] is direct:
            return known[1]
        if known is not None:
            _remove_prepared(known[1])
        specs: list[ArgumentSpec] = []
        for position, (spec, tensor) in enumerate(zip(direct.arguments, dag.tensors, strict=True)):
            if spec.output:
                spec = replace(
                    spec,
                    name=tensor.name,
                    tolerance=alternative_tolerance(spec.tolerance, tensor, task.target),
                )
            elif source_of(tensor) is not tensor:
                self._count += 1
                path = str(self._folder / f"{self._count}-{position}{_PREPARED}")
                data = prepare(spec.map(), tensor)
                spec = replace(spec, shape=data.shape, path=path, aligned=True)
                self._make_room(spec.size_bytes, kept=1)
                write_argument(spec, data)
            specs.append(spec)
        made = Reference(tuple(specs), direct.compiled)
        self._alternatives[key] = (direct, made)
        return made

    def _make(
        self,
        task: Task,
        dag: ComputeDAG,
        given: Mapping[str, Array],
        executor: TimedExecutor | None,
        threads: int | None,
    ) -> Reference:
        self._count += 1
        made: list[tuple[float, Reference]] = []
        styles: tuple[Style, ...] = ("signed", "positive")
        for style in styles:
            arrays = fill_inputs(dag.inputs, dag.ops, given, self._seed, style)
            specs = [self._spec(task, dag, tensor, style) for tensor in dag.tensors]
            for spec, array in zip((s for s in specs if not s.output), arrays, strict=True):
                write_argument(spec, array)
            try:
                reference = self._compute(task, dag, tuple(specs), executor, threads)
            except BaseException:
                remove_files(specs)
                _remove_all(made)
                raise
            made.append((_worst_share_of_nonfinite(reference.arguments), reference))
            if made[-1][0] <= 0.01:
                break
        bad, reference = best = min(made, key=itemgetter(0))
        _remove_all([one for one in made if one is not best])
        if bad > MOST_UNCHECKED:
            _note.warning(
                "%.0f %% of an output of %s are NaN or infinite for random inputs, so programs are hardly "
                "checked there; give the task inputs for which they are not (task_inputs=...)",
                100 * bad,
                task.workload_key,
            )
        scaled = [
            with_scale(spec, tensor) for spec, tensor in zip(reference.arguments, dag.tensors, strict=True)
        ]
        return replace(reference, arguments=tuple(scaled))

    def _spec(self, task: Task, dag: ComputeDAG, tensor: Tensor, style: str) -> ArgumentSpec:
        output = not isinstance(tensor.op, PlaceholderOp)
        path = self._folder / f"{self._count}-{style}-{dag.tensors.index(tensor)}.bin"
        tolerance = output_tolerance(tensor, task.target) if output else Tolerance(0.0)
        shape, aligned = constant_shape(tensor), self._aligned or source_of(tensor) is not tensor
        return ArgumentSpec(tensor.name, tensor.dtype, shape, output, str(path), tolerance, aligned=aligned)

    def _compute(
        self,
        task: Task,
        dag: ComputeDAG,
        specs: tuple[ArgumentSpec, ...],
        executor: TimedExecutor | None,
        threads: int | None,
    ) -> Reference:
        """Compute the expected outputs, by a compiled program if that is worth it and succeeds."""
        if executor is not None and iteration_points(dag) > INTERPRETED_POINTS:
            try:
                run_plain(task, dag, specs, executor, threads)
            except TooLongError:
                raise
            except FAILURES as error:
                _note.warning("the reference of %s is interpreted: %s", task.workload_key, error)
            else:
                wrong = contradiction(dag, specs, self._seed)
                if wrong is None:
                    return Reference(specs, compiled=True)
                errors = rounding_errors(dag)
                if contradiction(dag, specs, self._seed, errors, stepwise=True) is not None:
                    raise LoweringError(wrong)
                settled = self._others(task, True, executor, threads).added_to(specs)
                exact = [replace(spec, path=spec.other or spec.path) for spec in settled]
                if contradiction(dag, exact, self._seed, errors) is not None:
                    remove_files(settled)
                    raise LoweringError(wrong)
                return Reference(settled, compiled=True, settled=True)
        interpret(dag, dag, specs)
        return Reference(specs, compiled=False)

    def _others(
        self, task: Task, compiled: bool, executor: TimedExecutor | None, threads: int | None
    ) -> OtherAnswers:
        return OtherAnswers(task, compiled, executor, threads, partial(self._make_room, kept=1))


def _inputs_given(task: Task) -> dict[str, Array]:
    """The arrays of inputs that the user gave, by name."""
    return {
        tensor.name: data
        for tensor in task.compute_dag.inputs
        if tensor.name in task.input_names
        and (data := get_task_input_buffer(task.workload_key, tensor.name)) is not None
    }


def _key(task: Task, given: Mapping[str, Array]) -> tuple[object, ...]:
    """What a reference is found by."""
    supplied = tuple((name, id(data)) for name, data in given.items())
    return (task.workload_key, task.compute_dag.structure_hash, str(task.target), supplied)


def _size_bytes(tensor: Tensor) -> int:
    return math.prod(constant_shape(tensor)) * to_numpy(tensor.dtype).itemsize


def _remove_all(made: Iterable[tuple[float, Reference]]) -> None:
    for _, reference in made:
        remove_files(reference.arguments)


def _remove_prepared(alternative: Reference) -> None:
    """Remove what an alternative has of its own: the other files are those of the direct task."""
    remove_files([spec for spec in alternative.arguments if spec.path.endswith(_PREPARED)])


def _worst_share_of_nonfinite(specs: Sequence[ArgumentSpec]) -> float:
    """The largest share of NaN and infinity in a float output."""
    worst = 0.0
    for spec in specs:
        if spec.output and is_float(spec.dtype) and spec.size_bytes:
            flat = spec.map().reshape(-1)
            finite = sum(
                int(np.count_nonzero(np.isfinite(flat[start : start + (1 << 20)])))
                for start in range(0, flat.size, 1 << 20)
            )
            worst = max(worst, 1.0 - finite / flat.size)
    return worst
