"""Both layout options on whole programs: which layouts are chosen, and that results stay equal to the bit."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.layout import transform_layout
from ansor.schedule.layout_rewrite import arguments, input_layouts
from ansor.schedule.lowering import lower
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.task.layout import rewrite_layouts
from ansor.te import Tensor
from ansor.te.interp import evaluate
from tests.gpu_cases import gpu_task
from tests.program_laws import Case
from tests.random_choice import Chooser
from tests.random_schedules import random_state
from tests.sketches_cases import grouped_by_division

TRANSFORM = ansor.LayoutRewriteOption.INSERT_TRANSFORM_STAGE
PRE_TRANSFORMED = ansor.LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED


def matmul(n: int, m: int, k: int, i: str = "i", j: str = "j", r: str = "k") -> list[Tensor]:
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    rk = te.reduce_axis((0, k), name=r)
    c = te.compute(
        (n, m),
        eval(
            f"lambda {i}, {j}: te.sum(a[{i}, rk] * b[rk, {j}], axis=rk)", {"te": te, "a": a, "b": b, "rk": rk}
        ),
        name="C",
        attrs={"layout_free_placeholders": [b]},
    )
    return [a, b, c]


def tiled(tensors: list[Tensor]) -> State:
    """TVM's own example: three levels of tiles, the reduction innermost."""
    state = State.initial(ComputeDAG(tensors)).split(2, 0, [4, 8, 8]).split(2, 4, [8, 4, 4])
    return state.reorder(2, [0, 4, 1, 5, 2, 6, 3, 7, 8])


def random_inputs(dag: ComputeDAG, seed: int = 0) -> dict[Tensor, np.ndarray]:
    """Small whole numbers, whose sums are exact in any order: along memory, reductions go in lanes."""
    rng = np.random.default_rng(seed)
    shapes = {t: [s for s in t.shape if isinstance(s, int)] for t in dag.inputs}
    return {t: rng.integers(-8, 9, shape).astype(t.dtype) for t, shape in shapes.items()}


def call(state: State, inputs: dict[Tensor, np.ndarray]) -> list[np.ndarray]:
    """The outputs of a compiled program, fed as its arguments ask."""
    args = arguments(state)
    given = [
        transform_layout(inputs[t], a) for t, a in zip(state.dag.tensors, args, strict=True) if t in inputs
    ]
    made = ansor.build(state, args, target="llvm")(*given)
    return [made] if isinstance(made, np.ndarray) else list(made)


def check_options(state: State, inputs: dict[Tensor, np.ndarray]) -> Counter[str]:
    """Both options give the very bits of the program itself; tells what became of the inputs."""
    found: Counter[str] = Counter()
    expected = call(state, inputs)
    for option in (TRANSFORM, PRE_TRANSFORMED):
        rewrite = rewrite_layouts(state, option)
        for a, b in zip(call(rewrite.state, inputs), expected, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"{option!r}\n{rewrite.state}")
        found.update(["rewritten"] * len(rewrite.layouts) + list(rewrite.kept.values()))
    return found


# -- which layout ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "shape"),
    [(0, (512, 512)), (TRANSFORM, (512, 512)), (PRE_TRANSFORMED, (4, 8, 4, 4, 512))],
)
def test_the_reference_example(option: int, shape: tuple[int, ...]) -> None:
    """B[k, j] becomes 4j8j4j4j512k with option 2. Source: TVM's test of this name, S1."""
    rewrite = rewrite_layouts(tiled(matmul(512, 512, 512)), option)
    assert rewrite.tensors[1].shape == shape


@pytest.mark.parametrize(
    "names", [("i", "j", "k"), ("x1", "y2", "r_3"), ("a_1", "a_11", "a"), ("i0", "i1", "i")]
)
def test_names_of_axes_play_no_part(names: tuple[str, str, str]) -> None:
    rewrite = rewrite_layouts(tiled(matmul(512, 512, 512, *names)), PRE_TRANSFORMED)
    assert rewrite.layouts["B"].spec == [(1, 4), (1, 8), (1, 4), (1, 4), (0, 512)]


