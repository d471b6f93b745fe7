"""Measuring: programs are built and run in separate worker processes, checked, timed and logged.

Reading order: `record` (what a measurement is), `log` (how it is kept) and `append`, `settled` (which record
of a program counts), `groups` (which records are of one task), `best` and `distill` (how one is chosen);
`pool`, `process`, `worker` and `wire` (processes that may die); `builder` and `runner`, whose work inside a
worker is `jobs` with `arguments`, `arena` and `check`; `reference` with `fill`, `tolerance` and `masks` (what
the right answer is), `reducers` (why there may be several); `measurer` with `answers` (all of it together);
`simulate` (none of it).

The names are imported on first use, so that a worker process starts with what it needs and no more.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from measure.append import RecordToFile as RecordToFile
    from measure.append import save_records as save_records
    from measure.best import FoundRecord as FoundRecord
    from measure.best import find_best_record as find_best_record
    from measure.best import load_best_record as load_best_record
    from measure.builder import LocalBuilder as LocalBuilder
    from measure.builder import ProgramBuilder as ProgramBuilder
    from measure.distill import DistillSummary as DistillSummary
    from measure.distill import distill_record_file as distill_record_file
    from measure.log import RecordReader as RecordReader
    from measure.log import dump_record_to_string as dump_record_to_string
    from measure.log import load_measurements as load_measurements
    from measure.log import load_record_from_string as load_record_from_string
    from measure.log import load_records as load_records
    from measure.measurer import BuiltEvent as BuiltEvent
    from measure.measurer import MeasureCallback as MeasureCallback
    from measure.measurer import MeasuredEvent as MeasuredEvent
    from measure.measurer import MeasureEvent as MeasureEvent
    from measure.measurer import ProgramMeasurer as ProgramMeasurer
    from measure.pool import WorkerPool as WorkerPool
    from measure.record import MAX_FLOAT as MAX_FLOAT
    from measure.record import BuildResult as BuildResult
    from measure.record import MeasureErrorNo as MeasureErrorNo
    from measure.record import MeasureInput as MeasureInput
    from measure.record import MeasureResult as MeasureResult
    from measure.record import recover_measure_input as recover_measure_input
    from measure.runner import LocalRunner as LocalRunner
    from measure.runner import ProgramRunner as ProgramRunner
    from measure.settled import settled_records as settled_records
    from measure.simulate import NullBuilder as NullBuilder
    from measure.simulate import SimulatedRunner as SimulatedRunner
    from measure.targets import same_target as same_target

_EXPORTS: Final[dict[str, tuple[str, ...]]] = {
    "append": ("RecordToFile", "save_records"),
    "best": ("FoundRecord", "find_best_record", "load_best_record"),
    "builder": ("LocalBuilder", "ProgramBuilder"),
    "distill": ("DistillSummary", "distill_record_file"),
    "log": (
        "RecordReader",
        "dump_record_to_string",
        "load_record_from_string",
        "load_measurements",
        "load_records",
    ),
    "measurer": ("BuiltEvent", "MeasureCallback", "MeasureEvent", "MeasuredEvent", "ProgramMeasurer"),
    "pool": ("WorkerPool",),
    "record": (
        "MAX_FLOAT",
        "BuildResult",
        "MeasureErrorNo",
        "MeasureInput",
        "MeasureResult",
        "recover_measure_input",
    ),
    "runner": ("LocalRunner", "ProgramRunner"),
    "settled": ("settled_records",),
    "simulate": ("NullBuilder", "SimulatedRunner"),
    "targets": ("same_target",),
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
