"""Tiling to tensor intrinsics: when the rule fires, what it makes, and that all its programs are right."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.codegen.machine import Machine
from ansor.schedule.bounds import infer_bounds
from ansor.schedule.lowering import lower
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.schedule.steps import TensorizeStep
from ansor.te.tensor import Tensor
from ansor.workloads.catalogue import get_workload
from costmodel.extraction.extract import extract_forms
from costmodel.extraction.form import Form
from costmodel.features.table import INDEX
from search.params import REFERENCE_SPACE
from sketches import ProgramSpace, Sketch, generate_sketches
from sketches.columns import fill_holes
from sketches.locate import locate
from sketches.neighbours import Neighbourhood
from tests.costmodel_law import Compared, check_rows
from tests.program_laws import Case, check_all

ON = {**REFERENCE_SPACE, "cpu_tensor_intrinsics": 2}
MULTIPLIED_OUT = {**ON, "cpu_distribute_products": 1, "cpu_window_tiling": 1, "cpu_keep_row_sums": 1}
ZEN4 = "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -num-cores=2"
BYTES = ("uint8", "int32", "int8")
BF16 = ("bfloat16", "float32")
VNNI = "vpdpbusd" in Machine.host().instructions
needs_vnni = pytest.mark.skipif(not VNNI, reason="this CPU has no VNNI")
needs_bf16 = pytest.mark.skipif(
    "vdpbf16ps" not in Machine.host().instructions, reason="this CPU has no AVX512-BF16"
)


def tensors(name: str, *args: int | str) -> list[Tensor]:
    return get_workload(name).tensors(*args)


def relu(n: int, m: int, k: int) -> list[Tensor]:
    """A product of bytes, made positive: the tile may go to its consumer."""
    a, b, c = tensors("matmul", n, m, k, *BYTES)
    return [a, b, te.compute((n, m), lambda i, j: te.maximum(c[i, j], te.const(0, "int32")), name="R")]


def quantised(n: int, m: int, k: int, left: str = "uint8", right: str = "int8") -> list[Tensor]:
    """A product of bytes less their zero points, one for all of A, and one for each column of B."""
    a, b = te.placeholder((n, k), left, "A"), te.placeholder((k, m), right, "B")
    points, r = te.placeholder((m,), "int32", "Points"), te.reduce_axis((0, k), "k")
    c = te.compute(
        (n, m),
        lambda i, j: te.sum((a[i, r].astype("int32") - 128) * (b[r, j].astype("int32") - points[j]), axis=r),
        name="C",
    )
    return [a, b, points, c]


def quantised_relu(n: int, m: int, k: int) -> list[Tensor]:
    """The same, made positive."""
    *inputs, c = quantised(n, m, k)
    return [*inputs, te.compute((n, m), lambda i, j: te.maximum(c[i, j], te.const(0, "int32")), name="R")]


def task_of(made: list[Tensor], target: str = ZEN4, **options: Any) -> ansor.SearchTask:
    return ansor.SearchTask(compute_dag=made, target=target, **options)


def sketches(made: list[Tensor], target: str = ZEN4, **options: Any) -> list[Sketch]:
    return generate_sketches(task_of(made, target, **options), ON)


def loops(state: State, stage: str) -> list[str]:
    return [loop.name for loop in state.stages[state.stage_id(stage)].iterators]


def intrinsics(state: State) -> list[Any]:
    return [step.to_json()[-1] for step in state.steps if step.code == "TI"]


# -- sketches ----------------------------------------------------------------------------------------------


def test_a_product_is_tiled_by_the_widest_intrinsic_and_its_operand_packed() -> None:
    (sketch,) = sketches(tensors("matmul", 64, 96, 32, *BYTES))
    assert sketch.explain() == "TensorIntrinsicRule(C), TensorIntrinsicRule(B)"
    assert intrinsics(sketch.state) == ["x86.vpdpbusd.512"]
    assert loops(sketch.state, "C") == (
        ["i.0", "j.0.0", "i.1", "j.0.1", "k.0.0", "i.2", "j.0.2", "k.0.1", "i.3", "j.0.3", "j.1", "k.1"]
    )
    marks = [loop.annotation for loop in sketch.state.stages[sketch.state.stage_id("C")].iterators]
    assert marks[-2:] == [Annotation.VECTORIZE, Annotation.TENSORIZE]
    assert loops(sketch.state, "B.local")[-2:] == ["ax1_4", "ax0_2"]  # lanes, and side by side their products


def test_fixed_lengths_are_no_holes() -> None:
    (sketch,) = sketches(tensors("matmul", 64, 96, 32, *BYTES))
    names = {(hole.columns[0].axis, hole.extent) for hole in sketch.holes}
    assert names == {("i", 64), ("j.0", 6), ("k.0", 8)}


def test_a_consumer_shares_the_tiles() -> None:
    found = sketches(relu(64, 96, 32))
    assert len(found) == 3
    places = [sketch.state.attach.get(sketch.state.stage_id("C")) for sketch in found]
    assert [place and place[1] for place in places] == [None, 1, 3]
    assert loops(found[1].state, "R") == ["i.0", "j.0.0", "i.1", "j.0.1", "j.1"]


def test_convolutions_run_over_channels() -> None:
    (sketch,) = sketches(tensors("conv2d", 1, 8, 8, 16, 32, 3, 1, 1, 1, 1, *BYTES))
    assert loops(sketch.state, "Conv")[-2:] == ["c.1", "rc.1"]
    assert sketch.explain() == "TensorIntrinsicRule(Conv), TensorIntrinsicRule(W)"


@pytest.mark.parametrize(
    ("made", "target"),
    [
        (lambda: tensors("matmul", 64, 96, 32, *BYTES), "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell"),
        (lambda: tensors("matmul", 64, 96, 32, *BF16), "llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake"),
        (lambda: tensors("matmul", 64, 96, 32), ZEN4),
        (lambda: tensors("matmul", 64, 96, 30, *BYTES), ZEN4),
        (lambda: tensors("matmul", 64, 3, 32, *BYTES), ZEN4),
        (lambda: tensors("matmul", 64, 96, 32, "int8", "int64"), ZEN4),
    ],
    ids=["no VNNI", "no BF16", "float32", "products left over", "few columns", "a wider sum"],
)
def test_elsewhere_sketches_are_what_they_were(made: Callable[[], list[Tensor]], target: str) -> None:
    task = task_of(made(), target)
    assert [str(s) for s in generate_sketches(task, ON)] == [
        str(s) for s in generate_sketches(task, REFERENCE_SPACE)
    ]


def test_narrow_outputs_take_narrower_intrinsics() -> None:
    (sketch,) = sketches(tensors("matmul", 64, 12, 32, *BYTES))
    assert intrinsics(sketch.state) == ["x86.vpdpbusd.256"]


def test_arm_and_other_x86_machines_take_theirs() -> None:
    made = tensors("matmul", 64, 96, 32, "int8")
    (sketch,) = sketches(made, "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -num-cores=2")
    assert intrinsics(sketch.state) == ["arm.sdot"]
    made = tensors("matmul", 64, 96, 32, *BYTES)
    (sketch,) = sketches(made, "llvm -mtriple=x86_64-linux-gnu -mcpu=alderlake -num-cores=2")
    assert intrinsics(sketch.state) == ["x86.vpdpbusd.256"]


def test_of_a_product_with_its_own_transpose_what_the_lanes_read_is_packed_alone() -> None:
    a, k = te.placeholder((64, 64), "int8", name="A"), te.reduce_axis((0, 64), "k")
    made = te.compute(
        (64, 64), lambda i, j: te.sum(a[i, k].astype("int32") * a[j, k].astype("int32"), axis=k), name="C"
    )
    (sketch,) = sketches([a, made], "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -num-cores=2")
    assert intrinsics(sketch.state) == ["arm.sdot"]
    assert loops(sketch.state, "A.local")[-2:] == ["ax0_4", "ax1_2"]  # lanes, and their products
    assert len([stage for stage in sketch.state.stages if stage.name.startswith("A")]) == 2


def test_constants_whose_layout_is_rewritten_are_not_packed_twice() -> None:
    made = tensors("matmul", 64, 96, 32, *BYTES)
    (sketch,) = sketches(made, layout_rewrite_option=ansor.LayoutRewriteOption.INSERT_TRANSFORM_STAGE)
    assert sketch.explain() == "TensorIntrinsicRule(C)"


@pytest.mark.parametrize(
    ("left", "right", "name"),
    [
        ("uint8", "int8", "x86.vpdpbusd.512"),
        ("int8", "uint8", "x86.vpdpbusd.512"),
        ("int8", "int8", "x86.vpdpbusd.s8s8.512"),
        ("uint8", "uint8", "x86.vpdpbusd.u8u8.512"),
    ],
)
def test_products_with_zero_points_are_multiplied_out(left: str, right: str, name: str) -> None:
    """The products are an instruction's, and the columns of B are summed as vectors."""
    found = generate_sketches(task_of(quantised(64, 96, 32, left, right), ZEN4), MULTIPLIED_OUT)
    for sketch in found:
        assert sketch.explain().startswith("DistributeProducts(C), TensorIntrinsicRule(C.products)")
        assert intrinsics(sketch.state) == [name]
        assert loops(sketch.state, "C.right") == ["j.0", "k", "j.1"]
    assert len(found) == 3
    found = generate_sketches(task_of(quantised_relu(64, 96, 32), ZEN4), MULTIPLIED_OUT)
    assert all("DistributeProducts(C), AlwaysInline(C)" in sketch.explain() for sketch in found)
    assert len(found) == 3


