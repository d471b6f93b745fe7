"""What a tuning run says beyond its progress, level by level, each with all of those before.

| `verbose`, `ANSOR_DEBUG` | what is told |
|---|---|
| 0 | nothing |
| 1 | progress: a live line on a terminal, else a line per round; how the run ended |
| 2 | after each round the outcomes so far, and the loops of the best program when it is a new one |
| 3 | at the start the computation, what another definition would gain (`search.advice`), and the sketches |
| | with the rules that derived them, or the configurations |
| 4 | with each new best program its loop nest |
| 5 | and its LLVM IR, or the source of its kernels |

`TuningOptions.verbose` and the environment variable say the level; the greater one counts.
"""

from __future__ import annotations

from rich.console import Console

from ansor.errors import AnsorError
from ansor.knobs import debug_level
from ansor.schedule.state import State
from ansor.task.task import Task
from measure import MeasureErrorNo, MeasureInput
from measure.builder import emit_input
from measure.emit import lowered
from measure.layouts import built_state
from search.advice import advice_on
from search.policy import SearchPolicy
from search.progress import Progress, Report, make_progress
from search.result import TuningResult
from search.titles import task_title


def make_details(verbose: int, console: Console | None = None) -> Progress:
    """Choose who tells of a run at a level, `ANSOR_DEBUG` considered."""
    level = level_of(verbose)
    console = console or Console(stderr=True)  # One for both, lest lines run into the live one.
    progress = make_progress(level, console)
    return progress if level < 2 else Details(progress, level, console)


def details_only(verbose: int, policy: SearchPolicy, console: Console | None = None) -> Progress:
    """Choose who tells of one task among several, whose progress is told elsewhere: from level 2 on."""
    level = level_of(verbose)
    if level < 2:
        return Progress()
    details = Details(Progress(), level, console or Console(stderr=True))
    details.start(policy.task, 0, 0)
    details.begin(policy)
    return details


def level_of(verbose: int) -> int:
    """
    The level that counts.

    Raises
    ------
    DefinitionError
        If `ANSOR_DEBUG` is no level.
    """
    return max(int(verbose), debug_level())


class Details(Progress):
    """
    Passes everything on to another progress, and says more from level 2 on.

    Parameters
    ----------
    inner
        Who tells the rest.
    level
        See the module's table.
    console
        Where to.
    """

    def __init__(self, inner: Progress, level: int, console: Console) -> None:
        self._inner, self._level, self._console = inner, level, console
        self._task: Task | None = None
        self._best_seconds: float | None = None

    def start(self, task: Task, num_trials: int, num_logged: int) -> None:
        self._task, self._best_seconds = task, None
        self._inner.start(task, num_trials, num_logged)

    def begin(self, policy: SearchPolicy) -> None:
        self._inner.begin(policy)
        if self._level < 3:
            return
        self._say(f"{task_title(policy.task)}\n{policy.task.compute_dag}")
        if advice := advice_on(policy.task):
            self._say(advice)
        try:
            space = policy.describe_space()
        except AnsorError as error:
            self._say(f"no sketches: {error}")
            return
        self._say(space.rstrip())

    def trial_done(self, report: Report) -> None:
        self._inner.trial_done(report)

    def round_done(self, report: Report) -> None:
        self._inner.round_done(report)
        self._say(f"  outcomes: {outcomes_text(report)}")
        if report.best_state is not None and report.best_seconds != self._best_seconds:
            self._best_seconds = report.best_seconds
            self._tell_program(report.best_state)

    def close(self) -> None:
        self._inner.close()

    def finish(self, result: TuningResult) -> None:
        self._inner.finish(result)

    def _tell_program(self, state: State) -> None:
        self._say(f"  best program:\n{state.with_bounds()}".rstrip())
        if self._task is None or self._level < 4:
            return
        inp = MeasureInput(self._task, state)
        try:
            built = built_state(inp)
            self._say(str(lowered(built, built.dag.tensors, self._task.target)).rstrip())
            if self._level >= 5:
                self._say(emit_input(inp).text.rstrip())
        except AnsorError as error:
            self._say(f"  it cannot be lowered here: {error}")

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def outcomes_text(report: Report) -> str:
    """The outcome histogram of a run: "60 valid, 3 BUILD_TIMEOUT"."""
    ok = MeasureErrorNo.NO_ERROR
    counts = sorted(report.outcomes.items(), key=lambda item: (item[0] is not ok, -item[1], item[0]))
    return ", ".join(f"{count} {'valid' if error is ok else error.name}" for error, count in counts)
