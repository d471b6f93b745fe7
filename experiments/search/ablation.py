"""Part `ablation`: what each part of the search is worth, in one table and one plot.

A variant differs from the default search in one thing: the cost model, a search parameter, or a rule for
sketches that is turned on or off. All variants tune the same tasks from the same seeds; their winners are
measured again side by side with the default's, in fresh processes. A row is the default's time over the
variant's: below 1 where leaving the thing out hurts. Differences of a few per cent are smaller than what
another seed changes: look at the interval.

The plot shows the best so far against trials, by the runs' own account, the median over the seeds; it needs
matplotlib (`pip install 'ansor[plot]'`).

The parameters are those that the search itself lists (`ansor.ABLATIONS`, one line for each part or rule),
and a few more here. `TASKS` try all of them but those that leave the task's space of programs as it is;
`SPACE_TASKS` try what they are listed with. A model that learns alone scores from the second round on: with
its usual warm-up it would know nothing within the trials.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Final

import ansor
from experiments.harness import Bench, Estimate
from experiments.search.cases import CASES
from experiments.search.efficiency import winners
from experiments.search.runs import best_so_far, circumstances, default_policy, folder, tuned
from experiments.search.spaces import reach

TASKS: Final = ("matmul-512", "conv2d-14")
SPACE_TASKS: Final[Mapping[str, tuple[str, ...]]] = {
    "matmul-509": ("dividing tile lengths",),
    "max_pool-112": ("no tiled windows", "no inlined padding"),
    "conv2d-7": ("no inlined padding",),
    "norm-256": ("no factored lanes",),
    "columns-64": ("no factored rows",),
    "yuv-1080": ("no tiled streams", "no streaming stores"),
    "softmax-1024": ("no prefetch", "no overlapping rows", "parts of row sums"),
    "softmax-128": ("no tiled rows",),
    "matmul-bf16": ("no tensor intrinsics", "no packed reads"),
    "quantised-256": ("no products multiplied out",),
    "conv2d-f16": ("conversions where values are used",),
    "tanh_matmul-512": ("all cheap reads inlined",),
    "mlp-64": ("all cheap reads inlined",),
    "transpose-1024": ("branches and calls kept",),
    "conv2d-nchw-28": ("vectors along last axes",),
    "filters-3": ("no tiled stencils", "all cheap reads inlined"),
    "filters-7": ("no tiled stencils", "all cheap reads inlined"),
    "winograd-28": ("no unrolled tiles", "a loop left out of vectors"),
    "winograd-56": ("no blocks of tiles",),
}
"""Tasks for what may be left out of the space of programs, and what each of them shows."""
TRIALS: Final = 64
WARM_UP: Final = 15
"""Programs that a model sees before it scores: fewer than the first round has."""
PROCESSES: Final = 3
DEFAULT: Final = "default"

Params = Mapping[str, int | float | str]

MODELS: Final[Mapping[str, Callable[[int], ansor.CostModel]]] = {
    "no cost model": ansor.RandomModel,
    "analytic model only": lambda seed: ansor.AnalyticModel(),
    "learned model only": lambda seed: ansor.XGBModel(num_warmup_sample=WARM_UP, seed=seed),
    "both models": lambda seed: ansor.DraftedModel(learned=ansor.XGBModel(seed=seed)),
}
SWITCHES: Final[Mapping[str, Params]] = {
    **{
        title: params
        for title, params in ansor.ABLATIONS.items()
        if not all(name.startswith("gpu_") for name in params)  # These are for a GPU to show.
    },
    "no random picks": {"eps_greedy": 0.0},
    "rounds of one size": {"first_rounds_size": 0},
    "fixed compute locations": {"disable_change_compute_location": 1},
}


@dataclass(frozen=True, slots=True)
class Variant:
    """The default search, and what is different: the model or parameters."""

    title: str
    model: Callable[[int], ansor.CostModel] | None = None
    params: Params = field(default_factory=dict)

    def policy(self, task: ansor.SearchTask, seed: int) -> ansor.SketchPolicy:
        """Make the policy."""
        model = default_policy(task, seed).model if self.model is None else self.model(seed)
        return ansor.SketchPolicy(task, model, self.params, seed)

    @property
    def label(self) -> str:
        """The title as part of a file's name."""
        return self.title.replace(" ", "_")


def variants(task: ansor.SearchTask) -> list[Variant]:
    """
    List all variants that make a difference for a task, the default first.

    A model that is the default's is not tried twice, nor what leaves the space of programs as it is.
    """
    default = default_policy(task, 0)
    space = reach(default.space)
    found = [Variant(DEFAULT)]
    for title, model in MODELS.items():
        if type(model(0)) is not type(default.model):
            found.append(Variant(title, model=model))
    for title, params in SWITCHES.items():
        one = Variant(title, params=params)
        policy = one.policy(task, 0)
        if policy.params != default.params and (not is_of_space(one) or reach(policy.space) != space):
            found.append(one)
    return found


