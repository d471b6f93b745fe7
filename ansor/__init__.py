"""ansor: a template-free auto-scheduler for tensor programs.

You write what to compute with `ansor.te`; `SearchTask(...).tune(TuningOptions(...))` finds how. This module
is the one door: users, examples and experiments write `import ansor` and `from ansor import te`, no more.

It is lazy (PEP 562). It names the public things of every package as text and imports each on first use, so
`import ansor` itself loads neither numpy nor llvmlite nor a learning library, and the upper packages
(`search`, `costmodel`, `sketches`, `measure`) can import `ansor` without a cycle. The block under
`TYPE_CHECKING` shows the same names to type checkers and editors; a test keeps the two lists equal.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ansor import te as te
    from ansor import workloads as workloads
    from ansor.alignment import aligned_empty as aligned_empty
    from ansor.errors import AnsorError as AnsorError
    from ansor.errors import ArgumentError as ArgumentError
    from ansor.errors import BuildError as BuildError
    from ansor.errors import DefinitionError as DefinitionError
    from ansor.errors import LogFormatError as LogFormatError
    from ansor.errors import LogWriteError as LogWriteError
    from ansor.errors import LoweringError as LoweringError
    from ansor.errors import MeasureTimeoutError as MeasureTimeoutError
    from ansor.errors import NoDeviceError as NoDeviceError
    from ansor.errors import RunError as RunError
    from ansor.errors import ScheduleError as ScheduleError
    from ansor.errors import TargetError as TargetError
    from ansor.errors import WrongAnswerError as WrongAnswerError
    from ansor.intrinsics import TensorIntrinsic as TensorIntrinsic
    from ansor.intrinsics import get_tensor_intrinsic as get_tensor_intrinsic
    from ansor.intrinsics import register_tensor_intrinsic as register_tensor_intrinsic
    from ansor.intrinsics import tensor_intrinsics as tensor_intrinsics
    from ansor.intrinsics import warp_intrinsics as warp_intrinsics
    from ansor.ir.nest import LoopNest as LoopNest
    from ansor.runtime import DeviceArray as DeviceArray
    from ansor.runtime import DeviceModule as DeviceModule
    from ansor.runtime import Module as Module
    from ansor.runtime import TimeResult as TimeResult
    from ansor.runtime import device_array as device_array
    from ansor.runtime import device_empty as device_empty
    from ansor.runtime import from_dlpack as from_dlpack
    from ansor.runtime import get_num_threads as get_num_threads
    from ansor.runtime import load_module as load_module
    from ansor.runtime import set_num_threads as set_num_threads
    from ansor.runtime.build import build as build
    from ansor.runtime.build import lower as lower
    from ansor.schedule.dag import ComputeDAG as ComputeDAG
    from ansor.schedule.identity import program_key as program_key
    from ansor.schedule.layout import Layout as Layout
    from ansor.schedule.layout import transform_layout as transform_layout
    from ansor.schedule.manual import Schedule as Schedule
    from ansor.schedule.manual import create_schedule as create_schedule
    from ansor.schedule.source import schedule_code as schedule_code
    from ansor.schedule.stages import Annotation as Annotation
    from ansor.schedule.state import State as State
    from ansor.task.gpu_limits import verify_gpu as verify_gpu
    from ansor.task.hardware import HardwareParams as HardwareParams
    from ansor.task.layout import rewrite_layouts as rewrite_layouts
    from ansor.task.registry import make_workload_key as make_workload_key
    from ansor.task.registry import register_workload as register_workload
    from ansor.task.registry import register_workload_tensors as register_workload_tensors
    from ansor.task.registry import workload_key_to_tensors as workload_key_to_tensors
    from ansor.task.target import Target as Target
    from ansor.task.task import LayoutRewriteOption as LayoutRewriteOption
    from ansor.task.task import Task as Task
    from costmodel import AnalyticModel as AnalyticModel
    from costmodel import Collector as Collector
    from costmodel import CostModel as CostModel
    from costmodel import Dataset as Dataset
    from costmodel import DraftedModel as DraftedModel
    from costmodel import FeatureSource as FeatureSource
    from costmodel import LearnedModel as LearnedModel
    from costmodel import PackedRows as PackedRows
    from costmodel import Programs as Programs
    from costmodel import RandomModel as RandomModel
    from costmodel import SklearnModel as SklearnModel
    from costmodel import XGBModel as XGBModel
    from costmodel import metrics as metrics
    from measure import BuildResult as BuildResult
    from measure import LocalBuilder as LocalBuilder
    from measure import LocalRunner as LocalRunner
    from measure import MeasureCallback as MeasureCallback
    from measure import MeasureErrorNo as MeasureErrorNo
    from measure import MeasureInput as MeasureInput
    from measure import MeasureResult as MeasureResult
    from measure import NullBuilder as NullBuilder
    from measure import ProgramBuilder as ProgramBuilder
    from measure import ProgramRunner as ProgramRunner
    from measure import RecordReader as RecordReader
    from measure import RecordToFile as RecordToFile
    from measure import SimulatedRunner as SimulatedRunner
    from measure import distill_record_file as distill_record_file
    from measure import dump_record_to_string as dump_record_to_string
    from measure import load_best_record as load_best_record
    from measure import load_record_from_string as load_record_from_string
    from measure import load_records as load_records
    from measure import recover_measure_input as recover_measure_input
    from measure import save_records as save_records
    from measure import settled_records as settled_records
    from search import ABLATIONS as ABLATIONS
    from search import CPU_MUTATIONS as CPU_MUTATIONS
    from search import GPU_MUTATIONS as GPU_MUTATIONS
    from search import REFERENCE_SPACE as REFERENCE_SPACE
    from search import AlternativesPolicy as AlternativesPolicy
    from search import ApplyHistoryBest as ApplyHistoryBest
    from search import DispatchContext as DispatchContext
    from search import EmptyPolicy as EmptyPolicy
    from search import GATuner as GATuner
    from search import GridSearchTuner as GridSearchTuner
    from search import History as History
    from search import InitSearchCallback as InitSearchCallback
    from search import LogEstimatedLatency as LogEstimatedLatency
    from search import Mutation as Mutation
    from search import Offspring as Offspring
    from search import PreloadCustomSketchRule as PreloadCustomSketchRule
    from search import PreloadMeasuredStates as PreloadMeasuredStates
    from search import PrintTableInfo as PrintTableInfo
    from search import Proposal as Proposal
    from search import RandomTuner as RandomTuner
    from search import SchedulerResult as SchedulerResult
    from search import SearchPolicy as SearchPolicy
    from search import SearchTask as SearchTask
    from search import SketchPolicy as SketchPolicy
    from search import StopReason as StopReason
    from search import TaskScheduler as TaskScheduler
    from search import TaskSchedulerCallback as TaskSchedulerCallback
    from search import TemplateTask as TemplateTask
    from search import TemplateTuner as TemplateTuner
    from search import TransferConfigs as TransferConfigs
    from search import Trial as Trial
    from search import TuningOptions as TuningOptions
    from search import TuningResult as TuningResult
    from search import WarmStart as WarmStart
    from search import XGBTuner as XGBTuner
    from search import apply_history_best as apply_history_best
    from search import dispatch_context as dispatch_context
    from search import distinct_share as distinct_share
    from search import pick_best as pick_best
    from search import same_family as same_family
    from search import tiles_changed as tiles_changed
    from sketches import CPU_ANNOTATORS as CPU_ANNOTATORS
    from sketches import CPU_EXTRA_RULES as CPU_EXTRA_RULES
    from sketches import CPU_RULES as CPU_RULES
    from sketches import DERIVE as DERIVE
    from sketches import GPU_ANNOTATORS as GPU_ANNOTATORS
    from sketches import GPU_EXTRA_RULES as GPU_EXTRA_RULES
    from sketches import GPU_RULES as GPU_RULES
    from sketches import AddPackedRead as AddPackedRead
    from sketches import AnnotateEntity as AnnotateEntity
    from sketches import Annotator as Annotator
    from sketches import ColumnKind as ColumnKind
    from sketches import Config as Config
    from sketches import ConfigEntity as ConfigEntity
    from sketches import ConfigSpace as ConfigSpace
    from sketches import Draft as Draft
    from sketches import Family as Family
    from sketches import KnobEntity as KnobEntity
    from sketches import Population as Population
    from sketches import ProgramSpace as ProgramSpace
    from sketches import ReorderEntity as ReorderEntity
    from sketches import Sketch as Sketch
    from sketches import SketchContext as SketchContext
    from sketches import SketchParams as SketchParams
    from sketches import SketchRule as SketchRule
    from sketches import SkipStage as SkipStage
    from sketches import SplitEntity as SplitEntity
    from sketches import Template as Template
    from sketches import Verdict as Verdict
    from sketches import generate_sketches as generate_sketches
    from sketches import sample_programs as sample_programs
    from sketches import template as template

__version__: Final = "0.1.0"

# Module -> the names it lends to the facade.
_EXPORTS: Final[dict[str, tuple[str, ...]]] = {
    "ansor.alignment": ("aligned_empty",),
    "ansor.errors": (
        "AnsorError",
        "ArgumentError",
        "BuildError",
        "DefinitionError",
        "LogFormatError",
        "LogWriteError",
        "LoweringError",
        "MeasureTimeoutError",
        "NoDeviceError",
        "RunError",
        "ScheduleError",
        "TargetError",
        "WrongAnswerError",
    ),
    "ansor.intrinsics": (
        "TensorIntrinsic",
        "get_tensor_intrinsic",
        "register_tensor_intrinsic",
        "tensor_intrinsics",
        "warp_intrinsics",
    ),
    "ansor.ir.nest": ("LoopNest",),
    "ansor.runtime": (
        "DeviceArray",
        "DeviceModule",
        "Module",
        "TimeResult",
        "device_array",
        "device_empty",
        "from_dlpack",
        "get_num_threads",
        "load_module",
        "set_num_threads",
    ),
    "ansor.runtime.build": ("build", "lower"),
    "ansor.schedule.dag": ("ComputeDAG",),
    "ansor.schedule.identity": ("program_key",),
    "ansor.schedule.layout": (
        "Layout",
        "transform_layout",
    ),
    "ansor.schedule.manual": (
        "Schedule",
        "create_schedule",
    ),
    "ansor.schedule.source": ("schedule_code",),
    "ansor.schedule.stages": ("Annotation",),
    "ansor.schedule.state": ("State",),
    "ansor.task.gpu_limits": ("verify_gpu",),
    "ansor.task.hardware": ("HardwareParams",),
    "ansor.task.layout": ("rewrite_layouts",),
    "ansor.task.registry": (
        "make_workload_key",
        "register_workload",
        "register_workload_tensors",
        "workload_key_to_tensors",
    ),
    "ansor.task.target": ("Target",),
    "ansor.task.task": (
        "LayoutRewriteOption",
        "Task",
    ),
    "costmodel": (
        "AnalyticModel",
        "Collector",
        "CostModel",
        "Dataset",
        "DraftedModel",
        "FeatureSource",
        "LearnedModel",
        "PackedRows",
        "Programs",
        "RandomModel",
        "SklearnModel",
        "XGBModel",
        "metrics",
    ),
    "measure": (
        "BuildResult",
        "LocalBuilder",
        "LocalRunner",
        "MeasureCallback",
        "MeasureErrorNo",
        "MeasureInput",
        "MeasureResult",
        "NullBuilder",
        "ProgramBuilder",
        "ProgramRunner",
        "RecordReader",
        "RecordToFile",
        "SimulatedRunner",
        "distill_record_file",
        "dump_record_to_string",
        "load_best_record",
        "load_record_from_string",
        "load_records",
        "recover_measure_input",
        "save_records",
        "settled_records",
    ),
    "search": (
        "same_family",
        "tiles_changed",
        "ABLATIONS",
        "REFERENCE_SPACE",
        "CPU_MUTATIONS",
        "GPU_MUTATIONS",
        "AlternativesPolicy",
        "ApplyHistoryBest",
        "DispatchContext",
        "EmptyPolicy",
        "GATuner",
        "GridSearchTuner",
        "History",
        "InitSearchCallback",
        "LogEstimatedLatency",
        "Mutation",
        "Offspring",
        "PreloadCustomSketchRule",
        "PreloadMeasuredStates",
        "PrintTableInfo",
        "Proposal",
        "RandomTuner",
        "SchedulerResult",
        "SearchPolicy",
        "SearchTask",
        "SketchPolicy",
        "StopReason",
        "TaskScheduler",
        "TaskSchedulerCallback",
        "TemplateTask",
        "TemplateTuner",
        "TransferConfigs",
        "Trial",
        "TuningOptions",
        "TuningResult",
        "WarmStart",
        "XGBTuner",
        "apply_history_best",
        "dispatch_context",
        "distinct_share",
        "pick_best",
    ),
    "sketches": (
        "Annotator",
        "CPU_ANNOTATORS",
        "GPU_ANNOTATORS",
        "GPU_EXTRA_RULES",
        "ColumnKind",
        "DERIVE",
        "Draft",
        "Family",
        "Population",
        "ProgramSpace",
        "CPU_EXTRA_RULES",
        "CPU_RULES",
        "GPU_RULES",
        "AddPackedRead",
        "AnnotateEntity",
        "Config",
        "ConfigEntity",
        "ConfigSpace",
        "KnobEntity",
        "ReorderEntity",
        "Sketch",
        "SketchContext",
        "SketchParams",
        "SketchRule",
        "SkipStage",
        "SplitEntity",
        "Template",
        "Verdict",
        "generate_sketches",
        "sample_programs",
        "template",
    ),
}
_MODULES: Final = ("te", "workloads")
_HOME: Final = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = [*_MODULES, *_HOME]

if not TYPE_CHECKING:  # A module-level __getattr__ would make every misspelt name an Any for type checkers.

    def __getattr__(name: str) -> object:
        """Import the public thing called `name` on its first use and keep it."""
        if name in _MODULES:
            return import_module(f"ansor.{name}")
        if name not in _HOME:
            raise AttributeError(
                f"module 'ansor' has no attribute {name!r}; its public names are in ansor.__all__, "
                "and docs/tvm.md says which of TVM's have others or are not there",
                name=name,
                obj=sys.modules[__name__],
            )
        module = _HOME[name]
        if not module.startswith("ansor."):
            from ansor.siblings import check_siblings

            check_siblings()
        value = getattr(import_module(module), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
