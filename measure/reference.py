"""What the right answer is: inputs and expected outputs of a task, computed once, kept in files.

Small tasks go through the numpy interpreter of the unscheduled graph. Large ones would take it minutes, so
they are compiled to the plain program (`measure.plain`), run in a worker on memory-mapped files, and the
result is checked against the interpreter at random points, as many as some seconds allow. Should compiling or
running that program fail, the interpreter does the whole work after all, block by block; what the program
cannot do in time the interpreter could not either, and is refused.

If the answer is off at those points, or some program is found wrong, it is computed a second time with sums
in another order or in more digits (`measure.sums`), and beside it how far rounding may move each element
(`measure.rounding`). What lies between the two answers is right then, and what is off by no more than that.

If the result is not finite in many places although the inputs are (square roots of negative numbers), the
inputs are made anew without signs.
"""

from __future__ import annotations

import logging
import math
import time
import weakref
from collections import OrderedDict
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ansor.alignment import bytes_of
from ansor.dtypes import is_float, to_numpy
from ansor.errors import (
    BuildError,
    DefinitionError,
    LoweringError,
    MeasureTimeoutError,
    RunError,
    ScheduleError,
)
from ansor.schedule.dag import ComputeDAG
from ansor.task.inputs import get_task_input_buffer
from ansor.task.task import Task
from ansor.te.interp import evaluate, evaluate_points
from ansor.te.preparation import prepare, source_of
from ansor.te.tensor import PlaceholderOp, Tensor
from measure.arguments import ArgumentSpec
from measure.check import Tolerance, loosened, mismatch, rms
from measure.fill import Style, constant_shape, fill_inputs
from measure.masks import constants
from measure.plain import TimedExecutor, TooLongError, iteration_points, run_plain
from measure.process import RemoteError
from measure.rounding import rounding_errors
from measure.scratch import ScratchFolder
from measure.sums import summed_dtypes, widened
from measure.tolerance import alternative_tolerance, output_tolerance

