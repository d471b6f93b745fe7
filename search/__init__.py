"""The search: tasks that can be tuned, policies that propose programs, sessions that measure them.

Reading order: `search_task` (what a user holds), `session` (a tuning run), `policy` and `sketch_policy` (what
is proposed), with `params`, `evolution`, `generation`, `offspring`, `mutations`, `crossover`, `polish`,
`exhaustive` and `picking`, `randomness`, and `distinct` (how many of them there are); `history`, `known`,
`plans`, `preload` and `starts` (what is known), `progress` and `result` (what is told); `scheduler` (many
tasks at once); `warm_start` with `refit`, and `dispatch` (what earlier logs are good for); `templates`
(policies over sketches written by hand); `cli` is the command line, `report` a log as a page.
"""

from search.alternatives import AlternativesPolicy
from search.custom_rule import PreloadCustomSketchRule
from search.dispatch import ApplyHistoryBest, DispatchContext, dispatch_context
from search.distinct import distinct_share
from search.history import History, Trial
from search.mutations.defaults import CPU_MUTATIONS, GPU_MUTATIONS
from search.mutations.mutation import Mutation
from search.offspring import Offspring, same_family, tiles_changed
from search.options import TuningOptions
from search.params import ABLATIONS, REFERENCE_SPACE
from search.policy import EmptyPolicy, InitSearchCallback, Proposal, SearchPolicy
from search.preload import PreloadMeasuredStates
from search.progress import Progress, Report
from search.result import StopReason, TuningResult
from search.scheduler.callbacks import LogEstimatedLatency, PrintTableInfo, TaskSchedulerCallback
from search.scheduler.result import SchedulerResult
from search.scheduler.task_scheduler import TaskScheduler
from search.search_task import SearchTask
from search.session import TuningSession
from search.sketch_policy import DEFAULT_PARAMS, SketchPolicy
from search.templates.history import TransferConfigs, apply_history_best, pick_best
from search.templates.task import TemplateTask
from search.templates.tuner import GATuner, GridSearchTuner, RandomTuner, TemplateTuner
from search.templates.xgb import XGBTuner
from search.warm_start import WarmStart

__all__ = [
    "ABLATIONS",
    "CPU_MUTATIONS",
    "DEFAULT_PARAMS",
    "GPU_MUTATIONS",
    "REFERENCE_SPACE",
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
    "Progress",
    "Proposal",
    "RandomTuner",
    "Report",
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
    "TuningSession",
    "WarmStart",
    "XGBTuner",
    "apply_history_best",
    "dispatch_context",
    "distinct_share",
    "pick_best",
    "same_family",
    "tiles_changed",
]
