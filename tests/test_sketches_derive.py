"""Sketch rules: counts and texts of TVM, provenance, attributes, custom rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from ansor import te
from ansor.errors import DefinitionError, ScheduleError
from ansor.schedule.access import NO_SPLIT_ATTR, SIMPLIFY_CONST_ATTR
from ansor.schedule.stages import Annotation, ComputeAt
from ansor.schedule.state import State
from ansor.te import Tensor
from search.params import REFERENCE_SPACE, Params
from sketches import CPU_RULES, Sketch, SketchContext, SketchParams, Verdict, derive, generate_sketches
from sketches.rule import Successor
from tests.sketches_cases import (
    matmul,
    matmul_relu,
    oracle_lines,
    oracle_workload,
    row_sum,
    softmax,
    task_of,
    zero_rank,
)


def sketches_of(tensors: list[Tensor], params: Params = REFERENCE_SPACE, **options: Any) -> list[Sketch]:
    return generate_sketches(task_of(tensors), params, **options)


def names(sketch: Sketch, stage: str) -> list[str]:
    """Loop names of a stage."""
    return [loop.name for loop in sketch.state.stages[sketch.state.stage_id(stage)].iterators]


# -- TVM's texts and counts ----------------------------------------------------------------------------------


def test_sketches_print_as_the_recorded_ones() -> None:
    """Sixteen workloads: the same sketches in the same order, loop by loop."""
    found = 0
    for entry in oracle_lines("task", "llvm"):
        texts = [str(sketch) for sketch in sketches_of(oracle_workload(entry["workload"]))]
        assert texts == entry["sketches"], entry["workload"]
        found += 1
    assert found == 16


def test_gpu_sketches_print_as_the_recorded_ones() -> None:
    """The same for CUDA; where a split is longer than its loop, the inner part is as long as the loop."""
    found = 0
    for entry in oracle_lines("task", "cuda"):
        task = task_of(oracle_workload(entry["workload"]), "cuda")
        texts = [str(sketch) for sketch in generate_sketches(task, REFERENCE_SPACE)]
        if entry["workload"] == "norm":
            texts = [text.replace("threadIdx.x q.1 (0,4)", "threadIdx.x q.1 (0,32)") for text in texts]
        assert texts == entry["sketches"], entry["workload"]
        found += 1
    assert found == 16


def test_matmul_is_tiled_or_cached() -> None:
    """Plain tiling; a write cache fused at the first spatial level; at the second."""
    plain, first, second = sketches_of(matmul(512, 512, 512))
    assert plain.rules == ("MultiLevelTiling",)
    tiles = ["i.0", "j.0", "i.1", "j.1", "k.0", "i.2", "j.2", "k.1", "i.3", "j.3"]
    assert names(plain, "C") == tiles
    for sketch, level in ((first, 1), (second, 2)):
        assert sketch.rules == ("AddCacheWrite", "MultiLevelTilingWithFusion")
        assert sketch.explain() == "AddCacheWrite(C), MultiLevelTilingWithFusion(C.local)"
        target, loop = sketch.state.attach[sketch.state.stage_id("C.local")]
        assert sketch.state.stages[target].iterators[loop].name == f"j.{level - 1}"


def test_an_output_that_another_operation_reads_keeps_its_tiles_to_itself() -> None:
    """Tiled inside the reader, an output would not be computed whole."""
    a, b, d = matmul_relu(64, 64, 64)
    (c,) = d.op.input_tensors
    assert [s.explain() for s in sketches_of([a, b, c, d])] == [
        "MultiLevelTiling(C)",
        "AddCacheWrite(C), MultiLevelTilingWithFusion(C.local)",
        "AddCacheWrite(C), MultiLevelTilingWithFusion(C.local)",
    ]


def test_short_matmul_also_factors_its_reduction() -> None:
    """8x8 outputs cannot occupy four cores: two rfactor sketches come first."""
    found = sketches_of(matmul(8, 8, 512))
    assert [sketch.rules[0] for sketch in found[:2]] == ["AddRfactor", "AddRfactor"]
    assert len(found) == 5
    assert names(found[0], "C.rf") == ["i", "j", "k_o", "k_i"]
    assert names(found[1], "C.rf") == ["i", "j", "k_o", "k_i"]
    outer, inner = (sketch.state.stages[sketch.state.stage_id("C.repl")] for sketch in found[:2])
    assert (outer.iterators[-1].name, inner.iterators[-1].name) == ("k_o_v", "k_i_v")


def test_fused_matmul_needs_no_cache() -> None:
    """An elementwise consumer takes the tile; the unfused variant stays."""
    assert [sketch.rules for sketch in sketches_of(matmul_relu(512, 512, 512))] == [
        ("MultiLevelTilingWithFusion",),
        ("MultiLevelTilingWithFusion",),
        ("MultiLevelTiling",),
    ]


def chained_matmuls(n: int) -> list[Tensor]:
    a, b, c = matmul(n, n, n)
    d = te.placeholder((n, n), name="D")
    r = te.reduce_axis((0, n), name="r")
    return [a, b, d, te.compute((n, n), lambda i, j: te.sum(c[i, r] * d[r, j], axis=r), name="E")]


def conv2d_bias_bn_relu() -> list[Tensor]:
    x, w = te.placeholder((1, 58, 58, 64), name="X"), te.placeholder((3, 3, 64, 128), name="W")
    rh, rw, rc = (te.reduce_axis((0, n), name=name) for n, name in ((3, "rh"), (3, "rw"), (64, "rc")))
    conv = te.compute(
        (1, 56, 56, 128),
        lambda n, y, z, c: te.sum(x[n, y + rh, z + rw, rc] * w[rh, rw, rc, c], axis=[rh, rw, rc]),
        name="Conv",
    )
    bias, scale, shift = (te.placeholder((128,), name=name) for name in ("Bias", "Scale", "Shift"))
    biased = te.compute(conv.shape, lambda n, y, z, c: conv[n, y, z, c] + bias[c], name="Biased")
    bn = te.compute(conv.shape, lambda n, y, z, c: biased[n, y, z, c] * scale[c] + shift[c], name="Bn")
    relu = te.compute(
        conv.shape, lambda n, y, z, c: te.maximum(bn[n, y, z, c], te.const(0.0, "float32")), name="Relu"
    )
    return [x, w, bias, scale, shift, relu]


def max_pool2d() -> list[Tensor]:
    x = te.placeholder((1, 56, 56, 64), name="X")
    rh, rw = te.reduce_axis((0, 2), name="rh"), te.reduce_axis((0, 2), name="rw")
    out = te.compute(
        (1, 28, 28, 64),
        lambda n, y, z, c: te.max(x[n, y * 2 + rh, z * 2 + rw, c], axis=[rh, rw]),
        name="Pool",
    )
    return [x, out]


def constant_matrix(values: list[list[float]], name: str) -> Tensor:
    def at(i: Any, j: Any) -> Any:
        element: Any = te.const(0.0, "float32")
        for row, line in enumerate(values):
            for column, value in enumerate(line):
                here = te.all(te.floormod(i, len(values)) == row, te.floormod(j, len(line)) == column)
                element = te.select(here, te.const(value, "float32"), element)
        return element

    return te.compute((len(values), len(values[0])), at, name=name)


def winograd_conv2d(size: int = 14, channels: int = 32, out: int = 32) -> list[Tensor]:
    """Winograd's F(2x2, 3x3) on a channels-last image, with a transformed kernel as input."""
    tile, alpha = 2, 4
    across = size // tile
    x = te.placeholder((1, size + 2, size + 2, channels), name="X")
    kernel = te.placeholder((alpha, alpha, out, channels), name="Kernel")
    padded = te.compute(
        (1, size + 2, size + 2, channels),
        lambda n, y, z, c: te.if_then_else(
            te.all(y < size + 2, z < size + 2), x[n, y, z, c], te.const(0.0, "float32")
        ),
        name="Padded",
    )
    gathered = te.compute(
        (alpha, alpha, across * across, channels),
        lambda e, v, p, c: padded[
            0,
            te.indexmod(te.indexdiv(p, across), across) * tile + e,
            te.indexmod(p, across) * tile + v,
            c,
        ],
        name="Tiles",
    )
    forward = constant_matrix([[1.0, 0.0, 0.0, 0.0], [0, 1, -1, 1], [-1, 1, 1, 0], [0, 0, 0, -1]], "B")
    backward = constant_matrix([[1.0, 0.0], [1, 1], [1, -1], [0, -1]], "A")
    ra, rb = te.reduce_axis((0, alpha), name="ra"), te.reduce_axis((0, alpha), name="rb")
    packed = te.compute(
        gathered.shape,
        lambda e, v, p, c: te.sum(gathered[ra, rb, p, c] * forward[ra, e] * forward[rb, v], axis=[ra, rb]),
        name="Packed",
        attrs={SIMPLIFY_CONST_ATTR: ["e", "v", "ra", "rb"]},
    )
    rc = te.reduce_axis((0, channels), name="rc")
    products = te.compute(
        (alpha, alpha, across * across, out),
        lambda e, v, p, c: te.sum(packed[e, v, p, rc] * kernel[e, v, c, rc], axis=rc),
        name="Products",
    )
    sa, sb = te.reduce_axis((0, alpha), name="sa"), te.reduce_axis((0, alpha), name="sb")
    inverse = te.compute(
        (tile, tile, across * across, out),
        lambda h, w, p, c: te.sum(products[sa, sb, p, c] * backward[sa, h] * backward[sb, w], axis=[sa, sb]),
        name="Inverse",
        attrs={SIMPLIFY_CONST_ATTR: ["h", "w", "sa", "sb"]},
    )
    result = te.compute(
        (1, size, size, out),
        lambda n, y, z, c: inverse[
            te.indexmod(y, tile),
            te.indexmod(z, tile),
            te.indexdiv(y, tile) * across + te.indexdiv(z, tile),
            c,
        ],
        name="Out",
    )
    return [x, kernel, result]


