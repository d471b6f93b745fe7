"""Measuring: programs are built and run in separate worker processes, checked, timed and logged.

Reading order: `records` (what a measurement is, how it is kept, which one counts), `workers` (processes that
may die, and what they do: build, run and check), `correctness` (what the right answer is); `emit`,
`builder` and `runner`, with `timing`, `race` and `second_chance`; `measurer` with `answers` (all of it
together); `simulate` (none of it).

The names are imported on first use, so that a worker process starts with what it needs and no more.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from measure.builder import LocalBuilder as LocalBuilder
    from measure.builder import ProgramBuilder as ProgramBuilder
    from measure.measurer import BuiltEvent as BuiltEvent
    from measure.measurer import MeasureCallback as MeasureCallback
    from measure.measurer import MeasuredEvent as MeasuredEvent
    from measure.measurer import MeasureEvent as MeasureEvent
    from measure.measurer import ProgramMeasurer as ProgramMeasurer
    from measure.records.append import RecordToFile as RecordToFile
    from measure.records.append import save_records as save_records
    from measure.records.best import FoundRecord as FoundRecord
    from measure.records.best import find_best_record as find_best_record
    from measure.records.best import load_best_record as load_best_record
    from measure.records.distill import DistillSummary as DistillSummary
    from measure.records.distill import distill_record_file as distill_record_file
    from measure.records.log import RecordReader as RecordReader
    from measure.records.log import dump_record_to_string as dump_record_to_string
    from measure.records.log import load_measurements as load_measurements
    from measure.records.log import load_record_from_string as load_record_from_string
    from measure.records.log import load_records as load_records
    from measure.records.record import MAX_FLOAT as MAX_FLOAT
    from measure.records.record import BuildResult as BuildResult
    from measure.records.record import MeasureErrorNo as MeasureErrorNo
    from measure.records.record import MeasureInput as MeasureInput
    from measure.records.record import MeasureResult as MeasureResult
    from measure.records.record import recover_measure_input as recover_measure_input
    from measure.records.settled import settled_records as settled_records
    from measure.records.targets import same_target as same_target
    from measure.runner import LocalRunner as LocalRunner
    from measure.runner import ProgramRunner as ProgramRunner
    from measure.simulate import NullBuilder as NullBuilder
    from measure.simulate import SimulatedRunner as SimulatedRunner
    from measure.workers.pool import WorkerPool as WorkerPool

_EXPORTS: Final[dict[str, tuple[str, ...]]] = {
    "records.append": ("RecordToFile", "save_records"),
    "records.best": ("FoundRecord", "find_best_record", "load_best_record"),
    "builder": ("LocalBuilder", "ProgramBuilder"),
    "records.distill": ("DistillSummary", "distill_record_file"),
    "records.log": (
        "RecordReader",
        "dump_record_to_string",
        "load_record_from_string",
        "load_measurements",
        "load_records",
    ),
    "measurer": ("BuiltEvent", "MeasureCallback", "MeasureEvent", "MeasuredEvent", "ProgramMeasurer"),
    "workers.pool": ("WorkerPool",),
    "records.record": (
        "MAX_FLOAT",
        "BuildResult",
        "MeasureErrorNo",
        "MeasureInput",
        "MeasureResult",
        "recover_measure_input",
    ),
    "runner": ("LocalRunner", "ProgramRunner"),
    "records.settled": ("settled_records",),
    "simulate": ("NullBuilder", "SimulatedRunner"),
    "records.targets": ("same_target",),
}
_HOME: Final = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = [*_HOME]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import the public thing called `name` on its first use and keep it."""
        if name not in _HOME:
            raise AttributeError(f"module 'measure' has no attribute {name!r}")
        value = getattr(import_module(f"measure.{_HOME[name]}"), name)
        globals()[name] = value
        return value
