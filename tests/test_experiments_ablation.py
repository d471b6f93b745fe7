"""The ablation: every variant leaves out what it says, where that makes a difference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ansor
from experiments.harness import Bench
from experiments.search import ablation as search_ablation
from experiments.search import runs as search_runs
from experiments.search.ablation import DEFAULT, SPACE_TASKS, SWITCHES, TASKS, Variant, is_of_space, variants
from experiments.search.cases import CASES, OWN
from experiments.search.runs import Kept
from experiments.search.spaces import Reach, reach
from tests.sketches_cases import CACHES

SMALL_SEARCH = {"evolutionary_search_population": 96, "evolutionary_search_num_iters": 1}
ZEN4 = "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -num-cores=2"
HARDWARE = ansor.HardwareParams(2, **CACHES)
"""There are machines whose caches hold all tasks."""


def matmul() -> ansor.SearchTask:
    return ansor.SearchTask("ansor.matmul", (64, 64, 64), target=ZEN4)


@cache
def task_of(name: str) -> ansor.SearchTask:
    """A task of the benchmark, for a machine with all instructions that rules ask for."""
    case = CASES[name]
    workload = case.workload if case.workload in OWN else case.entry.registered_name
    return ansor.SearchTask(workload, case.args, target=ZEN4, hardware_params=HARDWARE)


@pytest.fixture(scope="module", autouse=True)
def spaces_described_once() -> Iterator[None]:
    """Of each space the tests and the code under test look at the same programs."""
    known: dict[tuple[object, ...], Reach] = {}

    def once(space: ansor.ProgramSpace, seed: int = 0) -> Reach:
        context = space.context
        key = (str(context.dag), str(context.target), context.hardware, context.params, seed)
        if key not in known:
            known[key] = reach(space, seed)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_ablation, "reach", once)
        yield


@cache
def space_of(name: str, title: str, seed: int = 0) -> Reach:
    """What a variant reaches on a task."""
    space = Variant(title, params=SWITCHES.get(title, {})).policy(task_of(name), 0).space
    return search_ablation.reach(space, seed)


def test_every_variant_differs_from_the_default_in_one_thing() -> None:
    task = matmul()
    found = search_ablation.variants(task)
    default = found[0].policy(task, 3)
    assert found[0].title == "default"
    assert len({one.label for one in found}) == len(found)
    for one in found[1:]:
        policy = one.policy(task, 3)
        other_model = type(policy.model) is not type(default.model)
        assert other_model != (policy.params != default.params), one.title
        assert policy.seed == 3
    titles = {one.title for one in found}
    assert {"no cost model", "analytic model only", "no polish", "no crossover", "all reads packed"} <= titles
    assert len({"learned model only", "both models"} & titles) == 1


def proposed(one: Variant) -> list[str]:
    """What a variant measures of a small task, whose every program has its run time."""

    def seconds(inp: ansor.MeasureInput) -> float:
        text = str(inp.state)
        return 1e-3 * (1 + sum(map(ord, text)) % 97 + len(text))

    task, found = matmul(), list[str]()

    class Catch(ansor.MeasureCallback):
        def callback(self, policy: object, inputs: Any, results: object) -> None:
            found.extend(str(inp.state) for inp in inputs)

    asked = ansor.TuningOptions(
        num_measure_trials=search_ablation.TRIALS,
        num_finalists=0,
        early_stopping=None,
        verbose=0,
        builder=ansor.NullBuilder(),
        runner=ansor.SimulatedRunner(seconds),
        measure_callbacks=[Catch()],
    )
    task.tune(asked, replace(one, params={**SMALL_SEARCH, **one.params}).policy(task, 3))
    return found


def test_variants_measure_different_programs() -> None:
    """A model that never gets to score, or a part that is never used, would leave two of them the same."""
    found = {one.title: proposed(one) for one in variants(matmul()) if not is_of_space(one)}
    assert {"no cost model", "learned model only", "no polish", "rounds of one size"} <= found.keys()
    for title, programs in found.items():
        assert len(programs) == search_ablation.TRIALS
        assert [other for other in found if found[other] == programs] == [title]


@pytest.mark.parametrize(
    ("name", "title"), [(name, title) for name, titles in SPACE_TASKS.items() for title in titles]
)
def test_a_task_shows_what_it_is_there_for(name: str, title: str) -> None:
    """And the difference is not one of the programs that were drawn."""
    assert space_of(name, title) != space_of(name, DEFAULT) == space_of(name, DEFAULT, seed=1)


def test_every_variant_of_the_space_has_a_task_on_which_it_is_another_space() -> None:
    every = {title for title, params in SWITCHES.items() if is_of_space(Variant(title, params=params))}
    shown = {title for titles in SPACE_TASKS.values() for title in titles}
    for name in TASKS:
        of_space = {one.title for one in variants(task_of(name)) if is_of_space(one)}
        assert all(space_of(name, title) != space_of(name, DEFAULT) for title in of_space)
        shown |= of_space
    assert shown == every


def test_what_is_left_out_is_gone() -> None:
    assert space_of("matmul-509", DEFAULT).uneven
    assert not space_of("matmul-509", "dividing tile lengths").uneven
    assert space_of("yuv-1080", DEFAULT).streams == {"YUV"}
    assert not space_of("yuv-1080", "no streaming stores").streams
    assert ("Pad", 2) in space_of("winograd-28", DEFAULT).vectors
    assert not space_of("winograd-28", "a loop left out of vectors").vectors
    assert space_of("conv2d-14", DEFAULT).moved
    assert not space_of("conv2d-14", "fixed compute locations").moved


def test_what_leaves_the_space_as_it_is_is_not_tried() -> None:
    def tried(name: str) -> set[str]:
        return {one.title for one in variants(task_of(name))}

    assert not tried("matmul-512") & {"no tiled streams", "no streaming stores", "a loop left out of vectors"}
    assert not tried("norm-256") & {"no unrolled tiles", "fixed compute locations"}


def test_a_variant_is_compared_with_the_default_of_the_same_seed() -> None:
    bench = Bench("", [])
    times = [
        {"default": [1.0, 2.0], "no polish": [2.0, 4.0], "library": [1.0, 1.0]},
        {"default": [4.0, 4.0], "no polish": [4.0, 4.0], "library": [1.0, 1.0]},
    ]
    search_ablation.report(bench, "matmul-512", 64, times, "timed today")
    assert bench.rows[0].peer == "seeds: 2; timed today"
    found = {row.name.rpartition(": ")[2]: row for row in bench.rows}
    assert found["no polish"].value == 0.75
    assert found["no polish"].interval == (0.5, 1.0)
    assert [row.unit for row in bench.rows] == ["ms", "of the speed"]


def test_tasks_for_the_space_try_what_they_are_there_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[str, str]] = []

    def tuned(case: str, title: str, *args: object) -> Path:
        tried.append((case, title))
        return tmp_path / "log"

    times = {"default": [1.0], "no_factored_lanes": [1.0], "library": [1.0]}
    monkeypatch.setattr(search_runs, "OUT", tmp_path)
    monkeypatch.setattr(search_ablation, "tuned", tuned)
    monkeypatch.setattr(search_ablation, "best_so_far", lambda *args: [1.0])
    monkeypatch.setattr(search_ablation, "winners", lambda *args: Kept(times, "2026-01-02 03:04 UTC", 0.98))
    monkeypatch.setattr(search_ablation, "plot", lambda *args: None)
    search_ablation.ablation(Bench("", []), ["norm-256", "matmul-512"], 1, 1, 1, shown=SPACE_TASKS)
    assert [title for case, title in tried if case == "norm-256"] == ["default", "no_factored_lanes"]
    product = [title for case, title in tried if case == "matmul-512"]
    assert product[0] == "default"
    assert {"no_cost_model", "no_polish", "no_crossover"} <= set(product)
    tried.clear()
    search_ablation.ablation(Bench("", []), ["norm-256"], 1, 1, 1, only=2, shown=SPACE_TASKS)
    assert [title for _, title in tried] == ["default", "no_factored_lanes"]


def test_curves_are_medians_as_far_as_all_go() -> None:
    assert search_ablation.median_curve([[3.0, 1.0, 1.0], [5.0, 2.0], [4.0, 4.0]]) == [4.0, 2.0]


def test_the_plot_is_a_picture_of_all_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    lines = {"default": [float("inf"), 3.0, 2.0], "no polish": [4.0, 4.0, 3.0]}
    path = search_ablation.plot({"one": lines, "two": lines}, tmp_path)
    assert path is not None
    assert path.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in path.with_suffix(".svg").read_text()


def test_without_matplotlib_there_is_no_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_ablation, "find_spec", lambda name: None)
    assert search_ablation.plot({}, tmp_path) is None
