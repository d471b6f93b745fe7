"""`SearchTask`: a task that can be tuned, and whose best program can be fetched from a log."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ansor.errors import DefinitionError
from ansor.runtime.build import lower
from ansor.runtime.device.build import package_nest
from ansor.runtime.device.door import KINDS
from ansor.runtime.device.hardware import hardware_params as hardware_of
from ansor.runtime.device.hardware import settled_target
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.layout_rewrite import LayoutRewrite, layout_free_inputs
from ansor.schedule.manual import Schedule
from ansor.schedule.source import schedule_code
from ansor.schedule.state import State
from ansor.task.alternatives import Call, make_alternatives, takes_arguments_of
from ansor.task.hardware import HardwareParams
from ansor.task.layout import resolved_option, rewrite_layouts
from ansor.task.registry import make_workload_key, register_workload_tensors, workload_key_to_tensors
from ansor.task.target import Target
from ansor.task.task import LayoutRewriteOption, Task
from costmodel import DraftedModel, XGBModel
from measure import FoundRecord, find_best_record
from measure.layouts import layout_option
from measure.records.log import check_rereadable
from measure.records.targets import runs_on
from search.alternatives import sketch_policy
from search.details import make_details
from search.no_record import why_no_record
from search.options import TuningOptions, open_measurer
from search.policy import SearchPolicy, check_policy
from search.result import TuningResult
from search.session import TuningSession
from search.starts import first_programs, known_results
from search.task_inputs import resolve_inputs
from search.text import target_terms
from search.titles import title_of_key
from sketches.templates.function import Template

if TYPE_CHECKING:
    from ansor.te.tensor import Tensor

_note = logging.getLogger(__name__)


class SearchTask(Task):
    """
    One computation to be tuned for one target.

    Parameters
    ----------
    func
        A workload: a registered function or its name. Give this with `args`, or `workload_key`, or
        `compute_dag`.
    args
        The function's arguments.
    compute_dag
        The computation itself; a `ComputeDAG`, or a list of input and output tensors.
    workload_key
        Key of the records; with `compute_dag`, the key they shall carry (default: one made of its structure).
    target, target_host
        What to tune for; default this machine's CPU. A CUDA target that names no architecture gets that of
        the device, if there is one.
    hardware_params
        Default: what is known of the target, and for OpenCL and CUDA of the device, if there is one.
    layout_rewrite_option
        What becomes of inputs that an operation lists in `layout_free_placeholders` (`LayoutRewriteOption`):
        0, the default on every target, nothing; 1, each program first copies them into the layout that suits
        its loops, and the copy counts; 2, the program takes them in that layout, and the caller brings the
        data into it once (see `apply_best`). Results under different options are not compared.
    task_inputs
        Real data for inputs that random numbers do not suit (index tensors): arrays by the name of the input
        tensor. Other inputs are filled at random.
    task_inputs_overwrite
        Replace data supplied earlier for the same workload and input.
    desc
        Shown instead of the workload key.
    alternatives
        Other algorithms for the same operation, as registered workloads with their arguments. They are tuned
        as one task, whose best program is that of the fastest algorithm. Speeds are in the FLOPs of `func`,
        and its answers are the right ones (`ansor.task.alternatives`).

    Raises
    ------
    DefinitionError
        If the workload is not given in exactly one way, is not registered or wrongly defined, if an input's
        data does not fit, or another argument is of the wrong kind.
    """

    def __init__(
        self,
        func: Callable[..., Any] | str | None = None,
        args: Sequence[Any] | None = None,
        compute_dag: ComputeDAG | Sequence[Tensor] | None = None,
        workload_key: str | None = None,
        target: Target | str | None = None,
        target_host: Target | str | None = None,
        hardware_params: HardwareParams | None = None,
        layout_rewrite_option: LayoutRewriteOption | int | None = None,
        task_inputs: Mapping[str, np.ndarray[Any, Any]] | Sequence[str] | None = None,
        task_inputs_overwrite: bool = False,
        desc: str = "",
        alternatives: Sequence[Call] = (),
    ) -> None:
        if not isinstance(workload_key, (str, type(None))):
            raise DefinitionError(f"SearchTask(workload_key={workload_key!r}): it must be a string")
        if not isinstance(hardware_params, (HardwareParams, type(None))):
            raise DefinitionError(
                f"SearchTask(hardware_params={hardware_params!r}): it must be ansor.HardwareParams(...), or "
                "None for what is known of the target"
            )
        key, dag = _resolve_workload(func, args, compute_dag, workload_key)
        resolved = settled_target(Target("llvm" if target is None else target))
        super().__init__(
            dag=dag,
            workload_key=key,
            target=resolved,
            target_host=None if target_host is None else Target(target_host),
            hardware_params=hardware_params or hardware_of(resolved),
            layout_rewrite_option=resolved_option(layout_rewrite_option),
            input_names=resolve_inputs(dag, key, task_inputs, task_inputs_overwrite),
            desc=desc,
        )
        object.__setattr__(self, "alternatives", make_alternatives(self, alternatives))

    def tune(
        self,
        tuning_options: TuningOptions,
        search_policy: SearchPolicy | None = None,
        adaptive_training: bool = False,
    ) -> TuningResult:
        """
        Search for a fast program.

        Results that a `RecordToFile` log of the options already holds, and those that the policy preloads,
        are known from the start: they are not measured again and do not count as trials.

        Parameters
        ----------
        tuning_options
            How much to measure, and with what.
        search_policy
            Default: a `SketchPolicy` with a `DraftedModel`; with alternatives, an `AlternativesPolicy`.
            Another policy searches the task's own computation alone.
        adaptive_training
            Passed on to the default policy's model.

        Returns
        -------
        TuningResult
            Best program, counts, and why the run ended; also after Ctrl-C.

        Raises
        ------
        LogFormatError
            If a log to resume from has a line that cannot be understood.
        LogWriteError
            If a log cannot be written.
        TargetError, RunError
            If this machine cannot run programs for the task's target, or has no room for its arguments.
        """
        if not isinstance(tuning_options, TuningOptions):
            raise DefinitionError(
                f"SearchTask.tune({tuning_options!r}): it takes ansor.TuningOptions(num_measure_trials=...)"
            )
        if search_policy is None:
            seed = tuning_options.seed
            model = DraftedModel(learned=XGBModel(adaptive_training=adaptive_training, seed=seed))
            search_policy = sketch_policy(self, model, seed=seed)
        policy = search_policy
        check_policy("SearchTask.tune(search_policy)", policy)
        other = policy.task
        if other is not self and other.key != self.key:
            raise DefinitionError(
                f"the search policy is for {_described(other)}, not for {_described(self)}; make one with "
                "this task"
            )
        with open_measurer(tuning_options) as measurer:
            for algorithm in policy.algorithms:
                measurer.runner.check_task(algorithm)
            session = TuningSession(
                policy,
                measurer,
                earlier=known_results([policy], tuning_options.measure_callbacks)[0],
                seeds=first_programs(policy),
                round_size=tuning_options.num_measures_per_round,
                early_stopping=tuning_options.early_stopping,
                max_failures_in_a_row=tuning_options.max_failures_in_a_row,
                num_finalists=tuning_options.num_finalists,
                progress=make_details(tuning_options.verbose),
            )
            return session.run(tuning_options.num_measure_trials)

    def best_state(
        self, log_file: str | os.PathLike[str], include_compatible: bool = False
    ) -> tuple[State, float]:
        """
        Fastest program of this task in a log, as it was searched, and its mean run time [s], as measured.

        Records under another layout option count only if there are none under this task's, and so do those
        for another target or with another number of cores; a warning is logged then.

        Raises
        ------
        DefinitionError
            If no successful record of the log fits; the message says what the log holds instead. Or if the
            log is a pipe.
        FileNotFoundError
            If there is no such log.
        """
        algorithm, found = self._fetched(log_file, include_compatible, self.layout_rewrite_option)
        return found.input.replay(algorithm.compute_dag), found.result.mean_cost

    def _fetched(
        self, log_file: str | os.PathLike[str], include_compatible: bool, option: LayoutRewriteOption
    ) -> tuple[Task, FoundRecord]:
        """Find the best record, and tell which it is and whether it was measured under other conditions."""
        algorithm, found = self._best_record(log_file, include_compatible, option)
        title, dag = title_of_key(algorithm.workload_key), algorithm.compute_dag
        _note.info("the best of %s is %s", title, found)
        measured = layout_option(found.input, dag)
        asked = int(option) if layout_free_inputs(dag) else measured
        if measured != asked:
            _note.warning(
                "%s has no record of %s under layout_rewrite_option %d; the best under another is taken: %s "
                "was measured under %d, and its time is not that of this program",
                os.fspath(log_file),
                title,
                asked,
                found,
                measured,
            )
        if found.foreign:
            _note.warning(
                "the best record of %s for %s is %s: its time is not that of this program here",
                title,
                target_terms(str(self.target), runs_on(self)),
                found,
            )
        return algorithm, found

    def best_record(
        self,
        log_file: str | os.PathLike[str],
        include_compatible: bool = False,
        layout_rewrite_option: LayoutRewriteOption | int | None = None,
    ) -> FoundRecord:
        """
        Find the record of the fastest program: which line of the log it is, and which trial of this task.

        Parameters and errors are those of `apply_best`.
        """
        return self.best_algorithm(log_file, include_compatible, layout_rewrite_option)[1]

    def best_algorithm(
        self,
        log_file: str | os.PathLike[str],
        include_compatible: bool = False,
        layout_rewrite_option: LayoutRewriteOption | int | None = None,
    ) -> tuple[Task, FoundRecord]:
        """
        Find which of `algorithms` has the fastest program, and its record.

        Parameters and errors are those of `apply_best`.
        """
        given = layout_rewrite_option
        option = self.layout_rewrite_option if given is None else resolved_option(given)
        return self._best_record(log_file, include_compatible, option)

    def _best_record(
        self, log_file: str | os.PathLike[str], include_compatible: bool, option: LayoutRewriteOption
    ) -> tuple[Task, FoundRecord]:
        """Find the best record of all algorithms: of this size before others, then of the wanted option."""
        check_rereadable(log_file)
        algorithms = [one for one in self.algorithms if takes_arguments_of(one, option)]
        sizes = (False, True) if include_compatible else (False,)
        for other_sizes, wanted in product(sizes, (int(option), None)):
            pairs = [
                (one, found)
                for one in algorithms
                if (
                    found := find_best_record(
                        log_file,
                        one.workload_key,
                        self.target,
                        include_compatible=other_sizes,
                        dag=one.compute_dag,
                        layout_rewrite_option=wanted if layout_free_inputs(one.compute_dag) else None,
                        machine=runs_on(self),
                    )
                )
                is not None
            ]
            if pairs:
                return min(pairs, key=lambda pair: pair[1].rank)
        raise DefinitionError(why_no_record(self, algorithms, log_file))

    def apply_best(
        self,
        log_file: str | os.PathLike[str],
        include_compatible: bool = False,
        layout_rewrite_option: LayoutRewriteOption | int | None = None,
    ) -> tuple[Schedule, list[Tensor]]:
        """
        Fetch the fastest program of this task from a log.

        Parameters
        ----------
        log_file
            The log.
        include_compatible
            Where there is none of this size, take one of a size of which this task's is a whole multiple.
        layout_rewrite_option
            Default: the task's. Records under this option are preferred.

        Returns
        -------
        tuple
            A schedule and the arguments, as `ansor.lower` and `ansor.build` take them. With option 2 the
            layout-free inputs among them have new shapes, and the caller has to bring the data into the new
            layout: `ansor.transform_layout(array, argument)`. Logged at level INFO: the line that was taken
            (`best_record` gives it), which inputs stay as they are, and why (`ansor.rewrite_layouts`); a
            warning if the record was measured under another option, for another target or with another number
            of cores.

        Raises
        ------
        DefinitionError
            If no successful record of the log fits, or the log is a pipe.
        """
        rewrite = self._rewritten(log_file, include_compatible, layout_rewrite_option)
        return Schedule(rewrite.state), rewrite.tensors

    def _rewritten(
        self,
        log_file: str | os.PathLike[str],
        include_compatible: bool,
        layout_rewrite_option: LayoutRewriteOption | int | None,
    ) -> LayoutRewrite:
        given = layout_rewrite_option
        option = self.layout_rewrite_option if given is None else resolved_option(given)
        algorithm, found = self._fetched(log_file, include_compatible, option)
        rewrite = rewrite_layouts(found.input.replay(algorithm.compute_dag), option)
        for name, reason in rewrite.kept.items():
            _note.info("the layout of input %r is not rewritten: %s", name, reason)
        return rewrite

    def print_best(
        self,
        log_file: str | os.PathLike[str],
        print_mode: Literal["schedule", "cuda", "opencl"] = "schedule",
        layout_rewrite_option: LayoutRewriteOption | int | None = None,
    ) -> str:
        """
        Python code of the fastest program of this task in a log; executed, it rebuilds that very program.

        Parameters
        ----------
        print_mode
            "schedule"; or, for a target of either kind, "cuda" or "opencl": the source of its kernels in that
            language, for which it is lowered anew.
        layout_rewrite_option
            As in `apply_best`; the code does what the option asks.

        Raises
        ------
        DefinitionError
            If no successful record fits, or the mode does not suit the target.
        """
        if print_mode not in ("schedule", *KINDS):
            raise DefinitionError(
                f"print_mode is {print_mode!r}; it must be 'schedule', or 'cuda' or 'opencl' for a target of "
                "either kind"
            )
        if print_mode != "schedule" and self.target.kind not in KINDS:
            raise DefinitionError(
                f"print_mode={print_mode!r} needs a cuda or opencl target, and this task's is {self.target}"
            )
        rewrite = self._rewritten(log_file, False, layout_rewrite_option)
        if print_mode == "schedule":
            return schedule_code(rewrite.state)
        target = self.target if print_mode == self.target.kind else Target(print_mode)
        nest = lower(rewrite.state, rewrite.tensors, target=target)
        return package_nest(nest, target, nest.name).source

    def __repr__(self) -> str:
        return f"SearchTask({title_of_key(self.workload_key)}, {str(self.target)!r})"

    def with_dag(self, dag: ComputeDAG) -> Task:
        """Make a plain task that differs in its computation."""
        return Task(
            dag,
            self.workload_key,
            self.target,
            self.target_host,
            self.hardware_params,
            self.layout_rewrite_option,
            self.input_names,
            self.desc,
        )


def _described(task: Task) -> str:
    option = task.layout_rewrite_option
    return f"{task.workload_key} on {task.target}" + (
        f" with layout_rewrite_option {option:d}" if option else ""
    )


def _resolve_workload(
    func: Callable[..., Any] | str | None,
    args: Sequence[Any] | None,
    compute_dag: ComputeDAG | Sequence[Tensor] | None,
    workload_key: str | None,
) -> tuple[str, ComputeDAG]:
    """Key and computation of a task, from whichever way its author chose."""
    if func is not None:
        if compute_dag is not None or workload_key is not None:
            raise DefinitionError(
                "a SearchTask takes func and args, or workload_key, or compute_dag, not several"
            )
        if isinstance(func, Template):
            raise DefinitionError(
                f"SearchTask(func={func!r}): a template says how to compute, too; make its task with "
                "ansor.TemplateTask(template, args)"
            )
        if isinstance(args, (str, bytes)):
            raise DefinitionError(
                f"SearchTask(args={args!r}): it must be the list of the function's arguments, such as "
                f"args=({args!r},)"
            )
        key = make_workload_key(func, () if args is None else args)
        return key, ComputeDAG(workload_key_to_tensors(key))
    if args is not None:
        raise DefinitionError("SearchTask(args=...) needs func=..., the workload function that takes them")
    if compute_dag is not None:
        dag = compute_dag if isinstance(compute_dag, ComputeDAG) else ComputeDAG(compute_dag)
        key = dag.workload_key() if workload_key is None else workload_key
        register_workload_tensors(key, dag.tensors, override=workload_key is None)
        return key, dag
    if workload_key is not None:
        return workload_key, ComputeDAG(workload_key_to_tensors(workload_key))
    raise DefinitionError("a SearchTask needs func and args, or workload_key, or compute_dag")
