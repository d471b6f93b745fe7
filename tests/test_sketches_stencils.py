"""Stencils: what they read is stored or inlined, by the work that this repeats; their outputs are tiled."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.schedule.bounds import infer_bounds
from ansor.schedule.lowering import lower
from ansor.schedule.places import NO_AXIS, Place, uses_at
from ansor.schedule.state import State
from ansor.te import Tensor
from sketches import ProgramSpace, generate_sketches
from sketches.places import MOST_PLACES, places_read
from tests.device_kernels import why_no_device
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


def replicated(n: int, m: int) -> list[Tensor]:
    """Three means over neighbours, where the edge stands for what is beyond it."""
    image = te.placeholder((n, m), name="Image")
    of = image
    for number in range(3):

        def mean(y: te.Var, x: te.Var, of: Tensor = of) -> te.Expr:
            places = [(y, x), (y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)]
            return sum(of[te.clip(i, 0, n - 1), te.clip(j, 0, m - 1)] for i, j in places) * 0.2

        of = te.compute((n, m), mean, name=f"Mean{number}")
    return [image, of]


def torus(n: int, m: int) -> list[Tensor]:
    """Three means over neighbours, where what is beyond an edge lies at the opposite one."""
    image = te.placeholder((n, m), name="Image")
    of = image
    for number in range(3):

        def mean(y: te.Var, x: te.Var, of: Tensor = of) -> te.Expr:
            places = [(y, x), (y + n - 1, x), (y + 1, x), (y, x + m - 1), (y, x + 1)]
            return sum(of[i % n, j % m] for i, j in places) * 0.2

        of = te.compute((n, m), mean, name=f"Mean{number}")
    return [image, of]


IMAGES = {
    "filters": lambda: two_filters(19, 33, 3),
    "long filters": lambda: two_filters(16, 40, 7),
    "corners": lambda: corners(12, 21),
    "colours": lambda: colours(10, 12),
    "waves": lambda: waves(60),
    "replicated": lambda: replicated(14, 21),
    "torus": lambda: torus(14, 21),
}


def decisions(tensors: list[Tensor], **params: int) -> set[str]:
    return {sketch.explain() for sketch in generate_sketches(task_of(tensors), params)}


def test_what_is_read_at_several_places_is_stored_by_the_work_that_inlining_repeats() -> None:
    tiled, plain, in_place = "StencilTiling(Both)", "(no rule applied)", "AlwaysInline(Rows)"
    assert decisions(two_filters(20, 20, 2)) == {in_place}
    some = {tiled, f"{tiled}, {in_place}", plain, in_place}
    assert decisions(two_filters(20, 20, 3)) == some
    assert decisions(two_filters(20, 20, 7)) == {tiled, plain}
    assert decisions(two_filters(20, 20, 7), cpu_stencil_tiling=0) == {plain}
    assert decisions(two_filters(20, 20, 7), cpu_stencil_tiling=0, cpu_keep_costly=0) == {in_place}


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


def polynomial(value: te.Expr) -> te.Expr:
    return ((value * 0.5 + 1.0) * value - 2.0) * value * 3.0


def inlined(tensors: list[Tensor], stage: str) -> set[bool]:
    return {f"AlwaysInline({stage})" in text for text in decisions(tensors)}


def test_channels_that_are_read_together_are_not_neighbours() -> None:
    image = te.placeholder((30, 30, 3), name="Image")
    light = te.compute((30, 30, 3), lambda y, x, c: polynomial(image[y, x, c]), name="Light")
    grey = te.compute((30, 30), lambda y, x: sum(light[y, x, c] for c in range(3)), name="Grey")
    assert decisions([image, grey]) == {"AlwaysInline(Light)"}
    stored = te.compute((30, 30, 3), lambda y, x, c: te.exp(image[y, x, c]), name="Stored")
    total = te.compute((), lambda: stored[0, 0, 0] + stored[1, 2, 0], name="Total")
    for output in (te.compute((30, 30), lambda y, x: stored[y, x, 0] - stored[y, x, 2]), total):
        assert not any("StencilTiling" in text for text in decisions([image, output]))


def test_strides_count_by_how_many_read_an_element() -> None:
    x = te.placeholder((64,), name="X")
    curve = te.compute((64,), lambda i: polynomial(x[i]), name="Curve")

    def halved(taps: int) -> list[Tensor]:
        return [x, te.compute((30,), lambda i: sum(curve[2 * i + k] for k in range(taps)), name="Half")]

    assert inlined(halved(2), "Curve") == {True}
    assert inlined(halved(5), "Curve") == {True, False}
    doubled = te.compute((61,), lambda i: curve[i // 2] + curve[i // 2 + 1], name="Doubled")
    assert inlined([x, doubled], "Curve") == {True, False}


def test_calls_and_what_is_inlined_are_work_as_well() -> None:
    x = te.placeholder((40,), name="X")
    curve = te.compute((40,), lambda i: te.tanh(x[i]), name="Curve")
    assert inlined([x, te.compute((38,), lambda i: sum(curve[i + k] for k in range(3)))], "Curve") == {
        True,
        False,
    }
    assert inlined([x, te.compute((34,), lambda i: sum(curve[i + k] for k in range(7)))], "Curve") == {False}
    stage = x
    for number in range(20):
        stage = te.compute((40,), lambda i, of=stage: of[i] * 0.5 + 1.0, name=f"S{number}")
    last = te.compute((38,), lambda i: stage[i] + stage[i + 1] - stage[i + 2], name="Last")
    inner = ", ".join(f"AlwaysInline(S{number})" for number in reversed(range(19)))
    assert decisions([x, last]) == {f"StencilTiling(Last), {inner}", inner}


def test_what_several_read_is_repeated_by_each() -> None:
    x = te.placeholder((40,), name="X")
    curve = te.compute((40,), lambda i: te.sqrt(polynomial(x[i])), name="Curve")
    more = te.compute((40,), lambda i: curve[i] + x[i], name="More")
    less = te.compute((40,), lambda i: curve[i] - x[i], name="Less")
    k = te.reduce_axis((0, 40), name="k")
    total = te.compute((1,), lambda i: te.sum(curve[k + i], axis=k), name="Total")
    sums = te.compute((36,), lambda i: curve[i] + curve[i + 2] + curve[i + 4], name="Sums")
    assert inlined([x, more], "Curve") == {True}
    assert inlined([x, more, less], "Curve") == {True, False}
    assert inlined([x, more, total], "Curve") == {True}
    assert inlined([x, sums, total], "Curve") == {True, False}


def test_a_stage_with_a_branch_is_stored_anyway_and_its_readers_tiled() -> None:
    assert any("StencilTiling(Last)" in text for text in decisions(colours(20, 20)))


def place(*parts: tuple[int, int], factor: float = 1) -> Place:
    """The place at some shifts of some axes."""
    return tuple((axis, 0 if axis == NO_AXIS else factor, shift) for axis, shift in parts)


def test_places_are_those_of_the_first_reader() -> None:
    x = te.placeholder((9, 9, 3), name="X")
    turned = te.compute((9, 8), lambda i, j: x[j, i, 2] + x[j + 1, i, 2], name="Turned")
    out = te.compute((8, 7), lambda i, j: turned[i + 1, j] * turned[i - 0, 1 + j], name="Out")
    state = State.initial(ansor.ComputeDAG([x, out]))
    found = dict(places_read(state, 2, lambda stage: True))
    assert list(found) == [1, 0]
    assert found[1] == {place((0, 1), (1, 0)), place((0, 0), (1, 1))}
    assert found[0] == {
        place((1, row), (0, column), (NO_AXIS, 2)) for row, column in ((0, 1), (1, 1), (1, 0), (2, 0))
    }
    assert [stage for stage, _ in places_read(state, 2, lambda stage: False)] == [1]


def test_places_of_strides_and_quotients() -> None:
    """Of pixels that are halved: one in four, each read four times."""
    x = te.placeholder((20, 20), name="X")
    half = te.compute((9, 9), lambda i, j: x[2 * i + 1, 2 * j] + x[i * 2 + 2, j * 2], name="Half")
    back = te.compute((18, 17), lambda i, j: half[i // 2, (j + 1) // 2], name="Back")
    odd = te.compute((5, 5), lambda i, j: back[i + j, i] + back[3, 4 - j], name="Odd")
    state = State.initial(ansor.ComputeDAG([x, odd]))
    found = dict(places_read(state, 2, lambda stage: True))
    assert found[1] == {place((0, 0), (1, 0.5), factor=0.5)}
    assert found[0] == {place((0, 1), (1, 1)), place((0, 2), (1, 1))}
    assert [uses_at(found[stage]) for stage in (1, 0)] == [4, 2]
    assert dict(places_read(state, 3, lambda stage: False))[2] == {((NO_AXIS, 0, 3), (1, -1, 4))}


def test_places_of_what_is_clamped_are_those_away_from_the_edge() -> None:
    n = te.var("n")
    x = te.placeholder((n, 20), name="X")
    out = te.compute(
        (n, 20),
        lambda i, j: (
            x[te.minimum(i + 1, n - 1), te.clip(j - 2, 0, 19)]
            + x[te.abs(i - 1), 19 - te.abs(19 - (j + 1))]
            + x[te.if_then_else(i < 2, 2 - i, i - 2), j]
            + x[i, te.minimum(i, j)]
        ),
    )
    (found,) = State.initial(ansor.ComputeDAG([x, out])).access.places(out.op).values()
    assert found == {place((0, 1), (1, -2)), place((0, -1), (1, 1)), place((0, -2), (1, 0))}


def test_places_of_what_goes_around_an_end_are_those_away_from_it() -> None:
    n = te.var("n")
    x = te.placeholder((n, 20), name="X")
    out = te.compute(
        (n, 20),
        lambda i, j: x[(i + n - 1) % n, (j + 19) % 20] + x[(i + 1) % n, (j - 3) % 20] + x[i, j * 7 % 20],
    )
    (found,) = State.initial(ansor.ComputeDAG([x, out])).access.places(out.op).values()
    assert found == {place((0, -1), (1, -1)), place((0, 1), (1, -3))}


def test_of_populations_some_rows_may_go_around_an_end() -> None:
    """As each row does for itself, whatever the other rows of its column do."""
    sample = ProgramSpace.of(task_of(torus(12, 18))).sample(48, np.random.default_rng(0))
    found = set()
    for population in sample.populations:
        count = len(population)
        for row in range(count):
            for stage, known in infer_bounds(population.materialize(row)).stages.items():
                for alone, column in zip(known.region, population.inferred.stages[stage].region, strict=True):
                    both = [np.broadcast_to(x, count)[row] for x in (column.width, column.around)]
                    assert [alone.width, alone.around] == both
                    found.add((bool(alone.around), np.ndim(column.around)))
    assert {(True, 1), (False, 1)} <= found


@pytest.mark.parametrize("image", [replicated, torus])
def test_what_is_read_beyond_an_edge_is_tiled_as_other_stencils_are(
    image: Callable[[int, int], list[Tensor]],
) -> None:
    assert "StencilTiling(Mean2)" in decisions(image(64, 64))


@pytest.mark.usefixtures("quick_pocl")
@pytest.mark.parametrize("image", [replicated, torus])
def test_programs_for_gpus_read_beyond_an_edge(image: Callable[[int, int], list[Tensor]]) -> None:
    if why_no_device("opencl"):
        pytest.skip(why_no_device("opencl"))
    dag = ansor.ComputeDAG(image(14, 21))
    limits = ansor.HardwareParams(-1, 16, 64, 32768, 2**31 - 1, 256, 1, 1)
    task = ansor.SearchTask(compute_dag=dag, target="opencl", hardware_params=limits)
    case = Case.of(State.initial(dag))
    for population, row in ProgramSpace.of(task).sample(4, np.random.default_rng(0)).in_order():
        state, arrays = population.materialize(row), case.arrays()
        ansor.build(state, state.dag.tensors, target="opencl")(*arrays)
        case.check(arrays)


def test_elements_are_used_as_often_as_others_read_them() -> None:
    row = [place((0, 0), (1, shift)) for shift in range(3)]
    every_other = [((0, 2, shift), (1, 1, 0)) for shift in range(4)]
    channels = [place((0, row), (NO_AXIS, channel)) for channel in range(3) for row in range(2)]
    assert [uses_at(places) for places in ([], row[:1], row, every_other, channels)] == [0, 1, 3, 2, 2]
    assert uses_at(channels[::2]) == 1
    assert uses_at([place((0, 0), (1, 0)), place((1, 0), (0, 0))]) == 2


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
    found = dict(places_read(State.initial(ansor.ComputeDAG([x, stages[-1]])), 40, lambda stage: True))
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
    for state in tiled[:6]:
        check_program(state)
        check_all(Case.of(state))
    assert any("allocate" in str(lower(state)) for state in tiled)
