"""The gradient of the objective, by hand; and groups of similar tasks."""

import math

import pytest

from ansor import te
from ansor.task.task import Task
from search import SearchTask
from search.scheduler.gradient import Allocation, SimilarityGroups, gradients, steepest
from search.skeleton import size_distance, skeleton
from tests.fake_machine import HOST, matmul, matmul_task


def known(costs: list[float], histories: list[list[float]], dead: frozenset[int] = frozenset()) -> Allocation:
    return Allocation(costs, [len(history) for history in histories], histories, dead)


def alone(*sizes: int, beta: float = 2.0) -> SimilarityGroups:
    return SimilarityGroups([matmul_task(n) for n in sizes], beta)


def test_gradient_weighs_the_past_against_the_forecast() -> None:
    history = [10.0, 8.0, 7.0, 4.0]
    two = known([4.0, 3.5], [history, [3.5]])
    slopes = gradients(two, alone(2, 16), lambda c: 2 * c[0] + c[1], alpha=0.2, window=3)
    backward, forward = (4.0 - 10.0) / 3, -4.0 / 4
    assert slopes[0] == pytest.approx(2 * (0.2 * backward + 0.8 * forward))
    assert slopes[1] == pytest.approx(0.8 * -3.5)  # One round: nothing is known of the past.
    assert steepest(two, slopes) == 1


def test_an_objective_may_be_any_function_of_positive_latencies() -> None:
    tiny = known([1e-6, 2e-6], [[1e-6], [2e-6]])
    slopes = gradients(tiny, alone(2, 16), lambda c: sum(math.log(x) for x in c), alpha=0.2, window=3)
    assert slopes == pytest.approx([-0.8, -0.8], rel=1e-3)
    worst = gradients(tiny, alone(2, 16), max, alpha=0.2, window=3)
    assert worst == pytest.approx([0.0, -0.8 * 2e-6])


def test_ties_go_to_the_least_tuned_living_task() -> None:
    flat = known([1.0, 1.0, 1.0, 1.0], [[1.0], [1.0] * 3, [1.0] * 2, [1.0] * 2], frozenset({0}))
    slopes = gradients(flat, alone(2, 4, 8, 16), lambda _: 7.0, alpha=0.2, window=3)
    assert list(slopes) == [0, 0, 0, 0]
    assert steepest(flat, slopes) == 2


def test_similar_tasks_lend_their_rate_and_a_straggler_leaves() -> None:
    tasks: list[Task] = [matmul_task(64), SearchTask(compute_dag=matmul(64, 60), target=HOST), matmul_task(8)]
    groups = SimilarityGroups(tasks, beta=2.0)
    assert groups.peers(0) == [0, 1]
    assert groups.peers(2) == [2]
    costs = [1e-3, 1e-4, 1.0]
    assert groups.expected(0, costs) == pytest.approx(2.0 * 1e-4 * 64 / 60)
    assert groups.expected(2, costs) == math.inf
    state = known(costs, [[1e-3] * 20, [1e-4], [1.0]])
    slopes = gradients(state, groups, sum, alpha=0.0, window=3)
    assert slopes[0] == pytest.approx(2.0 * 1e-4 * 64 / 60 - 1e-3)  # More than another 1 / 20.
    groups.note_round(0, costs, [6, 1, 1])
    assert groups.peers(0) == [0, 1]
    groups.note_round(0, costs, [7, 1, 1])
    assert groups.peers(0) == [0]
    assert groups.expected(0, costs) == math.inf


def test_tasks_for_other_targets_are_no_peers() -> None:
    other = matmul_task(64, target=f"{HOST} -mcpu=x86-64")
    assert SimilarityGroups([matmul_task(64), other, matmul_task(64)], beta=2.0).peers(0) == [0, 2]


def test_an_attribute_names_the_group() -> None:
    def tagged(n: int, tag: str) -> SearchTask:
        a = te.placeholder((n,), name="A")
        attrs = {"auto_scheduler_task_scheduler_tag": tag}
        out = te.compute((n,), lambda i: a[i] + te.const(1.0, "float32"), name="B", attrs=attrs)
        return SearchTask(compute_dag=[a, out], target=HOST)

    groups = SimilarityGroups([tagged(64, "x"), tagged(65, "y"), tagged(66, "x")], beta=2.0)
    assert groups.peers(0) == [0, 2]
    assert groups.peers(1) == [1]


def test_skeletons_forget_sizes_and_names_only() -> None:
    def of(tensors: list[te.Tensor]) -> str:
        return skeleton(SearchTask(compute_dag=tensors, target=HOST).compute_dag)

    a = te.placeholder((8, 8), name="A")
    k = te.reduce_axis((0, 8), name="k")
    longest = [a, te.compute((8,), lambda i: te.max(a[i, k], axis=k), name="M")]
    total = [a, te.compute((8,), lambda i: te.sum(a[i, k], axis=k), name="M")]
    assert of(matmul(8)) == of(matmul(24, 5, 7, names="XYZ"))
    assert len({of(matmul(8)), of(longest), of(total)}) == 3


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [
        ('["f", 8, [4, 2]]', '["f", 16, [4, 1]]', 2.0),
        ('["f", 8, true]', '["f", 8, true]', 0.0),
        ('["f", 8, 0]', '["f", 8, 1]', 1.0),
        ('["f", 8, "float32"]', '["f", 8, "float16"]', math.inf),
        ('["f", 8]', '["g", 8]', math.inf),
        ('["f", 8]', '["f", 8, 8]', math.inf),
        (f'["{"a" * 40}", [8, 8]]', f'["{"b" * 40}", [8, 32]]', 2.0),
        (f'["{"a" * 40}", [8, 8]]', '["f", [8, 8]]', math.inf),
        ("no json", "no json", 0.0),
        ("no json", '["f"]', math.inf),
    ],
)
def test_distance_of_sizes(one: str, other: str, distance: float) -> None:
    assert size_distance(one, other) == distance
