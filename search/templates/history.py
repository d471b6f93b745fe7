"""What earlier logs are good for to templates: the best program, good starts at other sizes, short logs."""

from __future__ import annotations

import logging
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence

from ansor.checks import check_integer
from ansor.errors import DefinitionError, ScheduleError, TargetError
from ansor.schedule.state import State
from ansor.task.target import Target
from ansor.task.task import Task
from measure import MeasureInput, MeasureResult, load_measurements, same_target
from measure.records.distill import DistillSummary, distill_record_file
from measure.records.log import PathLike
from measure.records.settled import settled_records
from search.dispatch import ApplyHistoryBest, DispatchContext, Records, dispatch_context
from search.policy import InitSearchCallback
from search.skeleton import size_distance
from search.templates.task import TemplateTask, recorded_config
from search.titles import title_of_key
from search.warm_start import nothing_for, of_no_use
from sketches.templates.function import set_best_lookup

_note = logging.getLogger(__name__)


def apply_history_best(records: Records, target: Target | str | None = None) -> ApplyHistoryBest:
    """
    Make templates that are called take their best program from logs.

    ``with apply_history_best(log): s, args = my_template(512)``; see `ApplyHistoryBest`. A template that is
    called takes its arguments as they are: records without a rewritten layout come first, and of others the
    schedule is taken without the layouts; `TemplateTask.apply_best` applies those.

    Parameters
    ----------
    records
        A log, several, or (input, result) pairs.
    target
        What to find programs for. Default: this machine's CPU; if none of the records of a workload, in this
        context and those around it, is for that, the target that all of them are for.
    """
    return ApplyHistoryBest(records, target=target)


def _best_state(workload_key: str) -> State | None:
    """Ask the entered contexts for a workload; None without one, or on a miss, which is counted."""
    context = dispatch_context()
    return None if context is None else context.query(workload_key, _only_target(context, workload_key))


def _only_target(context: DispatchContext, workload_key: str) -> Target | None:
    """Target of all that is known of a workload, where none is named; None for this machine's CPU."""
    if any(one.target is not None for one in context.chain()):
        return None
    known = [text for one in context.chain() for text in one.targets_of(workload_key)]
    if not known or not all(same_target(known[0], text) for text in known) or same_target("llvm", known[0]):
        return None
    try:
        return Target.parse(known[0])
    except TargetError:  # A kind that is not known here.
        return None


set_best_lookup(_best_state)


def pick_best(in_file: PathLike | Sequence[PathLike], out_file: PathLike) -> DistillSummary:
    """Keep the best record of each workload and target of some logs; see `distill_record_file`."""
    return distill_record_file(in_file, out_file)


class TransferConfigs(InitSearchCallback):
    """
    Starts a template's search with the configurations that were best at other sizes.

    Records of the same size count, too, where they are not the task's own, but for another target.

    Parameters
    ----------
    filename
        A log of the same template.
    count
        Most programs to start with, those of the nearest sizes first, of one size the fastest first.

    Raises
    ------
    FileNotFoundError
        If there is no such log.
    """

    def __init__(self, filename: PathLike, count: int = 8) -> None:
        count = check_integer("load_history(count)", count, low=0)
        self.filename = os.fspath(filename)
        self.count = count
        load_measurements(self.filename)

    def candidates(self, task: Task) -> Sequence[State]:
        """Programs of `task` by the nearest configurations of its own space; a warning is logged without."""
        if not isinstance(task, TemplateTask):
            raise DefinitionError(
                f"configurations are carried over to the task of a template, not to {task.workload_key}; "
                "make it with ansor.TemplateTask"
            )
        records = settled_records(load_measurements(self.filename))
        found: dict[int, State] = {}
        for inp in self._nearest(task, records):
            if len(found) >= self.count:
                break
            config = recorded_config(task.template, inp)
            if config is None:
                continue
            mine = task.config_space.adapt(config)
            try:
                found.setdefault(mine.index, task.state_of(mine))
            except ScheduleError:
                continue
        if not found and self.count:
            why = Counter(
                of_no_use(task, *record) or _other_computation(task, record[0]) for record in records
            )
            _note.warning("%s", nothing_for(task, [self.filename], why))
        return list(found.values())

    def _nearest(
        self, task: TemplateTask, records: Sequence[tuple[MeasureInput, MeasureResult]]
    ) -> Iterator[MeasureInput]:
        """Give the records to start with, those of the nearest sizes first, of one size the best first."""
        by_key: dict[str, list[tuple[bool, float, int]]] = {}
        for position, (inp, res) in enumerate(records):
            if not of_no_use(task, inp, res):
                differs = (inp.task.layout_rewrite_option or 0) != task.layout_rewrite_option
                by_key.setdefault(inp.task.workload_key, []).append((differs, res.mean_cost, position))
        distances = {key: size_distance(key, task.workload_key) for key in by_key}
        near = (key for key in by_key if not math.isinf(distances[key]))
        for key in sorted(near, key=distances.__getitem__):
            yield from (records[position][0] for *_, position in sorted(by_key[key])[: self.count])


def _other_computation(task: TemplateTask, inp: MeasureInput) -> str:
    """Why a record of another task gives no configuration."""
    title = title_of_key(inp.task.workload_key)
    if math.isinf(size_distance(inp.task.workload_key, task.workload_key)):
        return f"of {title}, another computation"
    return f"of {title} whose steps are no configuration of the template"