Array = npt.NDArray[Any]
CHECKS: Final = ((1, math.inf), (15, 10.0), (4096, 0.25))
"""How many elements of an output are checked, one batch after the other, and what a batch may take [s].

As far as the one before it tells: it has fewer elements where each takes long.
"""
INTERPRETED_POINTS: Final = 1 << 21
"""Tasks of at most so many iterations, all loops together, are interpreted, in a fraction of a second."""
CAPACITY_BYTES: Final = 1 << 30
"""Room for the data of, say, all layers of a network at once: a scheduler measures them in turn."""
_MOST_NONFINITE: Final = 0.5
"""The share of an output that may be so before a warning says what that means."""
_PREPARED: Final = "-prepared.bin"
_FAILURES: Final = (BuildError, RunError, ScheduleError, MeasureTimeoutError, MemoryError, RemoteError)
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
        specs = self._settle(task, known, executor, threads)
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
        _remove(old.arguments)
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
                _write(spec, data)
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
                _write(spec, array)
            try:
                reference = self._compute(task, dag, tuple(specs), executor, threads)
            except BaseException:
                _remove(specs)
                _remove_all(made)
                raise
            made.append((_worst_share_of_nonfinite(reference.arguments), reference))
            if made[-1][0] <= 0.01:
                break
        bad, reference = best = min(made, key=itemgetter(0))
        _remove_all([one for one in made if one is not best])
        if bad > _MOST_NONFINITE:
            _note.warning(
                "%.0f %% of an output of %s are NaN or infinite for random inputs, so programs are hardly "
                "checked there; give the task inputs for which they are not (task_inputs=...)",
                100 * bad,
                task.workload_key,
            )
        scaled = [
            _with_scale(spec, tensor) for spec, tensor in zip(reference.arguments, dag.tensors, strict=True)
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
            except _FAILURES as error:
                _note.warning("the reference of %s is interpreted: %s", task.workload_key, error)
            else:
                made = Reference(specs, compiled=True)
                wrong = self._off_points(dag, specs)
                if wrong is None:
                    return made
                errors = rounding_errors(dag)
                if self._off_points(dag, specs, errors, stepwise=True) is not None:
                    raise LoweringError(wrong)
                settled = self._settle(task, made, executor, threads)
                exact = [replace(spec, path=spec.other or spec.path) for spec in settled]
                if self._off_points(dag, exact, errors) is not None:
                    _remove(settled)
                    raise LoweringError(wrong)
                return Reference(settled, compiled=True, settled=True)
        _interpret(dag, dag, specs)
        return Reference(specs, compiled=False)

    def _settle(
        self, task: Task, known: Reference, executor: TimedExecutor | None, threads: int | None
    ) -> tuple[ArgumentSpec, ...]:
        """The arguments, with what else outputs may be where the order of sums or single roundings matter."""
        for find in (self._with_other_sums, self._with_errors):
            known = replace(known, arguments=find(task, known, executor, threads))
        return known.arguments

    def _with_errors(
        self, task: Task, known: Reference, executor: TimedExecutor | None, threads: int | None
    ) -> tuple[ArgumentSpec, ...]:
        """The arguments, with the errors of outputs where these allow far more than the tolerance."""
        dag, specs = task.compute_dag, known.arguments
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
        self._make_room(sum(one.size_bytes for one in made.values()), kept=1)
        graph = ComputeDAG([*dag.inputs, *(errors[tensor] for tensor in made)])
        wanted = (*(spec for spec in specs if not spec.output), *made.values())
        try:
            if known.compiled and executor is not None:
                run_plain(task, graph, wanted, executor, threads)
            else:
                _interpret(graph, graph, wanted)
        except (*_FAILURES, DefinitionError, LoweringError, OSError) as error:
            _note.warning("the rounding errors of %s are not computed: %s", task.workload_key, error)
            _remove(made.values())
            return specs
        settled = list(specs)
        for position, (tensor, spec) in enumerate(zip(dag.tensors, specs, strict=True)):
            if tensor not in made:
                continue
            own, tolerance = made[tensor], _with_scale(spec, tensor).tolerance
            more, anything = loosened(spec.map(), own.map(), tolerance)
            if more:
                settled[position] = replace(spec, errors=own.path)
            else:
                _remove([own])
            if anything > _MOST_NONFINITE * math.prod(spec.shape):
                _note.warning(
                    "rounding may make anything of %.0f %% of output %r of %s, so programs are hardly "
                    "checked there; give the task inputs for which it does not (task_inputs=...)",
                    100 * anything / math.prod(spec.shape),
                    tensor.name,
                    task.workload_key,
                )
        return tuple(settled)

    def _with_other_sums(
        self, task: Task, known: Reference, executor: TimedExecutor | None, threads: int | None
    ) -> tuple[ArgumentSpec, ...]:
        """The arguments, with what outputs may be if sums are added up otherwise where that differs."""
        dag, specs = task.compute_dag, known.arguments
        summed = summed_dtypes(dag)
        if not summed:
            return specs
        others = tuple(replace(spec, path=f"{spec.path}.other") if spec.output else spec for spec in specs)
        self._make_room(sum(spec.size_bytes for spec in specs if spec.output), kept=1)
        try:
            if known.compiled and executor is not None:
                run_plain(task, widened(dag), others, executor, threads)
            elif summed & {"float16", "bfloat16"}:
                _interpret(dag, widened(dag), others)
            elif executor is not None:  # The interpreter keeps sums of float32 in float64.
                run_plain(task, dag, others, executor, threads)
            else:
                return specs
        except (*_FAILURES, DefinitionError, LoweringError, OSError) as error:
            _note.warning("the answer of %s is not computed a second time: %s", task.workload_key, error)
            _remove(spec for spec in others if spec.output)
            return specs
        settled = list(specs)
        for position, (tensor, spec, other) in enumerate(zip(dag.tensors, specs, others, strict=True)):
            if not spec.output:
                continue
            tolerance = _with_scale(spec, tensor).tolerance
            if is_float(spec.dtype) and mismatch(other.map(), spec.map(), spec.dtype, tolerance):
                settled[position] = replace(spec, other=other.path)
            else:
                _remove([other])
        return tuple(settled)

    def _off_points(
        self,
        dag: ComputeDAG,
        specs: Sequence[ArgumentSpec],
        errors: Mapping[Tensor, Tensor] | None = None,
        stepwise: bool = False,
    ) -> str | None:
        """Where compiled outputs contradict the interpreter; None if they do not at some random points.

        Elements may be off by what it makes of their `errors`, if given. With `stepwise` it rounds sums after
        each step, as the plain program does.
        """
        rng = np.random.default_rng(np.random.SeedSequence([self._seed, 1]))
        data = _inputs_of(dag, specs)
        for tensor, spec in zip(dag.tensors, specs, strict=True):
            if not spec.output or 0 in spec.shape:
                continue
            found, tolerance = spec.map(), _with_scale(spec, tensor).tolerance
            for points in _batches(rng, spec.shape):
                expected = evaluate_points(tensor, points, data, stepwise=stepwise)
                error = None if errors is None else errors.get(tensor)
                slack = None if error is None else evaluate_points(error, points, data, stepwise=False)
                found_there = found[tuple(points.T)]
                wrong = mismatch(found_there, expected, spec.dtype, tolerance, errors=slack)
                if wrong is not None:
                    return (
                        f"the reference program of output {tensor.name!r} contradicts the interpreter at "
                        f"{len(points)} elements that begin with {points[0].tolist()}: {wrong}"
                    )
        return None


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


def _inputs_of(dag: ComputeDAG, specs: Sequence[ArgumentSpec]) -> dict[Tensor, Array]:
    return {tensor: spec.map() for tensor, spec in zip(dag.tensors, specs, strict=True) if not spec.output}


def _interpret(dag: ComputeDAG, computed: ComputeDAG, specs: Sequence[ArgumentSpec]) -> None:
    """Write the outputs of a graph with the inputs of `dag`."""
    results = evaluate(computed.outputs, _inputs_of(dag, specs))
    for spec, tensor in zip(specs, computed.tensors, strict=True):
        if spec.output:
            _write(spec, results[tensor])


def _batches(rng: np.random.Generator, shape: Sequence[int]) -> Generator[npt.NDArray[np.int64]]:
    """Elements to check, shape `(n_points, dimensions)`, the last one first; how long each takes counts."""
    last, seconds_each = np.asarray(shape) - 1, 0.0
    for number, (most, seconds) in enumerate(CHECKS):
        count = min(most, int(seconds / seconds_each)) if seconds_each else most
        if not count:
            return
        points = rng.integers(0, last, (count, len(shape)), endpoint=True)
        if number < 2:
            points[0] = 0 if number else last
        started = time.monotonic()
        yield points
        seconds_each = (time.monotonic() - started) / count


def _size_bytes(tensor: Tensor) -> int:
    return math.prod(constant_shape(tensor)) * to_numpy(tensor.dtype).itemsize


def _remove(specs: Iterable[ArgumentSpec]) -> None:
    for spec in specs:
        for path in spec.files:
            Path(path).unlink(missing_ok=True)


def _remove_all(made: Iterable[tuple[float, Reference]]) -> None:
    for _, reference in made:
        _remove(reference.arguments)


def _remove_prepared(alternative: Reference) -> None:
    """Remove what an alternative has of its own: the other files are those of the direct task."""
    _remove([spec for spec in alternative.arguments if spec.path.endswith(_PREPARED)])


def _write(spec: ArgumentSpec, array: Array) -> None:
    """Write an argument's file; a `RunError` if there is no room for it."""
    try:
        with open(spec.path, "wb") as file:
            file.write(bytes_of(np.ascontiguousarray(array)).data)
    except OSError as error:
        raise RunError(
            f"cannot write {spec.size_bytes:,} bytes of {spec.name!r}, an argument to measure with, to "
            f"{spec.path!r}: {error.strerror}; make room there, or name another directory in the environment "
            "variable TMPDIR"
        ) from error


def _with_scale(spec: ArgumentSpec, tensor: Tensor) -> ArgumentSpec:
    """Complete the tolerance of an output by the scale of what is expected."""
    if not spec.output or not is_float(spec.dtype):
        return spec
    return replace(spec, tolerance=replace(spec.tolerance, scale=rms(spec.map(), constants(tensor))))


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