@pytest.mark.parametrize(
    ("tensors", "cpu", "gpu"),
    [
        (lambda: matmul(512, 512, 512), 3, 1),
        (lambda: matmul(8, 8, 1024), 5, 2),
        (lambda: chained_matmuls(512), 9, 1),
        (conv2d_bias_bn_relu, 3, 1),
        (max_pool2d, 1, 1),
        (lambda: row_sum(10, 1024), 3, 2),
        (lambda: softmax(512, 512), 9, 4),
        (winograd_conv2d, 3, 1),
        (lambda: zero_rank(128), 3, 2),
    ],
    ids=["matmul", "short", "chain", "conv", "pool", "rows", "softmax", "winograd", "zero-rank"],
)
def test_counts_of_the_reference(tensors: Any, cpu: int, gpu: int) -> None:
    """The published numbers of sketches, for a CPU with four cores and for CUDA."""
    assert len(sketches_of(tensors())) == cpu
    assert len(generate_sketches(task_of(tensors(), "cuda"))) == gpu


def test_pooling_is_left_alone() -> None:
    """Nothing to reuse, nothing to inline: the only sketch has no step at all."""
    (only,) = sketches_of(max_pool2d())
    assert only.steps == ()
    assert only.explain() == "(no rule applied)"


# -- single rules --------------------------------------------------------------------------------------------