def test_where_sums_are_much_of_the_work_products_are_also_left_as_they_are() -> None:
    task = task_of(quantised(8, 16, 32), ZEN4)
    found, plain = generate_sketches(task, MULTIPLIED_OUT), generate_sketches(task, REFERENCE_SPACE)
    out = [str(sketch) for sketch in found if sketch.explain().startswith("DistributeProducts(C)")]
    assert out
    assert [str(sketch) for sketch in found if str(sketch) not in out] == [str(sketch) for sketch in plain]


@pytest.mark.parametrize(
    ("made", "params"),
    [
        (lambda: quantised(64, 96, 30), {}),
        (lambda: quantised(64, 3, 32), {}),
        (lambda: quantised(64, 96, 32, "int16"), {}),
        (lambda: quantised(64, 96, 32), {"cpu_tensor_intrinsics": 0}),
        (lambda: quantised(64, 96, 32), {"cpu_distribute_products": 0}),
    ],
    ids=["products left over", "few columns", "int16", "no intrinsics", "not asked for"],
)
def test_products_are_multiplied_out_for_an_instruction_alone(
    made: Callable[[], list[Tensor]], params: dict[str, int]
) -> None:
    found = generate_sketches(task_of(made(), ZEN4), {**MULTIPLIED_OUT, **params})
    assert not any("DistributeProducts" in sketch.explain() for sketch in found)