def test_a_transform_stage_is_parallel_and_comes_right_after_its_input() -> None:
    rewrite = rewrite_layouts(tiled(matmul(512, 512, 512)), TRANSFORM)
    assert [stage.name for stage in rewrite.state.stages] == ["A", "B", "B.layout", "C"]
    stage = rewrite.state.stages[2]
    assert [loop.annotation for loop in stage.iterators] == [Annotation.PARALLEL, 0, 0]
    assert len(stage.op.axis) == 5


def test_a_transform_stage_copies_neighbours_as_vectors() -> None:
    state = State.initial(ComputeDAG(matmul(32, 64, 32))).split(2, 1, [16]).reorder(2, [0, 1, 3, 2])
    rewrite = rewrite_layouts(state, TRANSFORM)
    assert [loop.annotation for loop in rewrite.state.stages[2].iterators] == [
        Annotation.PARALLEL,
        Annotation.VECTORIZE,
    ]
    assert "B.layout[" in str(ansor.lower(rewrite.state))


def test_fused_loops_count_as_what_they_were_fused_from() -> None:
    state = State.initial(ComputeDAG(matmul(32, 64, 32))).split(2, 1, [4, 8]).reorder(2, [1, 0, 2, 4, 3])
    plain = rewrite_layouts(state, PRE_TRANSFORMED).layouts
    fused = state.fuse(2, [0, 1, 2]).annotate(2, 0, Annotation.PARALLEL)
    assert rewrite_layouts(fused, PRE_TRANSFORMED).layouts == plain
    split = state.fuse(2, [0, 1, 2]).split(2, 0, [7])
    assert rewrite_layouts(split, PRE_TRANSFORMED).layouts == plain
    assert plain["B"].spec == [(1, 2), (1, 4), (0, 32), (1, 8)]


def test_loops_around_an_attached_stage_come_first() -> None:
    """The tile of the copy, and then the loops of the cache inside of it."""
    state = State.initial(ComputeDAG(matmul(32, 64, 48))).cache_write(2, "local")
    state = state.split(3, 0, [8]).split(3, 2, [16]).reorder(3, [0, 2, 1, 3]).compute_at(2, 3, 1)
    state = state.split(2, 2, [6]).split(2, 1, [4]).reorder(2, [0, 3, 1, 4, 2])
    for ready in (state, state.fuse(3, [0, 1]).annotate(3, 0, Annotation.PARALLEL)):
        rewrite = rewrite_layouts(ready, PRE_TRANSFORMED)
        assert rewrite.layouts["B"].spec == [(1, 4), (0, 8), (1, 4), (0, 6), (1, 4)]
        text = re.sub(r"_\d+\b", "", str(ansor.lower(rewrite.state)))
        place = "j.0" if ready is state else "i.0@j.0@%4"
        assert f"B[{place}, k.0, j_c.0, k.1, j_c.1]" in text
        check_options(ready, random_inputs(ready.dag))


def test_a_loop_order_from_the_inside_out_is_followed() -> None:
    state = State.initial(ComputeDAG(matmul(8, 24, 16))).split(2, 1, [4]).reorder(2, [2, 0, 3, 1])
    rewrite = rewrite_layouts(state, PRE_TRANSFORMED)
    assert rewrite.layouts["B"].spec == [(1, 4, 1), (0, 16, 1), (1, 6, 4)]
    check_options(state, random_inputs(state.dag))


def test_tiles_that_do_not_divide_are_padded() -> None:
    state = (
        State.initial(ComputeDAG(matmul(13, 29, 17))).split(2, 0, [4]).split(2, 2, [3, 8]).split(2, 5, [5])
    )
    state = state.reorder(2, [0, 2, 5, 3, 1, 6, 4]).annotate(2, 6, Annotation.VECTORIZE)
    rewrite = rewrite_layouts(state, PRE_TRANSFORMED)
    assert rewrite.layouts["B"].new_shape == (2, 4, 3, 5, 8)
    check_options(state, random_inputs(state.dag))


# -- what stays as it is -------------------------------------------------------------------------------------


def reason(state: State) -> str:
    (text,) = rewrite_layouts(state, PRE_TRANSFORMED).kept.values()
    return text