def test_inlining_skips_what_is_dear_or_crooked() -> None:
    """Cheap elementwise stages go; exp, branches and transposes keep their loops."""
    x = te.placeholder((8, 9), name="X")
    cheap = te.compute((8, 9), lambda i, j: x[i, j] + te.const(1.0, "float32"), name="Cheap")
    dear = te.compute((8, 9), lambda i, j: te.exp(cheap[i, j]), name="Dear")
    turned = te.compute((9, 8), lambda i, j: dear[j, i], name="Turned")
    out = te.compute((9, 8), lambda i, j: turned[i, j] * te.const(2.0, "float32"), name="Out")
    (only,) = sketches_of([x, out])
    inlined = {stage.name for stage in only.state.stages if stage.compute_at is ComputeAt.INLINED}
    assert inlined == {"Cheap"}


def test_an_output_that_is_read_is_not_inlined() -> None:
    """A stage whose result the user asked for keeps its loops although another stage reads it."""
    x = te.placeholder((8,), name="X")
    a = te.compute((8,), lambda i: x[i] + te.const(1.0, "float32"), name="A")
    b = te.compute((8,), lambda i: a[i] * te.const(2.0, "float32"), name="B")
    (only,) = sketches_of([x, a, b])
    assert all(stage.compute_at is not ComputeAt.INLINED for stage in only.state.stages)


def test_constant_transforms_are_unrolled() -> None:
    """Named loops innermost and unrolled, the others tiled once with their inner length open."""
    sketch = sketches_of(winograd_conv2d())[0]
    stage = sketch.state.stages[sketch.state.stage_id("Packed")]
    assert [loop.name for loop in stage.iterators] == ["p.0", "c.0", "p.1", "c.1", "e", "v", "ra", "rb"]
    marks = [loop.annotation for loop in stage.iterators]
    assert marks == [Annotation.NONE] * 4 + [Annotation.UNROLL] * 4