def test_products_are_not_multiplied_out_on_a_machine_without_the_instruction() -> None:
    made = quantised(64, 96, 32)
    for target, known in (
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell", False),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=alderlake -num-cores=2", True),
        ("cuda -arch=sm_90", False),
    ):
        found = generate_sketches(task_of(made, target))
        assert all("DistributeProducts" in sketch.explain() for sketch in found) == known
        assert any("DistributeProducts" in sketch.explain() for sketch in found) == known


# -- programs ----------------------------------------------------------------------------------------------

CASES: dict[str, Callable[[], list[Tensor]]] = {
    "bytes": lambda: tensors("matmul", 7, 48, 24, *BYTES),
    "bfloat16": lambda: tensors("matmul_add", 6, 20, 33, *BF16),
    "relu": lambda: relu(6, 40, 16),
    "convolution": lambda: tensors("conv2d", 1, 5, 4, 8, 20, 3, 1, 1, 1, 1, *BYTES),
    "zero points": lambda: quantised(40, 48, 8),
    "zero points, relu": lambda: quantised_relu(33, 36, 8),
}


@cache
def space(name: str) -> ProgramSpace:
    return ProgramSpace.of(
        task_of(CASES[name](), "llvm" if VNNI else ZEN4), {**MULTIPLIED_OUT, "max_tile_waste": 1.4}
    )


def rows(name: str, count: int) -> list[tuple[Any, int, State]]:
    found = []
    for population in space(name).sample(count, np.random.default_rng(3)).populations:
        for row, values in enumerate(population.values):
            found.append(
                (population, row, State.replay(population.family.dag, population.family.program(values)))
            )
    assert len(found) == count
    return found


@pytest.mark.parametrize("name", CASES)
def test_sampled_programs_are_right(name: str) -> None:
    for _, _, state in rows(name, 4):
        assert intrinsics(state)
        check_all(Case.of(state))


@pytest.mark.parametrize("name", CASES)
def test_sampled_programs_are_found_again(name: str) -> None:
    neighbourhood = Neighbourhood(space(name))
    for population, row, state in rows(name, 8):
        found = locate(neighbourhood, state)
        assert found is not None
        family, values = found
        assert family.key == population.family.key
        assert State.replay(family.dag, family.program(values[0])) == state, row


@pytest.mark.parametrize("name", CASES)
def test_loops_are_tensorized_alike_whatever_the_lengths_of_others(name: str) -> None:
    """So what leads there is replayed once for all lengths (`Sketch.frame`)."""
    made = space(name)
    tensorized = [x for x in made.sketches if any(isinstance(step, TensorizeStep) for step in x.steps)]
    assert tensorized
    for sketch in tensorized:
        at = next(at for at, step in enumerate(sketch.steps) if isinstance(step, TensorizeStep))
        assert len(sketch.frame.state.steps) > at
        tiles = made.sample_tiles(sketch, 8, np.random.default_rng(0))
        steps = fill_holes(sketch.steps, sketch.holes, list(tiles.T))
        framed = infer_bounds(sketch.frame.filled(steps))
        replayed = infer_bounds(State.replay(sketch.state.dag, steps))
        for stage, known in replayed.stages.items():
            for loop, extent in known.extents.items():
                np.testing.assert_array_equal(framed.stages[stage].extents[loop], extent)