def is_of_space(one: Variant) -> bool:
    """Whether a variant's difference is one of the space of programs, not of how it is searched."""
    return not {parameter.name for parameter in fields(ansor.SketchParams)}.isdisjoint(one.params)


def ablation(
    bench: Bench,
    tasks: Sequence[str],
    seeds: int,
    trials: int = TRIALS,
    again: int = PROCESSES,
    only: int | None = None,
    shown: Mapping[str, Collection[str]] | None = None,
) -> None:
    """
    Add one row per task and variant, and draw the plot.

    Parameters
    ----------
    bench, tasks, seeds, trials
        Where to, which tasks of `CASES`, how many runs of each variant, and how long they are.
    again
        Processes in which winners are measured again.
    only
        So many variants in a quick run, the default among them.
    shown
        Titles of the variants that some tasks are there for; the others try all.
    """
    shown = shown or {}
    curves: dict[str, dict[str, list[float]]] = {}
    for case in bench.each(tasks):
        tried = variants(CASES[case].task())
        if case in shown:
            tried = [one for one in tried if one.title in (DEFAULT, *shown[case])]
        tried = tried[:only]
        if len(tried) < 2:
            continue
        logs = [
            {one.title: tuned(case, one.label, seed, trials, one.policy) for one in tried}
            for seed in range(seeds)
        ]
        found = [winners(case, each, again) for each in logs]
        report(bench, case, trials, [each.value for each in found], circumstances(found))
        curves[case] = {
            one.title: median_curve([best_so_far(each[one.title], trials) for each in logs]) for one in tried
        }
    seen = {title for lines in curves.values() for title in lines}
    if only is None and (left := [title for title in SWITCHES if title not in seen]):
        print(f"  not tried on these tasks: {', '.join(left)}")
    path = plot(curves, folder())
    print(f"  the plot is {path}" if path else "  no plot: nothing to draw, or no matplotlib (extra `plot`)")


def report(
    bench: Bench, case: str, trials: int, times: Sequence[Mapping[str, Sequence[float]]], when: str
) -> None:
    """
    Add one row per variant.

    Parameters
    ----------
    times
        One mapping per seed, from title to seconds in each process.
    when
        Says when these were taken.
    """
    model = type(default_policy(CASES[case].task(), 0).model).__name__
    for title in [name for name in times[0] if name != "library"]:
        if title == DEFAULT:
            milliseconds = Estimate.of([1e3 * median(each[title]) for each in times])
            bench.add(
                f"{case}, {trials} trials: default ({model})",
                milliseconds,
                "ms",
                peer=f"seeds: {len(times)}; {when}",
            )
            continue
        ratios = [
            median(base / mine for base, mine in zip(each[DEFAULT], each[title], strict=True))
            for each in times
        ]
        bench.add(
            f"{case}, {trials} trials: {title}",
            Estimate.of(ratios),
            "of the speed",
            peer="the default search",
        )


def median_curve(runs: Sequence[Sequence[float]]) -> list[float]:
    """The median of several curves, as far as all of them go."""
    return [median(values) for values in zip(*runs, strict=False)]


def plot(curves: Mapping[str, Mapping[str, Sequence[float]]], where: Path) -> Path | None:
    """Draw one panel per task, `ablation.png` and `.svg`; None without matplotlib or anything to draw."""
    if find_spec("matplotlib") is None or not curves:
        return None
    import_module("matplotlib").use("Agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    columns = min(3, len(curves))
    height = -(-len(curves) // columns)
    size = (6.5 * columns, 5 * height)
    figure, panels = pyplot.subplots(height, columns, figsize=size, squeeze=False)
    titles = [DEFAULT, *MODELS, *SWITCHES]
    for panel, (case, lines) in zip(panels.flat, curves.items(), strict=False):
        for title, seconds in lines.items():
            number = titles.index(title)
            style: dict[str, Any] = {"color": f"C{number % 10}", "linestyle": "-" if number <= 10 else "--"}
            if title == DEFAULT:
                style = {"color": "black", "linewidth": 2.5}
            at = [(n, 1e3 * s) for n, s in enumerate(seconds, 1) if s < float("inf")]
            panel.step([n for n, _ in at], [s for _, s in at], where="post", label=title, **style)
        panel.set(title=case, xlabel="trials", ylabel="best so far [ms]", yscale="log")
        panel.grid(visible=True, which="both", alpha=0.3)
        panel.legend(fontsize="small")
    for panel in panels.flat[len(curves) :]:
        panel.set_axis_off()
    figure.tight_layout()
    for suffix in ("svg", "png"):
        figure.savefig(where / f"ablation.{suffix}", dpi=150)
    pyplot.close(figure)
    return where / "ablation.png"