def test_loops_that_must_stay_whole() -> None:
    """`auto_scheduler_no_split_at_inner` keeps a loop unsplit, first of the innermost level of its kind."""
    for listed in (["i"], "i", '["i"]'):
        (only,) = sketches_of(matmul(16, 16, 16, **{NO_SPLIT_ATTR: listed}))[:1]
        assert names(only, "C") == ["j.0", "j.1", "k.0", "j.2", "k.1", "i", "j.3"], listed


def test_two_tiled_producers_of_one_consumer() -> None:
    """The consumer's tiles go to the producer visited first; the other gets a cache of its own."""
    a, b, left = matmul(16, 16, 16)
    c, d = te.placeholder((16, 16), name="E"), te.placeholder((16, 16), name="F")
    r = te.reduce_axis((0, 16), name="r")
    right = te.compute((16, 16), lambda i, j: te.sum(c[i, r] * d[r, j], axis=r), name="G")
    total = te.compute((16, 16), lambda i, j: left[i, j] + right[i, j], name="H")
    found = sketches_of([a, b, c, d, total])
    assert len({str(sketch) for sketch in found}) == len(found) == 9
    assert any("AddCacheWrite(C), MultiLevelTilingWithFusion(C.local)" in s.explain() for s in found)


def test_tiling_structure_is_a_parameter() -> None:
    """Another structure string gives other levels."""
    params = {**REFERENCE_SPACE, "cpu_multi_level_tiling_structure": "SRS", "eps_greedy": 0.05}
    plain = sketches_of(matmul(16, 16, 16), params=params)[0]
    assert names(plain, "C") == ["i.0", "j.0", "k", "i.1", "j.1"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"cpu_multi_level_tiling_structure": "SXS"}, "letters S"),
        ({"max_innermost_split_factor": 0}, "at least 1"),
        ({"max_vectorize_size": 16.0}, "must be an integer"),
    ],
)
def test_wrong_parameters_are_named(params: dict[str, object], message: str) -> None:
    """A parameter of the wrong type or range is refused with what to write instead."""
    with pytest.raises(DefinitionError, match=message):
        SketchParams.of(params)


def test_winograd_tiles_are_gathered_beside_their_transform_on_a_gpu() -> None:
    """Input tiles are computed just outside the unrolled loops; both factors go through shared memory."""
    (only,) = generate_sketches(task_of(winograd_conv2d(), "cuda"))
    target, loop = only.state.attach[only.state.stage_id("Tiles")]
    assert (only.state.stages[target].name, only.state.stages[target].iterators[loop].name) == (
        "Packed",
        "c.1",
    )
    assert {"Packed.shared", "Kernel.shared"} <= {stage.name for stage in only.state.stages}


# -- custom rules --------------------------------------------------------------------------------------------


class KeepReductionsWhole:
    """A user's rule: stages with a reduction are left alone."""

    name = "KeepReductionsWhole"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        whole = len(state.stages[stage_id].iterators) == 3
        return Verdict.APPLY_AND_SKIP_REST if whole else Verdict.PASS

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        return [(state, stage_id - 1)]


class StandStill(KeepReductionsWhole):
    """A mistake: changes nothing and visits the same stage again."""

    name = "StandStill"

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        return [(state, stage_id)]


class Doubling:
    """A mistake: splits a stage's first loop again and again, by one length or another."""

    name = "Doubling"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        return Verdict.APPLY_AND_SKIP_REST

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        return [(state.split(stage_id, 0, (length,)), stage_id) for length in (1, 2)]


def test_custom_rules_come_first() -> None:
    """A rule is any object with the two methods; put before ours it can skip them."""
    found = sketches_of(matmul(16, 16, 16), rules=(KeepReductionsWhole(), *CPU_RULES))
    assert [str(sketch.steps) for sketch in found] == ["()"]


def test_a_rule_that_does_not_move_on_is_refused() -> None:
    """The error names the rule and the stage instead of looping for ever."""
    with pytest.raises(ScheduleError, match=r"StandStill leaves stage 'C' unchanged"):
        sketches_of(matmul(16, 16, 16), rules=(StandStill(), *CPU_RULES))


def test_a_rule_that_makes_ever_more_structures_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derive, "MOST_STATES", 200)
    with pytest.raises(ScheduleError, match=r"by applying sketch rule Doubling to stage 'C' 8 times; let"):
        sketches_of(matmul(8, 8, 8), rules=(Doubling(), *CPU_RULES))