def test_inputs_read_in_order_stay() -> None:
    state = State.initial(ComputeDAG(matmul(8, 16, 4))).reorder(2, [0, 2, 1])
    assert reason(state) == "it is read in the order in which it is stored"
    assert rewrite_layouts(state, TRANSFORM).state is state


def test_extents_of_one() -> None:
    state = State.initial(ComputeDAG(matmul(1, 1, 1))).fuse(2, [0, 1]).annotate(2, 0, Annotation.PARALLEL)
    assert reason(state) == "it is read in the order in which it is stored"
    narrow = State.initial(ComputeDAG(matmul(1, 6, 4))).split(2, 1, [3]).reorder(2, [0, 1, 3, 2])
    assert rewrite_layouts(narrow, PRE_TRANSFORMED).layouts["B"].spec == [(1, 2), (0, 4), (1, 3)]
    check_options(narrow, random_inputs(narrow.dag))


def test_weights_at_computed_indices_stay() -> None:
    state = State.initial(ComputeDAG(grouped_by_division())).split(2, 1, [4])
    assert "'Y' reads it at" in reason(state)
    check_options(state, random_inputs(state.dag))


def test_dimensions_at_computed_indices_stay_in_front() -> None:
    """A transposed convolution of one dimension: a remainder says which taps an output meets."""
    x, w = te.placeholder((9, 8), name="X"), te.placeholder((4, 8, 32), name="W")
    t, r = te.reduce_axis((0, 2), "t"), te.reduce_axis((0, 8), "r")
    y = te.compute(
        (16, 32),
        lambda i, c: te.sum(x[i // 2 + 1 - t, r] * w[i % 2 + t * 2, r, c], axis=[t, r]),
        name="Y",
        attrs={"layout_free_placeholders": [w]},
    )
    state = (
        State.initial(ComputeDAG([x, w, y])).split(2, 1, [8]).split(2, 0, [4]).reorder(2, [2, 0, 4, 5, 1, 3])
    )
    layouts = rewrite_layouts(state, PRE_TRANSFORMED).layouts
    assert layouts["W"].to_json() == ((0, 4, 1), (2, 4, 8), (1, 8, 1), (2, 8, 1))
    check_options(state, random_inputs(state.dag))


def test_inputs_without_dimensions_or_at_places_that_data_say_stay() -> None:
    x, w = te.placeholder((6, 8), name="X"), te.placeholder((), name="W")
    y = te.compute((6, 8), lambda i, j: x[i, j] * w[()], name="Y", attrs={"layout_free_placeholders": [w]})
    assert "in which it is stored" in reason(State.initial(ComputeDAG([x, w, y])))
    rows, table = te.placeholder((6,), "int32", name="Rows"), te.placeholder((9, 32), name="W")
    z = te.compute(
        (6, 32), lambda i, j: table[rows[i], j], name="Z", attrs={"layout_free_placeholders": [table]}
    )
    state = State.initial(ComputeDAG([rows, table, z])).split(2, 1, [8]).reorder(2, [1, 0, 2])
    assert "'Z' reads it at" in reason(state)


def test_an_input_that_is_read_at_two_places_stays() -> None:
    """batch_matmul(x, x)."""
    x = te.placeholder((2, 6, 5), name="X")
    k = te.reduce_axis((0, 5), "k")
    y = te.compute(
        (2, 6, 6),
        lambda b, i, j: te.sum(x[b, i, k] * x[b, j, k], axis=k),
        name="Y",
        attrs={"layout_free_placeholders": [x]},
    )
    state = State.initial(ComputeDAG([x, y])).reorder(1, [3, 0, 1, 2])
    assert reason(state) == "'Y' reads it at 2 different places"
    check_options(state, random_inputs(state.dag))


def test_an_input_read_twice_at_one_place_and_by_others_is_rewritten_for_all() -> None:
    x, w = te.placeholder((6, 5), name="X"), te.placeholder((5, 8), name="W")
    k, q = te.reduce_axis((0, 5), "k"), te.reduce_axis((0, 5), "q")
    y = te.compute(
        (6, 8),
        lambda i, j: te.sum(x[i, k] * w[k, j] + w[k, j], axis=k),
        name="Y",
        attrs={"layout_free_placeholders": [w]},
    )
    z = te.compute((8,), lambda j: te.sum(w[q, 7 - j], axis=q), name="Z")
    state = State.initial(ComputeDAG([x, w, y, z]))
    y_stage = state.stage_id("Y")
    state = state.split(y_stage, 1, [4])
    found = check_options(state, random_inputs(state.dag))
    assert found == {"rewritten": 2}


def test_an_input_behind_a_cache_stays() -> None:
    state = State.initial(ComputeDAG(matmul(8, 16, 4))).cache_read(1, "local", [2])
    assert "no stage that declares it free of layout" in reason(state)


def test_symbolic_shapes_stay() -> None:
    n = te.var("n")
    x, w = te.placeholder((n,), name="X"), te.placeholder((n, 4), name="W")
    k = te.reduce_axis((0, n), "k")
    y = te.compute(
        (4,),
        lambda j: te.sum(x[k] * w[k, j], axis=k),
        name="Y",
        attrs={"layout_free_placeholders": [w]},
    )
    assert reason(State.initial(ComputeDAG([x, w, y]))) == "its shape is symbolic"


def test_nothing_is_rewritten_twice_or_without_being_asked() -> None:
    state = tiled(matmul(512, 512, 512))
    assert rewrite_layouts(state, 0).state is state
    once = rewrite_layouts(state, PRE_TRANSFORMED).state
    assert rewrite_layouts(once, PRE_TRANSFORMED).state is once
    assert list(input_layouts(once)) == [1]


# -- results -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("func", "args"),
    [
        ("matmul", (24, 36, 20)),
        ("matmul", (13, 29, 7)),
        ("dense", (5, 24, 30)),
        ("batch_matmul", (2, 9, 12, 10)),
        ("matmul_add", (14, 10, 22)),
        ("conv2d", (1, 6, 6, 4, 6, 3, 1, 1)),
        ("conv2d", (1, 6, 6, 6, 6, 3, 1, 1, 1, 3)),
        ("conv1d", (1, 11, 5, 6, 3, 2, 1)),
        ("transposed_conv2d", (1, 4, 3, 6, 20, 4, 2, 1)),
    ],
)
def test_sampled_programs_do_not_change_by_a_bit(func: str, args: tuple[int, ...]) -> None:
    task = ansor.SearchTask(func=f"ansor.{func}", args=args, target="llvm")
    inputs = random_inputs(task.compute_dag)
    expected = evaluate(task.compute_dag.outputs, inputs)
    found: Counter[str] = Counter()
    for program in ansor.sample_programs(task, 2, np.random.default_rng(3), {"max_tile_waste": 1.5}):
        (value,) = call(program, inputs)
        np.testing.assert_allclose(value, expected[task.compute_dag.outputs[0]], rtol=1e-4, atol=1e-4)
        found += check_options(program, inputs)
    assert found["rewritten"] >= 2


@pytest.mark.parametrize("seed", range(24))
def test_random_schedules_do_not_change_by_a_bit(seed: int) -> None:
    c = Chooser.from_seed(seed)
    dag = ComputeDAG(matmul(c.between(1, 9), c.between(1, 17), c.between(1, 9)))
    state = random_state(c, dag, 10)
    check_options(state, random_inputs(dag, seed))


def test_copies_for_a_gpu_are_made_by_threads() -> None:
    """What copies a constant is a kernel as others are; it has no parallel loop, which is for CPUs."""
    task, rewritten = gpu_task(matmul(1, 16, 96)), 0
    for state in ansor.sample_programs(task, 8, np.random.default_rng(0)):
        rewrite = rewrite_layouts(state, TRANSFORM)
        rewritten += bool(rewrite.layouts)
        Case.of(rewrite.state).check_interpreted(lower(rewrite.state, name="kernel", kernels=True))
    assert rewritten


def test_there_are_three_options() -> None:
    with pytest.raises(ansor.DefinitionError, match="layout_rewrite_option=7 is unknown; options are 0"):
        rewrite_layouts(State.initial(ComputeDAG(matmul(4, 4, 4))), 7)
