"""Loops over triangles and bands: how much of them is run and what is tested; results stay as they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

import ansor
from ansor import te, workloads
from ansor.ir.interp import run_nest
from ansor.ir.nest import For, If, Let, LoopKind, LoopNest, Stmt, Store, sub_statements
from ansor.ir.printer import format_stmt
from ansor.ir.verify import check_nest
from ansor.te.expr import Expr, Load
from ansor.te.tensor import Tensor
from tests.costmodel_executed import Executed, Point, stores_made, value_of
from tests.paths import walk

SIZE = 64
Where = Callable[[Expr, Expr], Expr]

BANDS: dict[str, Where] = {
    "causal": lambda i, k: k <= i,
    "anticausal": lambda i, k: k >= i,
    "window": lambda i, k: te.all(k <= i, k > i - 9),
    "steep": lambda i, k: 3 * k + 5 <= 2 * i,
    "falling": lambda i, k: i + k >= 70,
    "disjoint": lambda i, k: te.all(k < i - 20, k > i + 3),
}


HOLDS: dict[str, Callable[[NDArray[np.int_], NDArray[np.int_]], NDArray[np.bool_]]] = {
    "causal": lambda i, k: k <= i,
    "anticausal": lambda i, k: k >= i,
    "window": lambda i, k: (k <= i) & (k > i - 9),
    "steep": lambda i, k: 3 * k + 5 <= 2 * i,
    "falling": lambda i, k: i + k >= 70,
    "disjoint": lambda i, k: (k < i - 20) & (k > i + 3),
}
"""The same of numbers."""


def masked_product(n: int, m: int, d: int, where: Where) -> list[Tensor]:
    """`C[i, j]`, float32, sums `P[i, k] * V[k, j]` over those k for which `where(i, k)` holds."""
    p, v = te.placeholder((n, m), name="P"), te.placeholder((m, d), name="V")
    k = te.reduce_axis((0, m), name="k")
    c = te.compute((n, d), lambda i, j: te.sum(p[i, k] * v[k, j], axis=k, where=where(i, k)), name="C")
    return [p, v, c]


def tiled(where: Where, rows: int = 4, terms: int = 4) -> tuple[LoopNest, LoopNest]:
    """A masked product in tiles: as it is built, and as the schedule says it."""
    tensors = masked_product(SIZE, SIZE, 16, where)
    schedule = in_tiles(tensors, rows, terms)
    return ansor.lower(schedule, tensors), ansor.lower(schedule, tensors, simple_mode=True)


def in_tiles(tensors: list[Tensor], rows: int = 4, terms: int = 4) -> te.Schedule:
    """Some rows and terms at once, in vectors along the last axis."""
    schedule = te.create_schedule(tensors[-1].op)
    stage = schedule[tensors[-1]]
    outer, inner = stage.split(stage.op.axis[0], factor=rows)
    k_outer, k_inner = stage.split(stage.op.reduce_axis[0], factor=terms)
    stage.reorder(outer, k_outer, k_inner, inner, stage.op.axis[1])
    stage.vectorize(stage.op.axis[1])
    return schedule


REDUCERS: dict[str, tuple[Callable[..., Expr], float]] = {
    "sum": (te.sum, 0.0),
    "product": (te.prod, 1.0),
    "max": (te.max, -np.inf),
    "min": (te.min, np.inf),
}
"""Reductions of floats, and the term that changes nothing."""


def chosen_terms(reducer: str, dtype: str, where: Where) -> tuple[list[Tensor], list[Tensor]]:
    """A reduction of products of which a choice takes some, else the identity; the same by `where=`."""
    reduce, identity = REDUCERS[reducer]
    if dtype == "int32" and reducer in ("max", "min"):
        limits = np.iinfo(np.int32)
        identity = limits.min if reducer == "max" else limits.max

    def made(*, chosen: bool) -> list[Tensor]:
        p, v = te.placeholder((SIZE, SIZE), dtype, "P"), te.placeholder((SIZE, 16), dtype, "V")
        k = te.reduce_axis((0, SIZE), name="k")

        def element(i: Expr, j: Expr) -> Expr:
            term = p[i, k] * v[k, j]
            if chosen:
                return reduce(te.select(where(i, k), term, te.const(identity, dtype)), axis=k)
            return reduce(term, axis=k, where=where(i, k))

        return [p, v, te.compute((SIZE, 16), element, name="C")]

    return made(chosen=True), made(chosen=False)


def result(nest: LoopNest) -> NDArray[np.float32]:
    check_nest(nest)
    rng = np.random.default_rng(1)
    p, v = (rng.random(shape, dtype=np.float32) for shape in ((SIZE, SIZE), (SIZE, 16)))
    c = np.full((SIZE, 16), np.nan, np.float32)
    run_nest(nest, [p, v, c])
    return c


def steps(stmt: Stmt, at: Point) -> int:
    """How many tests and updates are made, a vector as one."""
    match stmt:
        case For(var=var, extent=extent, kind=kind, body=body):
            times = (
                1
                if kind is LoopKind.VECTORIZED
                else extent
                if isinstance(extent, int)
                else value_of(extent, at)
            )
            return sum(steps(body, {**at, var: value}) for value in range(times))
        case If(cond=cond, then=then, other=other):
            taken = then if value_of(cond, at) else other
            return 1 + (0 if taken is None else steps(taken, at))
        case Let(var=var, value=value, body=body):
            return steps(body, {**at, var: value_of(value, at)})
        case Store(value=value):
            return int(any(isinstance(node, Load) and node.buffer.name == "P" for node in walk(value)))
        case _:
            return sum(steps(inner, at) for inner in sub_statements(stmt))


@pytest.mark.parametrize("band", BANDS)
@pytest.mark.parametrize("tile", [(1, 1), (4, 4), (8, 2), (3, 5)])
def test_what_a_band_excludes_is_not_run(band: str, tile: tuple[int, int]) -> None:
    rows, terms = tile
    built, plain = tiled(BANDS[band], rows, terms)
    np.testing.assert_array_equal(result(built), result(plain))
    i, k = np.arange(SIZE)[:, None], np.arange(SIZE)[None]
    inside = int(np.sum(HOLDS[band](i, k)))
    # Each row meets up to two borders, and in tiles there tests some terms.
    assert steps(built.body, {}) <= inside + 2 * SIZE * (rows + terms)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("reducer", REDUCERS)
@pytest.mark.parametrize("band", ["causal", "window", "falling"])
def test_a_choice_of_the_identity_is_a_condition(band: str, reducer: str, dtype: str) -> None:
    tensors, others = chosen_terms(reducer, dtype, BANDS[band])
    built = ansor.lower(in_tiles(tensors), tensors)
    same = ansor.lower(in_tiles(others), others)
    check_nest(built)
    rng = np.random.default_rng(3)
    p, v = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((SIZE, SIZE), (SIZE, 16)))
    outs = [np.zeros((SIZE, 16), dtype) for _ in range(3)]
    run_nest(built, [p, v, outs[0]])
    run_nest(ansor.lower(in_tiles(tensors), tensors, simple_mode=True), [p, v, outs[1]])
    ansor.build(built)(p, v, outs[2])
    for out in (outs[0], outs[2]):
        np.testing.assert_array_equal(out, outs[1])
    i, k = np.arange(SIZE)[:, None], np.arange(SIZE)[None]
    # What is tested by `if` is not done; a choice is made after its term.
    made = steps(built.body, {})
    assert made <= steps(same.body, {}) + 2 * SIZE * 4
    assert made <= int(np.sum(HOLDS[band](i, k))) + 2 * SIZE * 8


def test_a_causal_product_is_written_in_two_parts() -> None:
    built, _ = tiled(BANDS["causal"], 4, 8)
    lines = format_stmt(built.body).splitlines()
    assert "  let k.0.until: int32 = i.0//2" in lines
    first = lines.index("  for k.0 in 0..k.0.until:")
    second = lines.index("  for k.0_1 in 0..k.0.stop - k.0.until:")
    assert not any("if" in line for line in lines[first:second])
    assert any("if" in line for line in lines[second:])


@pytest.mark.parametrize("shape", [(1, 14, 14, 8, 8, 3, 1, 1), (2, 9, 9, 16, 4, 5, 2, 2)])
def test_padding_and_ragged_tiles_are_no_bands(shape: tuple[int, ...]) -> None:
    task = ansor.SearchTask(workloads.conv2d, shape)
    for program in ansor.sample_programs(task, 8, np.random.default_rng(0)):
        assert "let " not in str(ansor.lower(program, task.compute_dag.tensors))


def test_symbolic_sizes() -> None:
    n = te.var("n")
    p, v = te.placeholder((n, n), name="P"), te.placeholder((n, 8), name="V")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, 8), lambda i, j: te.sum(p[i, k] * v[k, j], axis=k, where=k <= i), name="C")
    schedule = te.create_schedule(c.op)
    stage = schedule[c]
    outer, inner = stage.split(c.op.axis[0], factor=4)
    k_outer, k_inner = stage.split(k, factor=4)
    stage.reorder(outer, k_outer, inner, k_inner, c.op.axis[1])
    nest = ansor.lower(schedule, [p, v, c])
    assert "k.0.until" in str(nest)
    function = ansor.build(schedule, [p, v, c])
    for size in (1, 3, 4, 13, 40):
        rng = np.random.default_rng(size)
        a, b = rng.random((size, size), dtype=np.float32), rng.random((size, 8), dtype=np.float32)
        out = np.empty((size, 8), np.float32)
        function(a, b, out)
        np.testing.assert_allclose(out, np.tril(a) @ b, rtol=1e-5)


def test_what_is_computed_for_a_tile_alone_is_skipped_with_it() -> None:
    x, v = te.placeholder((SIZE, SIZE), name="X"), te.placeholder((SIZE, 16), name="V")
    k = te.reduce_axis((0, SIZE), name="k")
    e = te.compute((SIZE, SIZE), lambda i, k: te.exp(x[i, k]), name="E")
    c = te.compute((SIZE, 16), lambda i, j: te.sum(e[i, k] * v[k, j], axis=k, where=k <= i), name="C")
    schedule = te.create_schedule(c.op)
    stage = schedule[c]
    outer, inner = stage.split(c.op.axis[0], factor=4)
    k_outer, k_inner = stage.split(k, factor=4)
    stage.reorder(outer, k_outer, k_inner, inner, c.op.axis[1])
    schedule[e].compute_at(stage, k_outer)
    nest = ansor.lower(schedule, [x, v, c])
    check_nest(nest)
    scratch = [one for one in Executed.of(nest).reached.items() if one[0].buffer.name == "E"]
    assert sum(count for _, count in scratch) <= SIZE * (SIZE + 3 * 4) // 2 + 2 * 4 * SIZE
    rng = np.random.default_rng(2)
    a, b = rng.random((SIZE, SIZE), dtype=np.float32), rng.random((SIZE, 16), dtype=np.float32)
    out = np.empty((SIZE, 16), np.float32)
    run_nest(nest, [a, b, out])
    np.testing.assert_allclose(out, np.tril(np.exp(a)) @ b, rtol=1e-5)


@pytest.mark.usefixtures("quick_pocl")
@pytest.mark.parametrize("target", ["llvm", "opencl"])
@pytest.mark.parametrize("seed", range(6))
def test_random_bands(seed: int, target: str) -> None:
    rng = np.random.default_rng(seed)
    n, m, d = (int(size) for size in rng.integers(1, 80, 3))
    slopes, last = rng.integers(-3, 4, (2, 2)), rng.integers(-20, 60, 2)
    i, k = np.arange(n)[:, None], np.arange(m)[None]
    tests = [
        lambda i, k, s=s, c=c: int(s[0]) * i + int(s[1]) * k <= int(c)
        for s, c in zip(slopes, last, strict=True)
    ]

    @ansor.register_workload(f"tests.band_{seed}_{target}")
    def band() -> list[Tensor]:
        return masked_product(n, m, d, lambda i, k: te.all(*(test(i, k) for test in tests)))

    task = ansor.SearchTask(band, (), target=target)
    p, v = rng.random((n, m), dtype=np.float32), rng.random((m, d), dtype=np.float32)
    expected = (p * (tests[0](i, k) & tests[1](i, k))) @ v
    for program in ansor.sample_programs(task, 3, rng):
        out = np.full((n, d), np.nan, np.float32)
        ansor.build(program, task.compute_dag.tensors, target=target)(p, v, out)
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [5, 8, 32, 33])
@pytest.mark.parametrize("factors", [{}, {"k": 8}, {"i": 4}, {"i": 4, "k": 8}])
def test_bands_without_tiles_or_with_ragged_ones(factors: dict[str, int], size: int) -> None:
    for where in (*BANDS.values(), lambda i, k: k >= i - 3, lambda i, k: te.all(k >= i - 3, k <= i)):
        tensors = masked_product(size, size, 8, where)
        schedule = te.create_schedule(tensors[-1].op)
        stage = schedule[tensors[-1]]
        for axis in (*stage.op.axis, *stage.op.reduce_axis):
            if axis.name in factors:
                stage.split(axis, factor=factors[axis.name])
        built, plain = (ansor.lower(schedule, tensors, simple_mode=simple) for simple in (False, True))
        check_nest(built)
        rng = np.random.default_rng(size)
        p, v = rng.random((size, size), dtype=np.float32), rng.random((size, 8), dtype=np.float32)
        outs = [np.full((size, 8), np.nan, np.float32) for _ in range(3)]
        run_nest(built, [p, v, outs[0]])
        run_nest(plain, [p, v, outs[1]])
        ansor.build(built)(p, v, outs[2])
        np.testing.assert_array_equal(outs[0], outs[1])
        np.testing.assert_allclose(outs[2], outs[1], rtol=1e-5)


def test_no_part_is_written_that_never_runs() -> None:
    tensors = masked_product(SIZE, SIZE, 8, lambda i, k: k >= i - 3)
    lines = str(ansor.lower(te.create_schedule(tensors[-1].op), tensors)).splitlines()
    assert [line.strip() for line in lines if "for k" in line] == ["for k in 0..64 - k.start:"]


@pytest.mark.parametrize("first", [0, 3, 4, 8])
@pytest.mark.parametrize("last", [1, 3, 8, 37])
@pytest.mark.parametrize("chosen", [False, True])
def test_ends_that_are_numbers(chosen: bool, first: int, last: int) -> None:
    x = te.placeholder((5, 40), name="X")
    k = te.reduce_axis((0, 40), name="k")

    def element(i: Expr) -> Expr:
        inside = te.all(k >= first, te.const(last, "int32") >= k)
        return te.sum(te.select(inside, x[i, k], 0.0), axis=k) if chosen else te.sum(x[i, k], k, inside)

    r = te.compute((5,), element, name="R")
    schedule = te.create_schedule(r)
    schedule[r].split(k, factor=4)
    nest = ansor.lower(schedule, [x, r])
    check_nest(nest)
    assert ".stop" not in str(nest)
    a = np.arange(200, dtype=np.float32).reshape(5, 40)
    outs = [np.full(5, np.nan, np.float32) for _ in range(2)]
    run_nest(nest, [a, outs[0]])
    ansor.build(schedule, [x, r])(a, outs[1])
    for out in outs:
        np.testing.assert_array_equal(out, a[:, first : last + 1].sum(1))


SIDE = 32
Mask = Callable[[Tensor, Expr, Expr], Expr]

MASKS: dict[str, tuple[Mask, Callable[[NDArray[np.int_], NDArray[np.int_]], NDArray[np.bool_]]]] = {
    "causal": (lambda s, i, j: te.select(j <= i, s[i, j], 0.0), HOLDS["causal"]),
    "anticausal": (lambda s, i, j: te.select(j >= i, s[i, j] + 1.0, 2.0), HOLDS["anticausal"]),
    "constant first": (lambda s, i, j: te.select(j > i, -1.0, s[i, j]), HOLDS["causal"]),
    "other side": (lambda s, i, j: te.if_then_else(j > i, te.cast(i, "float32"), s[i, j]), HOLDS["causal"]),
    "window": (lambda s, i, j: te.select(te.all(j <= i, j > i - 9), s[i, j], -np.inf), HOLDS["window"]),
    "one in the other": (
        lambda s, i, j: te.select(j <= i, te.select(j > i - 9, te.exp(s[i, j]), 3.0), 4.0),
        HOLDS["window"],
    ),
    "two reads": (
        lambda s, i, j: te.select(te.all(j <= i, j < 20), s[i, j], 1.0) * te.select(j <= i, s[i, j], 3.0),
        HOLDS["causal"],
    ),
}
"""What a mask lets through of `S[i, j]`, and where."""

UNMASKED: dict[str, Mask] = {
    "both sides": lambda s, i, j: te.select(j <= i, s[i, j], s[i, j] + 1.0),
    "beside": lambda s, i, j: te.select(j <= i, s[i, j], 0.0) + s[i, j],
    "opposite": lambda s, i, j: te.select(j <= i, s[i, j], 0.0) + te.select(j > i, s[i, j], 0.0),
    "data": lambda s, i, j: te.select(s[i, j] > 0.0, s[i, j], 0.0),
    "always": lambda s, i, j: te.select(j >= i - SIDE, s[i, j], 0.0),
}


def masked_scores(mask: Mask, rows: int, columns: int) -> tuple[te.Schedule, list[Tensor]]:
    """`C[i, j]`, float32, is a mask of the product `S` of P and V, computed for tiles of `C`."""
    p, v = te.placeholder((SIDE, 16), name="P"), te.placeholder((16, SIDE), name="V")
    k = te.reduce_axis((0, 16), name="k")
    s = te.compute((SIDE, SIDE), lambda i, j: te.sum(p[i, k] * v[k, j], axis=k), name="S")
    c = te.compute((SIDE, SIDE), lambda i, j: mask(s, i, j), name="C")
    schedule = te.create_schedule(c.op)
    stage = schedule[c]
    i, j = c.op.axis
    i_outer, j_outer, _, j_inner = stage.tile(i, j, rows, columns)
    stage.parallel(i_outer)
    stage.vectorize(j_inner)
    schedule[s].compute_at(stage, j_outer)
    return schedule, [p, v, c]


def check_scores(schedule: te.Schedule, tensors: list[Tensor]) -> int:
    """Compare with what the schedule says; returns how many elements of the product are computed."""
    nest, plain = (ansor.lower(schedule, tensors, simple_mode=simple) for simple in (False, True))
    check_nest(nest)
    rng = np.random.default_rng(4)
    p, v = rng.random((SIDE, 16), dtype=np.float32), rng.random((16, SIDE), dtype=np.float32)
    outs = [np.full((SIDE, SIDE), np.nan, np.float32) for _ in range(3)]
    run_nest(nest, [p, v, outs[0]])
    run_nest(plain, [p, v, outs[1]])
    ansor.build(nest)(p, v, outs[2])
    np.testing.assert_array_equal(outs[0], outs[1])
    np.testing.assert_allclose(outs[2], outs[1], rtol=1e-5)
    return stores_made(nest, lambda store: any(x.buffer.name == "P" for x in loads(store.value))) // 16


def loads(value: Expr) -> list[Load]:
    return [node for node in walk(value) if isinstance(node, Load)]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("tile", [(4, 8), (5, 7), (16, 4)])
def test_tiles_of_which_a_mask_lets_nothing_through_are_not_computed(
    mask: str, tile: tuple[int, int]
) -> None:
    element, holds = MASKS[mask]
    let_through = holds(np.arange(SIDE)[:, None], np.arange(SIDE)[None])
    rows, columns = tile
    tiles = [
        let_through[i : i + rows, j : j + columns]
        for i in range(0, SIDE, rows)
        for j in range(0, SIDE, columns)
    ]
    computed = check_scores(*masked_scores(element, rows, columns))
    assert computed == sum(tile.size for tile in tiles if tile.any())


@pytest.mark.parametrize("mask", UNMASKED)
def test_tiles_that_something_else_reads_are_computed(mask: str) -> None:
    assert check_scores(*masked_scores(UNMASKED[mask], 4, 8)) == SIDE * SIDE


def test_a_mask_that_hides_all_of_some_sizes_is_no_reason_for_another_version() -> None:
    n = te.var("n")
    x = te.placeholder((n,), name="X")
    b = te.compute((n,), lambda i: te.exp(x[i]), name="B")
    c = te.compute((n,), lambda i: te.select(i < n - 5, b[i], 0.0), name="C")
    lines = str(ansor.lower(te.create_schedule(c.op), [x, c])).splitlines()
    assert not any(line.startswith("else") for line in lines)


@pytest.mark.usefixtures("quick_pocl")
@pytest.mark.parametrize("target", ["llvm", "opencl"])
@pytest.mark.parametrize("mask", ["causal", "window"])
def test_programs_of_masked_scores(mask: str, target: str) -> None:
    element, holds = MASKS[mask]
    p, v = te.placeholder((SIDE, 16), name="P"), te.placeholder((16, SIDE), name="V")

    @ansor.register_workload(f"tests.scores_{mask}_{target}")
    def scores() -> list[Tensor]:
        k = te.reduce_axis((0, 16), name="k")
        s = te.compute((SIDE, SIDE), lambda i, j: te.sum(p[i, k] * v[k, j], axis=k), name="S")
        return [p, v, te.compute((SIDE, SIDE), lambda i, j: element(s, i, j), name="C")]

    task = ansor.SearchTask(scores, (), target=target)
    rng = np.random.default_rng(5)
    a, b = rng.random((SIDE, 16), dtype=np.float32), rng.random((16, SIDE), dtype=np.float32)
    let_through = holds(np.arange(SIDE)[:, None], np.arange(SIDE)[None])
    expected = np.where(let_through, a @ b, 0.0 if mask == "causal" else -np.inf)
    for program in ansor.sample_programs(task, 6, rng):
        out = np.full((SIDE, SIDE), np.nan, np.float32)
        ansor.build(program, task.compute_dag.tensors, target=target)(a, b, out)
        np.testing.assert_allclose(out, expected, rtol=1e-4)
