"""Stencils: what they read is stored or inlined, by the work that this repeats; their outputs are tiled."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.schedule.lowering import lower
from ansor.schedule.state import State
from ansor.te import Tensor
from sketches import ProgramSpace, generate_sketches
from sketches.places import MOST_PLACES, NO_AXIS, places_read
from tests.program_laws import Case, check_all
from tests.sketches_cases import check_program, elementwise_chain, matmul, softmax, task_of, two_filters


def of_image(image: Tensor, name: str, margin: int, value: Callable[[te.Var, te.Var], te.Expr]) -> Tensor:
    """A stage of an image, smaller than another one by a margin."""
    height, width = (int(extent) - margin for extent in image.shape)
    return te.compute((height, width), value, name=name)


def corners(n: int, m: int) -> list[Tensor]:
    """Products of differences, each summed over windows, and a function of the sums."""
    image = te.placeholder((n + 4, m + 4), name="Image")
    along = of_image(image, "Along", 2, lambda y, x: image[y + 1, x + 2] - image[y + 1, x])
    across = of_image(image, "Across", 2, lambda y, x: image[y + 2, x + 1] - image[y, x + 1])

    def windows(name: str, a: Tensor, b: Tensor) -> Tensor:
        product = of_image(a, f"{name}Product", 0, lambda y, x: a[y, x] * b[y, x])
        places = [(i, j) for i in range(3) for j in range(3)]
        return of_image(a, name, 2, lambda y, x: sum(product[y + i, x + j] for i, j in places))

    xx, yy, xy = windows("XX", along, along), windows("YY", across, across), windows("XY", along, across)
    out = of_image(xx, "Out", 0, lambda y, x: xx[y, x] * yy[y, x] - xy[y, x] * xy[y, x])
    return [image, out]


def colours(n: int, m: int) -> list[Tensor]:
    """Two filters of an image of three channels, the first of them with a margin of zeros."""
    image = te.placeholder((n, m, 3), name="Image")
    padded = te.compute(
        (n + 2, m, 3),
        lambda y, x, c: te.if_then_else(te.all(y >= 1, y < n + 1), image[y - 1, x, c], 0.0),
        name="Padded",
    )
    first = te.compute(
        (n, m, 3), lambda y, x, c: padded[y, x, c] + padded[y + 1, x, c] + padded[y + 2, x, c], name="First"
    )
    last = te.compute(
        (n, m - 2, 3), lambda y, x, c: first[y, x, c] * first[y, x + 1, c] - first[y, x + 2, c], name="Last"
    )
    return [image, last]


def waves(length: int) -> list[Tensor]:
    """Three steps in time of a row, each from two before it."""
    first, second = te.placeholder((length,), name="First"), te.placeholder((length,), name="Second")

    def step(name: str, old: Tensor, new: Tensor) -> Tensor:
        inner = (int(old.shape[0]) - int(new.shape[0])) // 2 + 1
        size = int(new.shape[0]) - 2
        return te.compute(
            (size,),
            lambda i: new[i] * 0.25 + new[i + 1] * 1.5 + new[i + 2] * 0.25 - old[i + inner],
            name=name,
        )

    third = step("Third", first, second)
    fourth = step("Fourth", second, third)
    return [first, second, step("Fifth", third, fourth)]


IMAGES = {
    "filters": lambda: two_filters(19, 33, 3),
    "long filters": lambda: two_filters(16, 40, 7),
    "corners": lambda: corners(12, 21),
    "colours": lambda: colours(10, 12),
    "waves": lambda: waves(60),
}


def decisions(tensors: list[Tensor], **params: int) -> set[str]:
    return {sketch.explain() for sketch in generate_sketches(task_of(tensors), params)}


def test_what_is_read_at_several_places_is_stored_by_the_work_that_inlining_repeats() -> None:
    tiled, plain, inlined = "StencilTiling(Both)", "(no rule applied)", "AlwaysInline(Rows)"
    assert decisions(two_filters(20, 20, 2)) == {inlined}
    some = {tiled, f"{tiled}, {inlined}", plain, inlined}
    assert decisions(two_filters(20, 20, 3)) == some
    assert decisions(two_filters(20, 20, 7)) == {tiled, plain}
    assert decisions(two_filters(20, 20, 7), cpu_stencil_tiling=0) == {plain}
    assert decisions(two_filters(20, 20, 7), cpu_stencil_tiling=0, cpu_keep_costly=0) == {inlined}


def test_places_are_counted_through_what_is_inlined() -> None:
    """A difference read at one place, by a product that is inlined into a sum over nine."""
    found = [sketch.explain() for sketch in generate_sketches(task_of(corners(20, 20)))]
    stored = [
        text
        for text in found
        if all(f"({name}Product)" in text for name in ("XX", "YY", "XY")) and "(Along)" not in text
    ]
    products_stored = [
        text for text in found if not any(f"({name}Product)" in text for name in ("XX", "YY", "XY"))
    ]
    assert stored
    assert products_stored
    assert all("AlwaysInline(Along)" in text for text in products_stored)


def test_outputs_of_nothing_that_is_read_at_several_places_are_left() -> None:
    x = te.placeholder((30, 30), name="X")
    twice = te.compute((30, 30), lambda i, j: x[i, j] * 3.0 + 1.0, name="Twice")
    square = te.compute((30, 30), lambda i, j: twice[i, j] * twice[i, j], name="Square")
    direct = te.compute((28, 30), lambda i, j: x[i, j] + x[i + 1, j] + x[i + 2, j], name="Direct")
    mirrored = te.compute((30, 30), lambda i, j: twice[i, j] + twice[29 - i, j], name="Mirrored")
    for tensors in ([x, square], [x, direct], [x, mirrored], softmax(8, 30), matmul(8, 8, 8)):
        assert not any("StencilTiling" in text for text in decisions(tensors))
    assert not any("StencilTiling" in text for text in decisions(elementwise_chain(8, 8)))


def test_a_stage_with_a_branch_is_stored_anyway_and_its_readers_tiled() -> None:
    assert any("StencilTiling(Last)" in text for text in decisions(colours(20, 20)))


def place(*parts: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    return parts


def test_places_are_those_of_the_first_reader() -> None:
    x = te.placeholder((9, 9, 3), name="X")
    turned = te.compute((9, 8), lambda i, j: x[j, i, 2] + x[j + 1, i, 2], name="Turned")
    out = te.compute((8, 7), lambda i, j: turned[i + 1, j] * turned[i - 0, 1 + j], name="Out")
    state = State.initial(ansor.ComputeDAG([x, out]))
    found = places_read(state, 2, lambda stage: True)
    assert found[1] == {place((0, 1), (1, 0)), place((0, 0), (1, 1))}
    assert found[0] == {
        place((1, row), (0, column), (NO_AXIS, 2)) for row, column in ((0, 1), (1, 1), (1, 0), (2, 0))
    }
    assert places_read(state, 2, lambda stage: False).keys() == {1}
    assert places_read(state, 2, lambda stage: True, last=1).keys() == {1}


def test_many_places_are_not_told_apart() -> None:
    x = te.placeholder((200,), name="X")
    stages = [x]
    for number in range(40):
        stages.append(
            te.compute(
                (200 - 2 * number - 2,),
                lambda i, a=stages[-1]: a[i] + a[i + 1] + a[i + 2],
                name=f"S{number}",
            )
        )
    found = places_read(State.initial(ansor.ComputeDAG([x, stages[-1]])), 40, lambda stage: True)
    assert [len(found[stage]) for stage in (39, 38, 10, 0)] == [3, 5, 61, MOST_PLACES]


@pytest.mark.parametrize("name", IMAGES)
def test_their_programs_follow_the_laws(name: str) -> None:
    task = ansor.SearchTask(compute_dag=IMAGES[name](), target="llvm -num-cores=2")
    sample = ProgramSpace.of(task).sample(64, np.random.default_rng(0))
    states = [p.materialize(row) for p in sample.populations for row in range(min(len(p), 2))]
    tiled = [
        state for state in states if len(state.stages[-1].iterators) > len(state.stages[-1].compute.axis)
    ]
    assert tiled
    for state in tiled[:25]:
        check_program(state)
        check_all(Case.of(state))
    assert any("allocate" in str(lower(state)) for state in tiled)