def test_rules_that_derive_nothing_are_refused() -> None:
    """Without SkipStage no state gets past the last stage; the error says what to add."""
    with pytest.raises(ScheduleError, match="put SkipStage"):
        sketches_of(max_pool2d(), rules=CPU_RULES[:-1])


# -- too many structures -------------------------------------------------------------------------------------


def products(count: int) -> list[Tensor]:
    """A product of so many matrices and one more."""
    given = [te.placeholder((16, 16), name=f"A{number}") for number in range(count + 1)]
    made = given[0]
    for number, factor in enumerate(given[1:]):
        k = te.reduce_axis((0, 16), name="k")
        made = te.compute(
            (16, 16), lambda i, j, a=made, b=factor, k=k: te.sum(a[i, k] * b[k, j], axis=k), name=f"C{number}"
        )
    return [*given, made]


def test_of_too_many_structures_some_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of products has the power of what one has; what rules make of each is among the rest."""
    every = sketches_of(products(4))
    assert len(every) == 3**4
    monkeypatch.setattr(derive, "MOST_STATES", 40)
    monkeypatch.setattr(derive, "KEPT_STATES", 20)
    kept = sketches_of(products(4))
    assert 20 <= len(kept) <= 40
    assert {str(sketch) for sketch in kept} < {str(sketch) for sketch in every}
    assert links(kept) == links(every)
    assert [str(sketch) for sketch in kept] == [str(sketch) for sketch in sketches_of(products(4))]


class Variant:
    """One of some structures of every stage."""

    def __init__(self, number: int) -> None:
        self.name = f"Variant{number}"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        return Verdict.APPLY

    def apply(self, context: SketchContext, state: State, stage_id: int) -> list[Successor]:
        return [(state, stage_id - 1)]


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_no_rule_is_favoured_where_some_structures_are_kept(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten structures for each, every tenth would always be the first."""
    monkeypatch.setattr(derive, "MOST_STATES", 100)
    monkeypatch.setattr(derive, "KEPT_STATES", 100)
    kept = sketches_of(products(4), rules=tuple(Variant(number) for number in range(count)))
    assert len(kept) == 100
    for stage in range(9):
        chosen = Counter(sketch.derivation[stage].rule for sketch in kept)
        assert all(80 / count <= chosen[f"Variant{number}"] <= 120 / count for number in range(count))


def links(sketches: Sequence[Sketch]) -> set[tuple[str, str]]:
    """Which rules were applied to which stages."""
    return {(link.rule, link.stage) for sketch in sketches for link in sketch.derivation}


def test_stages_of_one_name_are_visited_each_for_itself() -> None:
    """`te.compute` names all alike that are given no name."""
    x = te.placeholder((64,), name="X")
    made = x
    for _ in range(70):
        made = te.compute((64,), lambda i, p=made: p[i] + 1.0)
    assert sketches_of([x, made])


def test_a_chain_of_rows_has_an_end() -> None:
    """Each sum over rows has three structures, and many of them are a power of that."""
    x = made = te.placeholder((16, 64), name="X")
    for number in range(7):
        k = te.reduce_axis((0, 64), "k")
        total = te.compute((16,), lambda i, p=made, k=k: te.sum(p[i, k], axis=k), name=f"r{number}")
        made = te.compute((16, 64), lambda i, j, p=made, r=total: p[i, j] - r[i], name=f"s{number}")
    assert len(sketches_of([x, made])) == 250


@pytest.mark.parametrize("names", [("b.local", "b"), ("b", "c.shared"), ("p", "q")])
def test_what_stages_are_called_does_not_matter(names: tuple[str, str]) -> None:
    x, k = te.placeholder((64, 64), name="X"), te.reduce_axis((0, 64), "k")
    inner = te.compute((64,), lambda i: te.sum(x[i, k], axis=k), name=names[0])
    outer = te.compute((64,), lambda i: inner[i] * 2.0, name=names[1])
    assert len(sketches_of([x, outer])) == len(sketches_of(renamed()))


def renamed() -> list[Tensor]:
    x, k = te.placeholder((64, 64), name="X"), te.reduce_axis((0, 64), "k")
    inner = te.compute((64,), lambda i: te.sum(x[i, k], axis=k), name="inner")
    return [x, te.compute((64,), lambda i: inner[i] * 2.0, name="outer")]
