"""The report's page: one HTML file that needs nothing else, no script, no font, no other file.

Colours are variables of the style sheet with a light and a dark set; the charts name classes only. All text
from the log goes through `escape`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Final

from ansor.errors import AnsorError
from ansor.medians import repeats_text
from ansor.runtime.build import lower
from ansor.schedule.source import schedule_code
from ansor.task.layout import rewrite_layouts
from ansor.task.target import Target
from ansor.wording import counted
from measure import MeasureErrorNo
from search.report.belief import Belief
from search.report.charts import Curve, Mark, bars, cloud, stack
from search.report.data import Attempt, LogHistory, TaskHistory, TimeSpent, fastest
from search.text import certainty_text, digits, interval_text, rate_text, seconds_text, time_text
from search.titles import algorithm_title, by_algorithm, title_of_key

_FEW_TASKS: Final = 3
_CERTAINTY: Final = ("Median within", "Of")
_STYLE: Final = """
:root { color-scheme: light dark;
  --page: #f9f9f7; --card: #fcfcfb; --ink: #0b0b0b; --soft: #52514e; --faint: #898781; --line: #e1e0d9;
  --accent: #2a78d6; --dot: #86b6ef; --rest: #c3c2b7; --bad: #d03b3b; }
@media (prefers-color-scheme: dark) { :root {
  --page: #0d0d0d; --card: #1a1a19; --ink: #ffffff; --soft: #c3c2b7; --faint: #898781; --line: #2c2c2a;
  --accent: #3987e5; --dot: #256abf; --rest: #52514e; --bad: #e66767; } }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 24px; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 20px; margin: 44px 0 2px; overflow-wrap: anywhere; }
h3 { font-size: 15px; margin: 0 0 6px; }
p { margin: 4px 0; } .soft { color: var(--soft); } a { color: var(--accent); }
.grid2 { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr)); gap: 16px;
  margin: 16px 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 14px 16px; }
.column { display: grid; gap: 16px; align-content: start; } .small { font-size: 13px; }
.tiles { display: flex; flex-wrap: wrap; gap: 10px 36px; margin: 14px 0; }
.tiles div { min-width: 90px; } .tiles b { display: block; font-size: 22px; font-weight: 600; }
.tiles span { color: var(--soft); font-size: 13px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 4px 14px 4px 0; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { color: var(--soft); font-weight: 500; }
.text { text-align: left; white-space: normal; min-width: 150px; overflow-wrap: anywhere; }
pre { overflow-x: auto; font: 13px/1.45 ui-monospace, Menlo, Consolas, monospace; margin: 8px 0 0; }
details { margin: 12px 0; } summary { cursor: pointer; font-weight: 600; }
svg { width: 100%; height: auto; display: block; }
svg text { font-size: 12px; fill: var(--soft); } svg .tick { fill: var(--faint); font-size: 11px; }
svg .value { fill: var(--ink); }
svg path { fill: none; } .grid { stroke: var(--line); } .axis { stroke: var(--faint); }
.best { stroke: var(--accent); stroke-width: 2; stroke-linejoin: round; }
.corner { fill: var(--accent); stroke: var(--card); stroke-width: 1.5; } .dot { fill: var(--dot); }
.point { fill: var(--accent); fill-opacity: .55; } .failure { stroke: var(--bad); stroke-width: 1.5; }
.bar { fill: var(--accent); } .bar.bad { fill: var(--bad); } .bar.rest { fill: var(--rest); }
"""


def report_page(log: LogHistory, beliefs: Sequence[Belief | str] | None = None) -> str:
    """
    Write the page.

    Parameters
    ----------
    log
        The log.
    beliefs
        What a model believed of each task's programs, or why it could not; None to leave that out.
    """
    known: Sequence[Belief | str | None] = beliefs if beliefs is not None else [None] * len(log.tasks)
    name = Path(log.name).name
    body = [_head(log, name)]
    if len(log.tasks) > 1:
        body.append(_overview(log))
    body += [
        _task(number, task, belief, listings_open=len(log.tasks) <= _FEW_TASKS)
        for number, (task, belief) in enumerate(zip(log.tasks, known, strict=True))
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(name)}: ansor report</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{''.join(body)}</main>\n</body>\n</html>\n"
    )


# -- the whole log -----------------------------------------------------------------------------------


def _head(log: LogHistory, name: str) -> str:
    count, tasks = len(log.attempts), len(log.tasks)
    facts = [
        f"{count} measurement{'' if count == 1 else 's'} of {tasks} task{'' if tasks == 1 else 's'}",
        f"{time_text(log.elapsed)} of tuning",
    ]
    if log.first_timestamp:
        facts.append(" to ".join(dict.fromkeys(map(_date, (log.first_timestamp, log.last_timestamp)))))
    notes = "".join(f'<p class="soft">{escape(note)}</p>' for note in log.notes)
    return f'<h1>{escape(name)}</h1>\n<p class="soft">{escape(", ".join(facts))}</p>{notes}\n'


def _date(timestamp: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):  # No calendar has that: they were no seconds.
        return f"{timestamp} s"


def _overview(log: LogHistory) -> str:
    """All tasks in a table, and the sum of their run times against records and time."""
    rows = []
    for number, task in enumerate(log.tasks):
        best = task.best.seconds if task.best is not None else None
        by = "" if task.best is None else by_algorithm(task.key, task.best.algorithm)
        near = task.trials_to_within(0.05)
        rows.append(
            [
                f'<a href="#task-{number}">{escape(task.title)}</a>{escape(by)}',
                escape(task.terms),
                "-" if best is None else seconds_text(best),
                *_certainty(task.best),
                _rate(task, task.best),
                str(len(task.attempts)),
                str(sum(attempt.seconds is None for attempt in task.attempts)),
                "-" if near is None else str(near),
                time_text(task.spent),
            ]
        )
    names = (
        *("Task", "Target", "Best", *_CERTAINTY),
        *("GFLOP/s", "Trials", "Failed", "Within 5 % after", "Time"),
    )
    totals = log.totals()
    charts = ""
    if totals:
        first = totals[0]
        drops = [
            total
            for total, before in zip(totals, [(0, 0.0, float("inf")), *totals], strict=False)
            if total[2] < before[2]
        ]
        text = f"sum of the best run times, from record {first[0]} on, when every task has a program"
        charts = (
            '<div class="grid2">'
            + _card("All tasks, by trials", _total_curve(drops, 0, "trial", len(log.attempts)))
            + _card("All tasks, by time", _total_curve(drops, 1, "time [s]", log.elapsed))
            + f'</div><p class="soft">{escape(text)}</p>'
        )
    return f"<div class='wide'>{_table(names, rows, 2)}</div>{charts}"


def _total_curve(drops: Sequence[tuple[int, float, float]], at: int, label: str, end: float) -> str:
    steps = [
        Mark(drop[at], drop[2] * 1e3, f"{seconds_text(drop[2])} after {drop[0]} trials, {time_text(drop[1])}")
        for drop in drops
    ]
    return Curve(f"total by {label}", label, "sum of best [ms]", steps, log=True, x_end=end).to_svg()


# -- one task ------------------------------------------------------------------------------------------


def _task(number: int, task: TaskHistory, belief: Belief | str | None, listings_open: bool) -> str:
    sums = _card("Outcomes", _outcomes(task)) + _card("Where the time went", _time(task.time))
    cards = [
        _card("Best so far, by trials", _curve(task, "trial")),
        _card("Best so far, by time", _curve(task, "time [s]")),
    ]
    if belief is None:
        cards.append(sums)
    else:
        shown = (
            f'<p class="soft small">{escape(belief)}</p>'
            if isinstance(belief, str)
            else _belief(task, belief)
        )
        cards += [_card("Predicted and measured", shown), f'<div class="column">{sums}</div>']
    return (
        f'<section id="task-{number}">\n<h2>{escape(task.title)}</h2>\n'
        f'<p class="soft">{escape(task.terms)}</p>\n{_tiles(task)}{_noise(task)}'
        f'<div class="grid2">{"".join(cards)}</div>\n'
        f"{_algorithms(task)}{_program(task, listings_open)}{_improvements(task)}</section>\n"
    )


def _tiles(task: TaskHistory) -> str:
    failed = sum(attempt.seconds is None for attempt in task.attempts)
    tiles = [(str(len(task.attempts)), "trials"), (str(failed), "failed")]
    if task.best is not None and task.best.seconds is not None:
        by = by_algorithm(task.key, task.best.algorithm)
        tiles = [
            (
                seconds_text(task.best.seconds),
                f"best, trial {task.best.trial}{by}{certainty_text(task.best.record[1])}",
            ),
            *([(digits(task.flops / task.best.seconds / 1e9), "GFLOP/s")] if task.flops else []),
            (str(task.trials_to_within(0.05)), "trials to within 5 %"),
            *tiles,
        ]
    tiles.append((time_text(task.spent), "time"))
    return (
        '<div class="tiles">'
        + "".join(f"<div><b>{escape(value)}</b><span>{escape(label)}</span></div>" for value, label in tiles)
        + "</div>\n"
    )


def _certainty(attempt: Attempt | None) -> list[str]:
    """Cells of a table, named by `_CERTAINTY`, that say how sure a program's run time is."""
    if attempt is None:
        return ["-", "-"]
    result = attempt.record[1]
    return [interval_text(result), repeats_text(len(result.costs), result.disturbed, result.redone)]


def _noise(task: TaskHistory) -> str:
    """A sentence on how noisy the run times of a task are."""
    noise = task.noise
    if not noise.programs:
        return ""
    rests_on = repeats_text(noise.repeats, noise.disturbed, noise.redone)
    words = [f"{counted(noise.programs, 'valid program')} of {rests_on}"]
    if noise.spread is not None:
        words.append(f"half of those of several know their median to ± {100 * noise.spread:.1f} % or better")
    return f'<p class="soft">{escape("; ".join(words))}</p>\n'


def _curve(task: TaskHistory, against: str) -> str:
    """Speed of each program and of the best so far; run times where the FLOPs are not known."""

    def x(attempt: Attempt) -> float:
        return attempt.trial if against == "trial" else attempt.spent

    def y(attempt: Attempt) -> float:
        seconds = attempt.seconds or 1.0
        return task.flops / seconds / 1e9 if task.flops else seconds * 1e3

    def mark(attempt: Attempt) -> Mark:
        if attempt.seconds is None:
            return Mark(x(attempt), 0.0, f"trial {attempt.trial}: {attempt.error.name}")
        speed = rate_text(task.flops, attempt.seconds)
        by = by_algorithm(task.key, attempt.algorithm, errors=False)
        said = f"trial {attempt.trial}, {time_text(attempt.spent)}: {speed}{by}"
        return Mark(x(attempt), y(attempt), said + certainty_text(attempt.record[1]))

    valid = [attempt for attempt in task.attempts if attempt.seconds is not None]
    failures = [mark(attempt) for attempt in task.attempts if attempt.seconds is None]
    chart = Curve(
        title=f"best so far by {against}",
        x_label=against,
        y_label="speed [GFLOP/s]" if task.flops else "run time [ms]",
        steps=[mark(attempt) for attempt in task.improvements],
        dots=[mark(attempt) for attempt in valid],
        failures=failures,
        log=not task.flops and bool(valid),
        x_end=len(task.attempts) if against == "trial" else task.spent,
    ).to_svg()
    legend = "Line: the best so far. Dots: single programs." + (
        " Marks on the axis: failures." if failures else ""
    )
    return f'{chart}<p class="soft small">{legend}</p>'


def _outcomes(task: TaskHistory) -> str:
    total = len(task.attempts)
    rows = []
    for error, count in task.outcomes.items():
        ok = error is MeasureErrorNo.NO_ERROR
        words = f"{count} ({100 * count / total:.0f} %)"
        rows.append(("valid" if ok else error.name, float(count), words, "good" if ok else "bad"))
    return bars("outcomes", rows)


def _time(spent: TimeSpent) -> str:
    total = spent.total or 1.0
    named = (
        ("building and running valid programs", spent.valid, "good"),
        ("building and running failed ones", spent.failed, "bad"),
        ("searching, learning, the rest", spent.searching, "rest"),
    )
    return stack(
        "where the time went",
        [
            (label, value, f"{time_text(value)} ({100 * value / total:.0f} %)", style)
            for label, value, style in named
        ],
    )


def _belief(task: TaskHistory, belief: Belief) -> str:
    bests = {key: fastest(attempts) for key, attempts in task.algorithms.items()}
    least = {key: best.seconds or 1.0 for key, best in bests.items() if best is not None}
    dots = [
        Mark(
            score,
            0.0 if a.seconds is None else least[a.algorithm] / a.seconds,
            f"trial {a.trial}: score {score:.4g}, "
            + (
                a.error.name
                if a.seconds is None
                else seconds_text(a.seconds) + by_algorithm(task.key, a.algorithm, errors=False)
            ),
        )
        for a, score in belief.pairs
    ]
    text = (
        f"A log holds no predictions: a new {belief.model} went through it in rounds of {belief.round_size} "
        "programs and scored each round after learning from the earlier ones only."
    )
    if belief.order is not None:
        pairs = "pairs of one algorithm" if len(task.algorithms) > 1 else "pairs"
        text = f"{100 * belief.order:.0f} % of the {pairs} are in the right order. {text}"
    chart = cloud(
        "predicted and measured",
        "predicted score [higher is better]",
        "measured speed [share of the best]",
        dots,
    )
    return f'{chart}<p class="soft small">{escape(text)}</p>'


def _program(task: TaskHistory, is_open: bool) -> str:
    """The best program as it was timed: its loop nest and its schedule, as far as they are known here."""
    if task.best is None:
        return "<p>No program of this task was valid.</p>\n"
    state = task.state_of(task.best)
    if state is None:
        steps = getattr(task.best.record[0].state, "steps_json", ())
        why = "The workload is not known here, so only the steps of the best program are shown."
        listings = [("Steps", "\n".join(json.dumps(step) for step in steps))]
        return f'<p class="soft">{why}</p>\n' + "".join(_listing(*item, is_open) for item in listings)
    try:
        state = rewrite_layouts(state, task.layouts).state
        nest = str(lower(state, target=Target.parse(task.target)))
    except AnsorError as error:
        nest = f"cannot be lowered here: {error}"
    listings = [
        ("Best loop nest", nest),
        ("Its loops", str(state.with_bounds())),
        ("Its schedule", schedule_code(state)),
    ]
    return "".join(_listing(*item, is_open) for item in listings)


def _algorithms(task: TaskHistory) -> str:
    """What each algorithm of a task came to, if there are several; speeds in the FLOPs of the task itself."""
    if len(task.algorithms) < 2:
        return ""
    rows = []
    for key, attempts in task.algorithms.items():
        best = fastest(attempts)
        rows.append(
            [
                escape(algorithm_title(key)),
                "-" if best is None else seconds_text(best.seconds or 0.0),
                *_certainty(best),
                _rate(task, best),
                str(len(attempts)),
                str(sum(attempt.seconds is None for attempt in attempts)),
            ]
        )
    table = _table(("Algorithm", "Best", *_CERTAINTY, "GFLOP/s", "Trials", "Failed"), rows, 1)
    said = "Speeds are in the FLOPs of the task itself, whatever an algorithm needs."
    return f"<div class='wide'>{table}</div><p class=\"soft small\">{said}</p>\n"


def _rate(task: TaskHistory, attempt: Attempt | None) -> str:
    """Speed of a program [GFLOP/s] as a cell of a table."""
    seconds = None if attempt is None else attempt.seconds
    return digits(task.flops / seconds / 1e9) if task.flops and seconds else "-"


def _improvements(task: TaskHistory) -> str:
    several = len(task.algorithms) > 1
    rows = [
        [
            *([escape(title_of_key(attempt.algorithm))] if several else []),
            str(attempt.trial),
            time_text(attempt.spent),
            seconds_text(attempt.seconds),
            *_certainty(attempt),
            _rate(task, attempt),
        ]
        for attempt in task.improvements
        if attempt.seconds is not None
    ]
    if not rows:
        return ""
    names = ("Trial", "After", "Run time", *_CERTAINTY, "GFLOP/s")
    table = _table(("Algorithm", *names), rows, 1) if several else _table(names, rows, 0)
    return f"<details><summary>Improvements as a table</summary>{table}</details>\n"


# -- parts ---------------------------------------------------------------------------------------------


def _card(title: str, inner: str) -> str:
    return f'<div class="card"><h3>{escape(title)}</h3>{inner}</div>\n'


def _listing(title: str, text: str, is_open: bool) -> str:
    tag = '<details class="card" open>' if is_open else '<details class="card">'
    return f"{tag}<summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>\n"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int) -> str:
    """Make a table of cells that are HTML already; the first `text_columns` are text, the others numbers."""
    kinds = [' class="text"' if column < text_columns else "" for column in range(len(names))]
    head = "".join(f"<th{kind}>{escape(name)}</th>" for name, kind in zip(names, kinds, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
