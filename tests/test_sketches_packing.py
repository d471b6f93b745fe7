"""Packing a tile of an input: which sketches there are, that their programs are right, and how to by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from ansor import te
from ansor.errors import DefinitionError
from ansor.runtime.build import build
from ansor.schedule.lowering import lower
from ansor.schedule.manual import Schedule
from ansor.schedule.source import schedule_code
from ansor.schedule.state import State
from ansor.schedule.steps import FollowLayoutStep, SplitStep, step_from_json
from ansor.task.task import LayoutRewriteOption, Task
from ansor.te import Tensor
from ansor.te.expr import Expr, free_vars
from ansor.te.interp import evaluate
from sketches import CPU_RULES, ProgramSpace, generate_sketches, sample_programs
from sketches.rules.packing import AddPackedRead
from tests.program_laws import Case, check_all
from tests.sketches_cases import (
    HARDWARE,
    SMALL,
    check_program,
    matmul,
    matmul_relu,
    own_transpose,
    padded_conv1d,
    row_sum,
    task_of,
)

PACKING = {"cpu_packed_read": 2}


def band(rows: int, width: int, depth: int) -> list[Tensor]:
    """Scores of each position with those of a window behind it: S[i, w] = Q[i, k] K[i + w, k]."""
    q, keys = te.placeholder((rows, depth), name="Q"), te.placeholder((rows + width - 1, depth), name="K")
    k = te.reduce_axis((0, depth), "k")
    s = te.compute((rows, width), lambda i, w: te.sum(q[i, k] * keys[i + w, k], axis=k), name="S")
    return [q, keys, s]


def disparities(most: int, rows: int, columns: int, channels: int, channels_last: bool) -> list[Tensor]:
    """How alike the pixels of two images are that lie some columns apart, to the left: C[d, y, x]."""
    size = (rows, columns + most)

    def image(name: str) -> tuple[Tensor, Callable[[Expr, Expr, Expr], Expr]]:
        made = te.placeholder((*size, channels) if channels_last else (channels, *size), name=name)
        return made, lambda c, y, x: made[(y, x, c) if channels_last else (c, y, x)]

    (left, at_left), (right, at_right) = image("L"), image("R")
    c = te.reduce_axis((0, channels), "c")
    costs = te.compute(
        (most, rows, columns),
        lambda d, y, x: te.sum(at_left(c, y, x) * at_right(c, y, x - d + most), axis=c),
        name="C",
    )
    return [left, right, costs]


def strided_band(rows: int, width: int, depth: int) -> list[Tensor]:
    """A band whose window moves by two: vectors along the rows take every other position."""
    q, keys = te.placeholder((rows, depth), name="Q"), te.placeholder((2 * rows + width, depth), name="K")
    k = te.reduce_axis((0, depth), "k")
    s = te.compute((width, rows), lambda w, i: te.sum(q[i, k] * keys[2 * i + w, k], axis=k), name="S")
    return [q, keys, s]


WINDOWS = {
    "band": lambda: band(21, 17, 6),
    "band along the rows": lambda: strided_band(19, 5, 6),
    "disparities": lambda: disparities(5, 3, 19, 4, channels_last=True),
}
SPACES = {name: ProgramSpace.of(task_of(SMALL[name]()), PACKING) for name in SMALL}


def packed_stages(state: State) -> list[str]:
    """Names of the stages that pack something."""
    made: list[str] = []
    current = State.initial(state.dag)
    for step in state.steps:
        current = current.apply(step)
        if isinstance(step, FollowLayoutStep):
            made.append(current.stages[step.stage].name)
    return made


def random_inputs(state: State, seed: int) -> dict[Tensor, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        t: rng.uniform(-1, 1, [int(s) for s in t.shape if isinstance(s, int)]).astype(t.dtype)
        for t in state.dag.inputs
    }


# -- sketches ----------------------------------------------------------------------------------------------


def test_packing_is_off_by_default_and_on_by_parameter_or_rule() -> None:
    task = task_of(matmul(64, 64, 64))
    plain = generate_sketches(task)
    by_parameter = generate_sketches(task, PACKING)
    by_rule = generate_sketches(task, rules=(AddPackedRead(), *CPU_RULES))
    assert not any("AddPackedRead" in sketch.rules for sketch in plain)
    assert [s.explain() for s in by_parameter] == [s.explain() for s in by_rule]
    without = [s.explain() for s in by_parameter if "AddPackedRead" not in s.rules]
    assert without == [s.explain() for s in plain]


def test_operands_of_narrow_dtypes_alone_are_packed_on_request() -> None:
    def packs(*dtypes: str) -> bool:
        a, b = te.placeholder((64, 64), dtypes[0], "A"), te.placeholder((64, 64), dtypes[0], "B")
        k, out = te.reduce_axis((0, 64), "k"), dtypes[-1]
        c = te.compute(
            (64, 64), lambda i, j: te.sum(a[i, k].astype(out) * b[k, j].astype(out), axis=k), name="C"
        )
        sketches = generate_sketches(task_of([a, b, c]), {"cpu_packed_read": 1})
        return any("AddPackedRead" in sketch.rules for sketch in sketches)

    assert packs("bfloat16", "float32")
    assert packs("int8", "int32")
    assert not packs("float32")
    assert not packs("float64")


@pytest.mark.parametrize(
    ("batch", "n", "transposed", "packs"),
    [(1, 512, False, True), (4, 512, False, True), (8, 128, False, False), (1, 32, True, True)],
)
def test_panels_of_products_are_packed_without_asking(
    batch: int, n: int, transposed: bool, packs: bool
) -> None:
    """The rows of B that vectors pass over lie apart, or the vectors themselves do."""
    a, b = te.placeholder((batch, n, n), name="A"), te.placeholder((batch, n, n), name="B")
    k = te.reduce_axis((0, n), "k")
    c = te.compute(
        (batch, n, n),
        lambda g, i, j: te.sum(a[g, i, k] * (b[g, j, k] if transposed else b[g, k, j]), axis=k),
        name="C",
    )
    found = {tuple(packed_stages(sketch.state)) for sketch in generate_sketches(task_of([a, b, c]))}
    assert found == ({(), ("B.local",)} if packs else {()})


def test_the_rule_packs_whatever_the_parameter_says() -> None:
    rules = (AddPackedRead(), *CPU_RULES)
    sketches = generate_sketches(task_of(matmul(64, 64, 64)), {"cpu_packed_read": 1}, rules)
    assert any("AddPackedRead" in sketch.rules for sketch in sketches)


def test_each_operand_is_packed_or_not() -> None:
    sketches = generate_sketches(task_of(matmul(64, 64, 64)), PACKING)
    assert len(sketches) == 4 * len(generate_sketches(task_of(matmul(64, 64, 64))))
    kinds = {tuple(packed_stages(sketch.state)) for sketch in sketches}
    assert kinds == {(), ("A.local",), ("B.local",), ("B.local", "A.local")}


def test_only_what_is_reused_is_packed() -> None:
    """A row sum reads each element once; the vector of a matrix-vector product is read by every row."""
    assert not any("AddPackedRead" in s.rules for s in generate_sketches(task_of(row_sum(8, 60)), PACKING))
    a, x = te.placeholder((40, 30), name="A"), te.placeholder((30,), name="x")
    k = te.reduce_axis((0, 30), name="k")
    y = te.compute((40,), lambda i: te.sum(a[i, k] * x[k], axis=k), name="y")
    packed = {p for s in generate_sketches(task_of([a, x, y]), PACKING) for p in packed_stages(s.state)}
    assert packed == {"x.local"}


def test_a_tensor_that_is_read_two_ways_is_packed_for_each_that_gains() -> None:
    """Of a product with its own transpose the rows that lie across the lanes are packed without asking."""
    a, b = te.placeholder((96, 64), name="A"), te.placeholder((96, 64), name="B")
    k = te.reduce_axis((0, 64), "k")
    two = te.compute((96, 96), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="C")

    def packed(tensors: list[Tensor], params: dict[str, int]) -> list[int]:
        return sorted(len(packed_stages(s.state)) for s in generate_sketches(task_of(tensors), params))

    assert packed(own_transpose(96, 64), {}) == packed([a, b, two], {})
    assert {*packed(own_transpose(96, 64), PACKING)} == {0, 2}
    for sketch in generate_sketches(task_of(own_transpose(96, 64))):
        if packed_stages(sketch.state):
            reader = next(stage for stage in sketch.state.stages if stage.op.name.startswith("C"))
            (packing,) = [op for op in reader.op.input_tensors if ".local" in op.op.name]
            (read,) = sketch.state.access.reads(reader.compute)[packing.op]
            assert reader.compute.axis[1] in free_vars(*read)
            assert reader.compute.axis[0] not in free_vars(*read)


def test_one_of_several_outputs_that_is_read_two_ways_is_read_where_it_is() -> None:
    x = te.placeholder((32, 24, 4), name="X")
    both = te.comm_reducer(
        lambda a, b: (a[0] + b[0], te.maximum(a[1], b[1])),
        lambda s, q: (te.const(0.0, s), te.min_value(q)),
        name="both",
    )
    r, k = te.reduce_axis((0, 4), "r"), te.reduce_axis((0, 24), "k")
    total, most = te.compute((32, 24), lambda i, j: both((x[i, j, r], x[i, j, r]), axis=r), name="Both")
    product = te.compute((32, 32), lambda i, j: te.sum(total[i, k] * total[j, k], axis=k), name="C")
    sketches = generate_sketches(task_of([x, most, product]), PACKING)
    assert sketches
    assert not any(packed_stages(sketch.state) for sketch in sketches)


def test_windows_are_not_packed_but_the_weights_are() -> None:
    packed = {
        p
        for s in generate_sketches(task_of(padded_conv1d(12, 4, 6)), PACKING)
        for p in packed_stages(s.state)
    }
    assert packed == {"W.local"}


def packed_in(tensors: list[Tensor]) -> list[tuple[str, ...]]:
    """What each sketch packs without asking."""
    return sorted(tuple(packed_stages(sketch.state)) for sketch in generate_sketches(task_of(tensors)))


def test_windows_that_vectors_run_across_are_packed_without_asking() -> None:
    """Of several tensors that the vectors lie across, all are packed or none."""
    assert packed_in(band(64, 32, 16)) == [()] * 3 + [("K.local",)] * 3
    assert packed_in(disparities(16, 8, 32, 16, True)) == [()] * 3 + [("R.local", "L.local")] * 3
    assert packed_in(disparities(16, 8, 32, 16, False)) == [()] * 3


def test_the_copy_of_a_window_holds_a_tile_and_its_margin() -> None:
    task = task_of(band(64, 32, 16))
    sketch = next(s for s in generate_sketches(task) if packed_stages(s.state))
    lengths = iter([(2, 4, 8), (1, 1, 16), (4,)])
    steps = [
        replace(step, lengths=next(lengths)) if isinstance(step, SplitStep) else step for step in sketch.steps
    ]
    follow = next(step for step in steps if isinstance(step, FollowLayoutStep))
    before = State.replay(task.compute_dag, steps[: steps.index(follow)])
    assert follow.layout(before).spec == [(1, 4), (1, 4), (0, 95)]
    # Inside k.0 the tile has 4 x 8 rows and a window of 16.
    text = str(lower(State.replay(task.compute_dag, steps), simple_mode=True))
    assert "allocate K.local[1, 4, 47]" in text


def test_a_computed_operand_is_packed_and_then_inlined_into_the_copy() -> None:
    a, b = te.placeholder((16, 24), name="A"), te.placeholder((24, 32), name="B")
    double = te.compute((16, 24), lambda i, j: a[i, j] + a[i, j], name="Double")
    k = te.reduce_axis((0, 24), name="k")
    c = te.compute((16, 32), lambda i, j: te.sum(double[i, k] * b[k, j], axis=k), name="C")
    sketches = generate_sketches(task_of([a, b, c]), PACKING)
    both = [s for s in sketches if "Double.local" in packed_stages(s.state)]
    assert both
    for sketch in both:
        assert sketch.state.stages[sketch.state.stage_id("Double")].compute_at == "inlined"


@pytest.mark.parametrize(("dtype", "converts"), [("float32", 1), ("float16", 1), ("float16", 0)])
def test_constants_that_the_task_rewrites_are_left_to_it(dtype: str, converts: int) -> None:
    """But not those that a copy holds converted, which no other layout does."""
    a, b = te.placeholder((64, 64), dtype, "A"), te.placeholder((64, 64), dtype, "B")
    k = te.reduce_axis((0, 64), name="k")
    free = te.compute(
        (64, 64),
        lambda i, j: te.sum(te.cast(a[i, k], "float32") * te.cast(b[k, j], "float32"), axis=k),
        name="C",
        attrs={"layout_free_placeholders": [b]},
    )
    all_, others = {"A.local", "B.local"}, {"A.local"}
    if dtype != "float32" and converts:
        others = all_
    for option, expected in ((0, all_), (1, others), (2, others)):
        plain = task_of([a, b, free])
        task = Task.create(
            plain.dag,
            "[]",
            "llvm",
            hardware_params=HARDWARE,
            layout_rewrite_option=LayoutRewriteOption(option),
        )
        sketches = generate_sketches(task, {**PACKING, "cpu_store_converted": converts})
        packed = {p for s in sketches for p in packed_stages(s.state)}
        assert packed == expected


def test_the_parameter_is_checked() -> None:
    with pytest.raises(DefinitionError, match="cpu_packed_read"):
        generate_sketches(task_of(matmul(4, 4, 4)), {"cpu_packed_read": "yes"})


# -- programs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(SPACES))
def test_packed_programs_compute_the_expression(name: str) -> None:
    """Compiled; prime extents, extents of one, stages moved and inlined by sampling."""
    space = SPACES[name]
    programs = sample_programs(task_of(SMALL[name]()), 4, np.random.default_rng(7), space=space)
    inputs = random_inputs(programs[0], 3)
    dag = programs[0].dag
    expected = evaluate(dag.outputs, inputs)
    for program in programs:
        found = build(program, dag.tensors, target="llvm")(*(inputs[t] for t in dag.inputs))
        np.testing.assert_allclose(
            found, expected[dag.outputs[0]], rtol=1e-4, atol=1e-4, err_msg=str(program)
        )


@pytest.mark.parametrize("name", WINDOWS)
def test_programs_with_packed_windows_compute_the_expression(name: str) -> None:
    case = task_of(WINDOWS[name]())
    space = ProgramSpace.of(case)
    kept = tuple(sketch for sketch in space.sketches if packed_stages(sketch.state))
    assert kept
    only = ProgramSpace(space.context, kept, space.annotators)
    for state in sample_programs(case, 5, np.random.default_rng(7), space=only):
        check_program(state)
        check_all(Case.of(state))


def test_columns_and_rows_agree_on_the_extents_of_packed_tiles() -> None:
    """Bound inference over a whole population gives what it gives for each of its programs."""
    space = ProgramSpace.of(task_of(matmul_relu(36, 20, 30)), PACKING | {"max_tile_waste": 1.5})
    sample = space.sample(60, np.random.default_rng(5))
    compared = 0
    for population in sample.populations:
        columns = population.bounds
        if not any(isinstance(step, FollowLayoutStep) for step in columns.steps):
            continue
        for row in range(len(population)):
            single = State.replay(columns.dag, population.family.fill(population.values[row : row + 1]))
            alone = single.with_bounds()
            for ours, theirs in zip(columns.stages, alone.stages, strict=True):
                assert [x.name for x in ours.iterators] == [x.name for x in theirs.iterators]
                for a, b in zip(ours.iterators, theirs.iterators, strict=True):
                    width = a.extent[row] if isinstance(a.extent, np.ndarray) else a.extent
                    own = b.extent[0] if isinstance(b.extent, np.ndarray) else b.extent
                    assert width == own, (ours.name, a.name)
            compared += 1
    assert compared > 20


def test_materialised_rows_have_the_loops_of_their_columns() -> None:
    space = ProgramSpace.of(task_of(matmul(37, 20, 30)), PACKING)
    sample = space.sample(40, np.random.default_rng(9))
    for population in sample.populations:
        names = [stage.name for stage in population.bounds.stages]
        for row in range(len(population)):
            state = population.materialize(row)
            assert [stage.name for stage in state.stages] == names


# -- the same by hand ----------------------------------------------------------------------------------------


def by_hand(n: int, m: int, k: int, scope: str) -> tuple[Schedule, list[Tensor]]:
    """A matrix product in tiles of 6 x 16 with both operands packed inside the outer reduction loop."""
    a, b, c = matmul(n, m, k)
    s = te.create_schedule(c)
    a_packed = s.cache_read(a, scope, [c])
    a_packed = s.rewrite_layout(a_packed, [(0, None), 1, (0, 6)])
    b_packed = s.cache_read(b, scope, [c])
    b_packed = s.rewrite_layout(b_packed, [(1, None), 0, (1, 16)])
    (i, j), (r,) = s[c].op.axis, s[c].op.reduce_axis
    i0, i1, i2 = s[c].split(i, factors=[2, 6])
    j0, j1, j2 = s[c].split(j, factors=[2, 16])
    r0, r1 = s[c].split(r, factor=8)
    s[c].reorder(i0, j0, r0, i1, j1, r1, i2, j2)
    s[c].vectorize(j2)
    for packed in (a_packed, b_packed):
        s[packed].compute_at(s[c], r0)
    s[c].parallel(s[c].fuse(i0, j0))
    return s, [a, b, c]


@pytest.mark.parametrize("scope", ["local", "global"])
@pytest.mark.parametrize(("n", "m", "k"), [(24, 64, 32), (25, 61, 19), (3, 5, 2)])
def test_packing_by_hand_does_not_change_a_bit(n: int, m: int, k: int, scope: str) -> None:
    s, args = by_hand(n, m, k, scope)
    inputs = random_inputs(s.state, 1)
    found = build(s, args, target="llvm")(*(inputs[t] for t in args[:2]))
    plain = te.create_schedule(args[2])
    plain[args[2]].vectorize(plain[args[2]].op.axis[1])
    expected = build(plain, args, target="llvm")(*(inputs[t] for t in args[:2]))
    assert np.array_equal(found, expected)


def test_the_kernel_reads_packed_tiles_front_to_back() -> None:
    """[row tile][k][row] and [column tile][k][lane], of one tile of the reduction."""
    s, args = by_hand(24, 64, 32, "local")
    text = str(lower(s, args, simple_mode=True))
    assert "allocate A.local[2, 8, 6] float32 local" in text
    assert "allocate B.local[2, 8, 16] float32 local" in text
    assert "A.local[i.1_1, k.1, i.2_1]*B.local[j.1_1, k.1, j.2_1]" in text


def test_the_layout_follows_the_tiles_of_the_reader() -> None:
    task = task_of(matmul(64, 96, 48))
    sketch = next(s for s in generate_sketches(task, PACKING) if packed_stages(s.state) == ["B.local"])
    steps = list(sketch.steps)
    lengths = iter([(2, 4, 8), (3, 2, 16), (12,)])
    for position, step in enumerate(steps):
        if isinstance(step, SplitStep):
            steps[position] = replace(step, lengths=next(lengths))
    state = State.replay(task.compute_dag, steps)
    follow = next(step for step in steps if isinstance(step, FollowLayoutStep))
    before = State.replay(task.compute_dag, steps[: steps.index(follow)])
    assert follow.layout(before).spec == [(1, 1), (1, 3), (0, 4), (1, 2), (0, 12), (1, 16)]
    # Inside k.0 the tile is [j.2][k.1][j.3].
    text = str(lower(state, simple_mode=True))
    assert "allocate B.local[1, 1, 1, 2, 12, 16]" in text


def test_records_and_code_say_the_same() -> None:
    space = SPACES["fused matmul"]
    task = task_of(SMALL["fused matmul"]())
    programs = sample_programs(task, 12, np.random.default_rng(2), space=space)
    packed = [p for p in programs if any(isinstance(s, FollowLayoutStep) for s in p.steps)]
    assert packed
    for program in packed:
        assert any(not step.in_reference for step in program.steps)
        again = State.replay(
            program.dag, [step_from_json(json.loads(json.dumps(step.to_json()))) for step in program.steps]
        )
        assert again == program
        names: dict[str, object] = {}
        exec(schedule_code(program), names)
        text = str(lower(names["s"], names["tensors"]))  # type: ignore[arg-type]
        assert text == str(lower(program))