@pytest.mark.parametrize("name", CASES)
def test_their_features_are_counts_of_their_loops(name: str) -> None:
    task, compared = task_of(CASES[name]()), Compared()
    for population, row, state in rows(name, 8):
        family, form = population.family, Form.of_population(population)
        features = extract_forms(task, [form], scaled=False)
        lengths = [int(value) for value in population.values[row]]
        plain = State.replay(family.dag, fill_holes(family.steps, family.holes, lengths))
        own = features.values[features.offsets[row] : features.offsets[row + 1]]
        compared += check_rows(form, own, plain, state, row=row)
    compared.check_most()


def test_features_see_the_register_tile_that_lowering_makes() -> None:
    found = 0
    for population, row, state in rows("bytes", 16):
        limits = Machine.for_target(ZEN4).register_limits
        nest = str(lower(state, limits=limits))
        features = extract_forms(task_of(CASES["bytes"]()), [Form.of_population(population)], scaled=False)
        last = features.values[features.offsets[row + 1] - 1]
        assert ("C.acc[" in nest) == (last[INDEX["tile"]] > 0), nest
        found += "C.acc[" in nest
    assert found


def test_features_count_every_use_of_an_instruction_once_and_what_it_waits_for() -> None:
    """A tile of 4 x 2 registers, each waited for by the next step alone."""
    n, m, k, lanes, products = 16, 32, 64, 16, 2
    state = State.initial(ansor.ComputeDAG(tensors("matmul", n, m, k, *BF16)))
    state = state.split(2, 2, [products]).split(2, 1, [lanes]).split(2, 0, [4])  # i.0 i.1 j.0 j.1 k.0 k.1
    state = state.reorder(2, [0, 4, 1, 2, 3, 5]).apply(TensorizeStep(2, 4, "x86.vdpbf16ps.512"))
    (values,) = extract_forms(task_of(list(state.dag.tensors)), [Form.of_state(state)], scaled=False).values
    uses = n * m * k // (lanes * products)
    expected = {
        "tile_registers": 8,
        "work": uses,
        "chain": uses / 8,
        "accumulator_moves": n * m / lanes,
        "stores_scattered": 0,
        "loads_broadcast": uses / 2,
        "loads_scattered": uses / 4 * products,
    }
    assert {name: values[INDEX[name]] for name in expected} == pytest.approx(expected)


@pytest.mark.usefixtures("small_searches", "kept_workers")
@pytest.mark.parametrize(
    ("args", "instruction"),
    [
        pytest.param((64, 64, 64, *BYTES), "vpdpbusd", marks=needs_vnni),
        pytest.param((64, 64, 64, *BF16), "vdpbf16ps", marks=needs_bf16),
    ],
)
def test_tuning_finds_programs_that_use_the_instruction(
    tmp_path: Any, args: tuple[Any, ...], instruction: str
) -> None:
    log = str(tmp_path / "log.json")
    task = ansor.SearchTask(func="ansor.matmul", args=args, target="llvm")
    options = ansor.TuningOptions(
        num_measure_trials=4, measure_callbacks=[ansor.RecordToFile(log)], verbose=0
    )
    result = task.tune(options, ansor.SketchPolicy(task, params={"cpu_tensor_intrinsics": 2}))
    assert not result.errors, result
    schedule, made = task.apply_best(log)
    program = ansor.build(schedule, made, target=task.target)
    assert re.search(rf"{instruction}|\btdp", program.get_source("asm"))
    Case.of(schedule.state).check_compiled(lower(schedule, name="kernel"))


@pytest.mark.parametrize(("cpu", "chosen"), [("znver4", True), ("sapphirerapids -mattr=-amx-tile", False)])
def test_an_instruction_that_is_slow_on_a_cpu_is_left_alone_there(cpu: str, chosen: bool) -> None:
    """But where it is asked for; float32 copies of both operands are multiplied instead."""
    target = f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu} -num-cores=2"
    task = task_of(tensors("matmul", 64, 64, 64, *BF16), target)
    for wanted, used in ((1, chosen), (2, True)):
        found = generate_sketches(task, {"cpu_tensor_intrinsics": wanted})
        assert all("TensorIntrinsicRule(C)" in sketch.explain() for sketch in found) == used
        assert any("TensorIntrinsicRule" in sketch.explain() for sketch in found) == used
    packs = ("AddPackedRead(B)", "AddPackedRead(A)")
    both = [all(one in sketch.explain() for one in packs) for sketch in generate_sketches(task)]
    assert any(both) != chosen
