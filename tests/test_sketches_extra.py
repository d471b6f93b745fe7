"""Rules beyond TVM's: the sketches that each adds, and the laws of all their programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ansor import te
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.te import Tensor
from costmodel import Programs
from costmodel.extraction.extract import extract, extract_forms
from costmodel.extraction.form import Form
from search.crossover import crossover
from search.mutations.defaults import CPU_MUTATIONS
from search.params import ABLATIONS, DEFAULT_PARAMS, REFERENCE_SPACE, resolve_params
from search.sketch_policy import SketchPolicy
from sketches import CPU_RULES, Population, ProgramSpace, Sketch, generate_sketches
from sketches.columns import fill_holes
from sketches.derive import CPU_EXTRA_RULES
from sketches.locate import locate
from sketches.neighbours import Neighbourhood
from sketches.params import SketchParams
from sketches.remap import Names
from sketches.repair import repaired
from sketches.rules import streams
from sketches.rules.inline import will_be_inlined
from tests.costmodel_law import Compared, check_rows
from tests.program_laws import Case, check_results, lowered
from tests.sketches_cases import SMALL, check_program, matmul, row_sum, task_of, zero_rank

ALL = dict.fromkeys(CPU_EXTRA_RULES, 1) | {"cpu_packed_read": 0}
WASTEFUL = ALL | {"max_tile_waste": 1.4}


def max_pool(size: int, channels: int, padding: int = 1) -> list[Tensor]:
    """Windows of 3 x 3 at every second pixel, padded."""
    x = te.placeholder((1, size, size, channels), name="X")
    low, side = te.min_value("float32"), size + 2 * padding
    pad = te.compute(
        (1, side, side, channels),
        lambda n, y, z, c: te.if_then_else(
            te.all(y >= padding, y < size + padding, z >= padding, z < size + padding),
            x[n, y - padding, z - padding, c],
            low,
        ),
        name="Pad",
    )
    rh, rw = te.reduce_axis((0, 3), name="rh"), te.reduce_axis((0, 3), name="rw")
    out = (side - 3) // 2 + 1
    pool = te.compute(
        (1, out, out, channels),
        lambda n, y, z, c: te.max(pad[n, y * 2 + rh, z * 2 + rw, c], axis=[rh, rw]),
        name="Pool",
    )
    return [x, pool]


def mean_of_columns(n: int, m: int) -> list[Tensor]:
    x = te.placeholder((n, m), name="X")
    k = te.reduce_axis((0, n), name="k")
    total = te.compute((m,), lambda j: te.sum(x[k, j], axis=k), name="Total")
    return [x, te.compute((m,), lambda j: total[j] / float(n), name="Mean")]


def sums_of_channels(size: int, images: int, channels: int, first: bool = False) -> list[Tensor]:
    """As a batch norm needs them, the channels last or `first`."""
    x = te.placeholder((images, channels, size, size) if first else (images, size, size, channels), name="X")
    n, y, z = (
        te.reduce_axis((0, extent), name=name) for extent, name in ((images, "n"), (size, "y"), (size, "z"))
    )
    total = te.compute(
        (channels,), lambda c: te.sum(x[n, c, y, z] if first else x[n, y, z, c], axis=[n, y, z]), name="Total"
    )
    return [x, total]


def transpose(n: int, m: int) -> list[Tensor]:
    x = te.placeholder((n, m), name="X")
    return [x, te.compute((m, n), lambda i, j: x[j, i], name="T")]


def channels_first(size: int, channels: int) -> list[Tensor]:
    x = te.placeholder((2, size, size, channels), name="X")
    return [x, te.compute((2, channels, size, size), lambda n, c, y, z: x[n, y, z, c] * 2.0, name="T")]


def colours(height: int, width: int) -> list[Tensor]:
    x = te.placeholder((height, width, 3), name="X")
    out = te.compute(
        (height, width, 3),
        lambda i, j, c: te.select(c == 0, x[i, j, 0] + x[i, j, 1], x[i, j, 2]) * 0.5,
        name="Out",
    )
    return [x, out]


def brighter(height: int, width: int) -> list[Tensor]:
    x = te.placeholder((height, width, 3), name="X")
    return [x, te.compute((height, width, 3), lambda i, j, c: x[i, j, c] * 2.0, name="Out")]


def norm(batch: int, n: int, m: int) -> list[Tensor]:
    x = te.placeholder((batch, n, m), name="X")
    i, j = te.reduce_axis((0, n), name="i"), te.reduce_axis((0, m), name="j")
    total = te.compute((batch,), lambda b: te.sum(x[b, i, j] * x[b, i, j], axis=[i, j]), name="Total")
    return [x, te.compute((batch,), lambda b: te.sqrt(total[b]), name="Norm")]


def activated_matmul(n: int, m: int, k: int) -> list[Tensor]:
    """A product whose left operand is a function of an input."""
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    act = te.compute((n, k), lambda i, j: te.tanh(a[i, j]) * 0.5, name="Act")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((n, m), lambda i, j: te.sum(act[i, r] * b[r, j], axis=r), name="C")
    return [a, b, c]


def matmul_with_turned(n: int, m: int, k: int) -> list[Tensor]:
    """A product whose right operand is the transpose of an input."""
    a, b = te.placeholder((n, k), name="A"), te.placeholder((m, k), name="B")
    turned = te.compute((k, m), lambda r, j: b[j, r], name="Turned")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * turned[r, j], axis=r), name="C")
    return [a, b, c]


def product(n: int, m: int, k: int) -> tuple[list[Tensor], Tensor]:
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="r")
    return [a, b], te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")


def two_products(m: int = 16, *, spread: bool = False, shared: bool = False) -> list[Tensor]:
    """A product with a bias and a ReLU, which are the left operand of a second product with `m` columns.

    The bias may have a stage of its own, `Sum`; the first product may be read elsewhere, too.
    """
    inputs, first = product(16, 16, 8)
    bias, b = te.placeholder((16,), name="Bias"), te.placeholder((16, m), name="Right")
    total = te.compute((16, 16), lambda i, j: first[i, j] + bias[j], name="Sum") if spread else first
    r = te.reduce_axis((0, 16), name="r")
    act = te.compute((16, 16), lambda i, j: te.max(total[i, j] + 0.5, 0.0), name="Act")
    out = te.compute((16, m), lambda i, j: te.sum(act[i, r] * b[r, j], axis=r), name="Out")
    also = [te.compute((16, 16), lambda i, j: first[i, j] * 2.0, name="Also")] if shared else []
    return [*inputs, *([bias] if spread else []), b, out, *also]


def swish(n: int, m: int, k: int) -> list[Tensor]:
    """A product, and its sigmoid in a stage of its own."""
    inputs, c = product(n, m, k)
    gate = te.compute((n, m), lambda i, j: te.sigmoid(c[i, j]), name="Gate")
    return [*inputs, te.compute((n, m), lambda i, j: c[i, j] * gate[i, j], name="Out")]


def turned_product(n: int, m: int, k: int) -> list[Tensor]:
    inputs, c = product(n, m, k)
    return [*inputs, te.compute((m, n), lambda j, i: te.max(c[i, j], 0.0), name="Out")]


def biased_transpose(n: int, m: int) -> list[Tensor]:
    x, b = te.placeholder((n, m), name="X"), te.placeholder((n,), name="B")
    turned = te.compute((m, n), lambda i, j: x[j, i], name="Turned")
    return [x, b, te.compute((m, n), lambda i, j: turned[i, j] + b[j], name="Out")]


def scaled_rows(n: int, m: int) -> list[Tensor]:
    """Deviations from the means of rows, squared and summed, as a variance is written."""
    x, mean = te.placeholder((n, m), name="X"), te.placeholder((n,), name="Mean")
    k = te.reduce_axis((0, m), name="k")
    total = te.compute(
        (n,), lambda i: te.sum((x[i, k] - mean[i]) * (x[i, k] - mean[i]), axis=k), name="Variance"
    )
    return [x, mean, te.compute((n, m), lambda i, j: (x[i, j] - mean[i]) * total[i], name="Out")]


CASES: dict[str, Callable[[], list[Tensor]]] = {
    "max pooling": lambda: max_pool(8, 6),
    "pooling of more pixels": lambda: max_pool(14, 2),
    "mean of columns": lambda: mean_of_columns(9, 20),
    "mean of many rows": lambda: mean_of_columns(150, 40),
    "sums of channels": lambda: sums_of_channels(9, 5, 20),
    "transpose": lambda: transpose(11, 12),
    "channels first": lambda: channels_first(5, 6),
    "colours": lambda: colours(4, 10),
    "brighter colours": lambda: brighter(4, 10),
    "norm": lambda: norm(2, 32, 33),
    "zero rank": lambda: zero_rank(1100),
    "transposes": SMALL["transposes"],
    "transposed operand": lambda: matmul_with_turned(20, 10, 6),
    "activation": lambda: activated_matmul(5, 8, 6),
    "two products": lambda: two_products(9, spread=True),
    "swish": lambda: swish(6, 9, 5),
    "turned product": lambda: turned_product(9, 20, 4),
    "biased transpose": lambda: biased_transpose(11, 12),
    "scaled rows": lambda: scaled_rows(40, 20),
}
TASKS = {name: task_of(make()) for name, make in CASES.items()}
SPACES = {name: Neighbourhood(ProgramSpace.of(task, WASTEFUL)) for name, task in TASKS.items()}


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def sketches_by(rule: str, tensors: list[Tensor]) -> list[Sketch]:
    return [s for s in generate_sketches(task_of(tensors), ALL) if rule in s.rules]


def loops(state: State, stage: str) -> list[str]:
    return [loop.name for loop in state.stages[state.stage_id(stage)].iterators]


# -- parameters --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["norm", "zero rank", "mean of columns", "max pooling"])
def test_the_sketches_of_the_reference_remain_and_keep_their_order(name: str) -> None:
    """Where tiles are not all that is worth trying, and sums of rows are not left as they are."""
    task = TASKS[name]
    added = {rule.name for rules in CPU_EXTRA_RULES.values() for rule in rules}
    both = generate_sketches(task, ALL | {"cpu_keep_row_sums": 0})
    plain = [sketch.explain() for sketch in both if added.isdisjoint(sketch.rules)]
    assert plain == [sketch.explain() for sketch in generate_sketches(task, rules=CPU_RULES)]
    assert len(plain) < len(both)


@pytest.mark.parametrize("tensors", [max_pool(40, 16), colours(64, 96), transpose(64, 96)], ids=str)
def test_only_tiles_are_tried_where_the_loops_as_written_are_among_them(tensors: list[Tensor]) -> None:
    without = ALL | {"cpu_inline_padding": 0}
    assert len(generate_sketches(task_of(tensors), without)) == 1


def test_what_reads_a_reduction_is_left_to_its_tiles() -> None:
    x = te.placeholder((16, 24), name="X")
    y = te.placeholder((24, 3), name="Y")
    k = te.reduce_axis((0, 24), name="k")
    product = te.compute((16, 3), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name="Product")
    out = te.compute((16, 3), lambda i, j: te.exp(product[i, j]), name="Out")
    plain = generate_sketches(task_of([x, y, out]), rules=CPU_RULES)
    assert [s.explain() for s in generate_sketches(task_of([x, y, out]), ALL)] == [s.explain() for s in plain]


def test_every_rule_has_a_parameter_and_an_ablation() -> None:
    switches = {name for name, value in REFERENCE_SPACE.items() if value == 0}
    assert switches > set(CPU_EXTRA_RULES)
    for parameter in switches:
        assert parameter in DEFAULT_PARAMS
        assert any(parameter in override for override in ABLATIONS.values())
        assert REFERENCE_SPACE[parameter] == 0
    for override in ABLATIONS.values():
        assert resolve_params(override) != dict(DEFAULT_PARAMS)


def test_the_space_of_the_reference_can_be_asked_for() -> None:
    for task in TASKS.values():
        asked = generate_sketches(task, resolve_params(REFERENCE_SPACE))
        assert [s.explain() for s in asked] == [s.explain() for s in generate_sketches(task, rules=CPU_RULES)]


def test_sketches_and_programs_are_by_default_those_that_a_search_chooses_from() -> None:
    assert SketchParams() == SketchParams.of(DEFAULT_PARAMS)
    for task in TASKS.values():
        searched = SketchPolicy(task).generate_sketches()
        assert [str(s) for s in generate_sketches(task)] == [str(s) for s in searched]


# -- sketches ----------------------------------------------------------------------------------------------


def test_a_short_last_axis_is_unrolled_around_a_vector_of_the_one_before() -> None:
    (sketch,) = sketches_by("StreamTiling", colours(64, 96))
    assert loops(sketch.state, "Out") == ["i", "j.0", "c", "j.1"]
    marks = [loop.annotation for loop in sketch.state.stages[-1].iterators]
    assert marks == [Annotation.NONE, Annotation.NONE, Annotation.UNROLL, Annotation.NONE]


def test_pixels_that_are_read_as_they_are_stored_are_also_one_vector() -> None:
    around, within = sketches_by("StreamTiling", brighter(64, 96))
    assert loops(around.state, "Out") == ["i", "j.0", "c", "j.1"]
    assert loops(within.state, "Out") == ["i", "j.0", "j.1@c@"]
    assert within.state.stages[-1].iterators[-1].annotation is Annotation.VECTORIZE


def test_a_transpose_is_tiled_along_both_axes() -> None:
    (sketch,) = sketches_by("StreamTiling", transpose(64, 96))
    assert loops(sketch.state, "T") == ["i.0", "j.0", "i.1", "j.1"]
    (sketch,) = sketches_by("StreamTiling", channels_first(16, 8))
    assert loops(sketch.state, "T") == ["n", "c.0", "y", "z.0", "c.1", "z.1"]


def test_streams_that_run_along_memory_are_left_alone() -> None:
    x, bias = te.placeholder((8, 64), name="X"), te.placeholder((64,), name="B")
    plain = te.compute((8, 64), lambda i, j: te.exp(x[i, j] + bias[j]), name="Y")
    assert not sketches_by("StreamTiling", [x, bias, plain])
    assert not sketches_by("StreamTiling", colours(4, 1))


def test_a_transpose_that_products_use_often_is_tiled_too() -> None:
    for rows, share in ((2, 0.0), (8, 0.5), (64, 1.0)):
        found = generate_sketches(task_of(matmul_with_turned(rows, 24, 16)), ALL)
        tiled = [sketch for sketch in found if "StreamTiling(Turned)" in sketch.explain()]
        assert len(tiled) == share * len(found)
        assert all(loops(x.state, "Turned") == ["r.0", "j.0", "r.1", "j.1"] for x in tiled)


def test_a_transpose_is_tiled_for_products_of_its_packed_tiles() -> None:
    task = task_of(matmul_with_turned(64, 24, 16))
    found = generate_sketches(task, ALL | {"cpu_packed_read": 2})
    packed = [sketch.explain() for sketch in found if "AddPackedRead(Turned)" in sketch.explain()]
    assert packed
    assert all("StreamTiling(Turned)" in explanation for explanation in packed)


def test_other_stages_that_are_read_are_no_streams() -> None:
    """A stage that is read may be moved to its reader or inlined there, which tiles would prevent."""
    image, w = te.placeholder((6, 9, 3), name="X"), te.placeholder((3, 16), name="W")
    pad = te.compute(
        (6, 11, 3),
        lambda y, x, c: te.if_then_else(te.all(x >= 1, x < 10), image[y, x - 1, c], 0.0),
        name="Pad",
    )
    c = te.reduce_axis((0, 3), name="c")
    shade = te.compute((6, 11, 16), lambda y, x, o: te.sum(pad[y, x, c] * w[c, o], axis=c), name="Y")
    assert not sketches_by("StreamTiling", [image, w, shade])
    x = te.placeholder((16, 24), name="X")
    turned = te.compute((24, 16), lambda i, j: x[j, i], name="Turned")
    k = te.reduce_axis((0, 24), name="k")
    out = te.compute((16,), lambda j: te.sum(turned[k, j], axis=k), name="Out")
    assert not sketches_by("StreamTiling", [x, out])


def test_windows_have_their_reduction_outside_the_innermost_tile() -> None:
    (sketch,) = (s for s in sketches_by("WindowTiling", max_pool(16, 8)) if "InlinePadding" not in s.rules)
    names = [name for name in loops(sketch.state, "Pool") if not name.startswith("n")]
    assert names == ["y.0", "z.0", "c.0", "rh", "rw", "y.1", "z.1", "c.1"]


def test_windows_are_reduced_inside_the_tiles_of_their_consumer() -> None:
    (sketch,) = sketches_by("WindowTiling", mean_of_columns(32, 64))
    assert loops(sketch.state, "Mean") == ["j.0", "j.1"]
    assert sketch.state.attach[sketch.state.stage_id("Total")] == (sketch.state.stage_id("Mean"), 0)


def test_rows_and_products_are_no_windows() -> None:
    """A row sum reads along its reduction; a product reuses what it reads and is tiled anyway."""
    assert not sketches_by("WindowTiling", row_sum(16, 64))
    assert not sketches_by("WindowTiling", matmul(16, 16, 16))


def test_a_long_reduction_to_a_few_values_has_parts_and_lanes() -> None:
    (sketch,) = sketches_by("AddRfactorLanes", norm(2, 32, 64))
    assert loops(sketch.state, "Total.rf.rf") == ["b", "i_j_fused_o_o", "i_j_fused_o_i", "i_j_fused_i"]
    assert loops(sketch.state, "Total.rf.repl")[1:] == ["i_j_fused_o_o_v", "ax1"]
    assert [len(hole.columns) for hole in sketch.holes] == [2]


def test_many_rows_keep_the_cores_busy_by_themselves() -> None:
    assert sketches_by("AddRfactorLanes", row_sum(16, 2048))
    assert not sketches_by("AddRfactorLanes", row_sum(512, 2048))
    assert not sketches_by("AddRfactorLanes", row_sum(16, 512))


def test_rows_are_divided_and_their_columns_are_vectors() -> None:
    (sketch,) = sketches_by("AddRfactorColumns", sums_of_channels(16, 4, 32))
    terms = "n_y_fused_z_fused"
    assert loops(sketch.state, "Total.rf") == [f"{terms}_o_o", "c.0", f"{terms}_o_i", f"{terms}_i", "c.1"]
    assert loops(sketch.state, "Total.repl")[1:] == ["ax0"]
    assert [len(hole.columns) for hole in sketch.holes] == [2, 1]


def test_rows_are_divided_where_there_are_more_of_them_than_results() -> None:
    assert sketches_by("AddRfactorColumns", mean_of_columns(4096, 4096))
    assert not sketches_by("AddRfactorColumns", mean_of_columns(4095, 4096))
    assert not sketches_by("AddRfactorColumns", mean_of_columns(9, 8))
    assert not sketches_by("AddRfactorColumns", mean_of_columns(4096, 8))  # less than a vector
    assert not sketches_by("AddRfactorColumns", sums_of_channels(16, 4, 32, first=True))
    assert not sketches_by("AddRfactorColumns", row_sum(16, 2048))
    assert not sketches_by("AddRfactorColumns", max_pool(14, 32))


def inlined(tensors: list[Tensor], stage: str) -> set[bool]:
    sketches = generate_sketches(task_of(tensors), ALL)
    return {s.state.stages[s.state.stage_id(stage)].compute_at == "inlined" for s in sketches}


def test_what_is_dear_and_used_often_is_stored() -> None:
    """Few uses leave the choice to the search; one use, or a cheap stage, is inlined as ever."""
    assert inlined(activated_matmul(16, 64, 16), "Act") == {False}
    assert inlined(activated_matmul(16, 8, 16), "Act") == {False, True}
    assert inlined(activated_matmul(16, 2, 16), "Act") == {True}
    a, b, c = matmul(16, 64, 16)
    doubled = te.compute((16, 64), lambda i, j: c[i, j] / 3.0, name="Third")
    assert inlined([a, b, te.compute((16, 64), lambda i, j: doubled[i, j] + 1.0)], "Third") == {True}


def test_what_is_made_of_a_product_for_another_is_stored_in_its_place() -> None:
    """Not where the product is read elsewhere or in part, or the second product has few columns."""
    assert inlined(two_products(), "Act") == {False}
    assert inlined(two_products(spread=True), "Act") == {False}
    assert inlined(two_products(spread=True), "Sum") == {True}
    assert inlined(two_products(2), "Act") == {True}
    assert inlined(two_products(shared=True), "Act") == {True}
    inputs, wide = product(16, 32, 8)
    left, b = te.placeholder((16, 16), name="Left"), te.placeholder((16, 64), name="Right")
    part = te.compute((16, 16), lambda i, j: te.max(wide[i, j], 0.0) + left[i, j], name="Part")
    r = te.reduce_axis((0, 16), name="q")
    out = te.compute((16, 64), lambda i, j: te.sum(part[i, r] * b[r, j], axis=r), name="Out")
    assert inlined([*inputs, left, b, out], "Part") == {True}
    task = task_of(two_products())
    assert any("MultiLevelTilingWithFusion(C)" in s.explain() for s in generate_sketches(task, ALL))
    reference = generate_sketches(task, resolve_params(REFERENCE_SPACE))
    assert all("AlwaysInline(Act)" in s.explain() for s in reference)


def filtered(channels: int, **changes: Any) -> list[Tensor]:
    """A convolution of padded rows to some channels."""
    pixels = changes.get("pixels", 32)
    x, w = te.placeholder((pixels,), name="X"), te.placeholder((3, channels), name="W")
    function = changes.get("function", lambda value: value)
    pad = te.compute(
        (pixels + 2,),
        lambda i: te.if_then_else(te.all(i >= 1, i < pixels + 1), function(x[i - 1]), 0.0),
        name="Pad",
    )
    r = te.reduce_axis((0, 3), name="r")
    out = te.compute((pixels, channels), lambda i, c: te.sum(pad[i + r] * w[r, c], axis=r), name="Out")
    return [x, w, out, *([pad] if changes.get("kept") else [])]


def test_padding_that_is_used_a_few_times_is_also_inlined() -> None:
    """Not what is an output itself, calls something dear, is used for many channels, or pads a lot.

    Unless it is a good part of what is multiplied.
    """
    assert inlined(max_pool(16, 8), "Pad") == {False, True}
    assert inlined(filtered(8), "Pad") == {False, True}
    assert inlined(filtered(16), "Pad") == {False}
    assert inlined(filtered(16, pixels=8), "Pad") == {False, True}
    assert inlined(max_pool(8, 16), "Pad") == {False}
    assert inlined(filtered(8, kept=True), "Pad") == {False}
    assert inlined(filtered(8, function=te.tanh), "Pad") == {False}


def test_padding_whose_own_terms_stay_spares_nothing() -> None:
    """The reader leaves out half of its terms anyway; padding of ones is multiplied."""
    x, w = te.placeholder((8,), name="X"), te.placeholder((3, 64), name="W")
    pad = te.compute((10,), lambda i: te.if_then_else(te.all(i >= 1, i < 9), x[i - 1], 1.0), name="Pad")
    r = te.reduce_axis((0, 3), name="r")

    def term(i: te.Var, c: te.Var) -> te.Expr:
        return te.if_then_else((i + r) % 2 < 1, pad[i + r], 0.0) * w[r, c]

    out = te.compute((8, 64), lambda i, c: te.sum(term(i, c), axis=r), name="Out")
    assert inlined([x, w, out], "Pad") == {False}


def test_padding_that_no_reduction_uses_is_inlined_where_it_is_used_once() -> None:
    x, _, _ = filtered(8)
    pad = te.compute((34,), lambda i: te.if_then_else(te.all(i >= 1, i < 33), x[i - 1], 0.0), name="Pad")
    out = te.compute((34,), lambda i: pad[i] * 2.0, name="Out")
    assert inlined([x, out], "Pad") == {True}
    twice = te.compute((33,), lambda i: pad[i] * pad[i + 1], name="Out")
    assert inlined([x, twice], "Pad") == {False}


def test_no_part_of_a_row_sum_is_factored_out_where_rows_keep_all_cores_busy() -> None:
    rows = task_of(row_sum(512, 1024))
    assert [s.explain() for s in generate_sketches(rows, ALL)] == ["(no rule applied)"]
    assert len(generate_sketches(rows, ALL | {"cpu_keep_row_sums": 0})) == 3
    assert sketches_by("AddRfactor", row_sum(16, 2048))
    assert sketches_by("AddRfactor", row_sum(512, 2048))  # Of long rows there is little else to try.
    x = te.placeholder((512, 1024), dtype="float16", name="X")  # Such sums are not taken in lanes.
    k = te.reduce_axis((0, 1024), name="k")
    assert sketches_by("AddRfactor", [x, te.compute((512,), lambda i: te.sum(x[i, k], axis=k), name="Y")])


def test_a_product_shares_tiles_with_what_uses_it_in_two_ways() -> None:
    found = sketches_by("MultiLevelTilingWithFusion", swish(64, 64, 64))
    assert found
    assert len(found) == 2


def cropped(n: int) -> list[Tensor]:
    """A product, an activation with a choice, and the middle of it."""
    inputs, c = product(n, n, 16)
    gate = te.compute((n, n), lambda i, j: te.if_then_else(c[i, j] > 0, c[i, j], c[i, j] * 0.1), name="Gate")
    return [*inputs, te.compute((n - 2, n - 2), lambda i, j: gate[i + 1, j + 1] * 2.0, name="Out")]


def added_transpose(n: int) -> list[Tensor]:
    inputs, c = product(n, n, 16)
    x = te.placeholder((n, n), name="X")
    gate = te.compute((n, n), lambda i, j: te.if_then_else(c[i, j] > 0, c[i, j], c[i, j] * 0.1), name="Gate")
    return [*inputs, x, te.compute((n, n), lambda i, j: gate[i, j] + x[j, i], name="Out")]


@pytest.mark.parametrize("tensors", [cropped(64), added_transpose(64)], ids=["cropped", "added transpose"])
def test_what_is_used_once_is_not_inlined_away_from_tiles_that_it_could_share(tensors: list[Tensor]) -> None:
    assert sketches_by("MultiLevelTilingWithFusion", tensors)


def test_a_shifted_way_to_a_product_shares_no_tiles() -> None:
    inputs, c = product(64, 64, 16)
    gate = te.compute((64, 64), lambda i, j: te.if_then_else(i < 63, c[i + 1, j], 0.0), name="Gate")
    out = te.compute((64, 64), lambda i, j: gate[i, j] * c[i, j], name="Out")
    found = generate_sketches(task_of([*inputs, out]), ALL)
    assert not any("MultiLevelTilingWithFusion(C)" in sketch.explain() for sketch in found)


def test_what_a_stencil_reads_is_no_place_to_inline_at() -> None:
    x = te.placeholder((66,), name="X")
    power = te.compute((66,), lambda i: te.exp(x[i]), name="Power")
    twice = te.compute((66,), lambda i: te.exp(power[i]), name="Twice")
    out = te.compute((64,), lambda i: twice[i] + twice[i + 1] + twice[i + 2], name="Out")
    assert not sketches_by("InlineUsedOnce", [x, out])


def test_a_transpose_in_a_stage_of_its_own_is_tiled_with_what_uses_it() -> None:
    (sketch,) = generate_sketches(task_of(biased_transpose(64, 96)), ALL)
    assert sketch.explain() == "StreamTiling(Out), InlineUsedOnce(Turned)"
    assert loops(sketch.state, "Out") == ["i.0", "j.0", "i.1", "j.1"]


def test_what_turns_a_product_is_tiled() -> None:
    assert all(
        "StreamTiling(Out)" in s.explain() for s in generate_sketches(task_of(turned_product(64, 96, 8)), ALL)
    )


def test_what_belongs_to_a_whole_row_is_read_along_no_other_axis() -> None:
    """Neither is the output a transpose, nor the variance a window."""
    rules = {rule for s in generate_sketches(task_of(scaled_rows(512, 512)), ALL) for rule in s.rules}
    assert rules == {"RowTiling"} | {"RowPipelining"}


# -- programs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_programs_compute_the_expression(name: str) -> None:
    """Interpreted with a check for races, and compiled; lengths that do not divide among them."""
    states = [p.materialize(row) for p, row in SPACES[name].space.sample(3, rng(3)).in_order()]
    assert len(states) == 3
    for state in states:
        check_program(state)
        check_results(state)


@pytest.mark.parametrize("name", CASES)
def test_features_are_what_a_count_over_each_nest_says(name: str) -> None:
    """And a program alone has the features of its row."""
    compared = Compared()
    for population in SPACES[name].space.sample(6, rng(5)).populations:
        family, form = population.family, Form.of_population(population)
        features = extract_forms(TASKS[name], [form], scaled=False)
        together = extract(TASKS[name], population)
        alone = extract(TASKS[name], list(Programs([population])))
        assert np.array_equal(together.values, alone.values)
        for row in range(len(population)):
            lengths = population.values[row].tolist()
            plain = State.replay(family.dag, fill_holes(family.steps, family.holes, lengths))
            values = features.values[features.offsets[row] : features.offsets[row + 1]]
            compared += check_rows(form, values, plain, population.materialize(row), row=row)
    compared.check_most()


@pytest.mark.parametrize("name", CASES)
def test_programs_are_found_again_as_rows(name: str) -> None:
    for population, row in SPACES[name].space.sample(12, rng(7)).in_order():
        found = locate(SPACES[name], population.materialize(row))
        assert found is not None
        family, values = found
        again = State.replay(family.dag, family.program(values[0].tolist()))
        assert str(again.with_bounds()) == str(population.materialize(row).with_bounds())


@pytest.mark.parametrize("name", CASES)
def test_children_are_legal_and_right(name: str) -> None:
    """Mutants of every kind, and programs crossed between families."""
    neighbourhood = SPACES[name]
    populations = neighbourhood.space.sample(6, rng(11)).populations
    children: list[Population] = []
    for parents in populations:
        for mutation, _ in CPU_MUTATIONS:
            children += mutation.propose(parents, neighbourhood, rng(1)).populations
    names = Names()
    for parents in populations:
        names.of(parents.family)
    pool = names.spread(populations)
    for parents in populations:
        donors = names.gather(pool[rng(2).integers(len(pool), size=len(parents))], parents.family)
        children += crossover(parents, donors, neighbourhood, rng(3)).populations
    legal = [repaired(child, neighbourhood.space.context) for child in children if len(child)]
    assert legal
    case = Case.of(legal[0].materialize(0))
    for child in legal:
        state = child.materialize(0)
        check_program(state)
        case.check_interpreted(lowered(state))


def _met_again(x: Tensor) -> Tensor:
    """Two stages that each read another, and one that reads both."""
    one, two = (te.compute(x.shape, lambda i, j, by=by: x[i, j] + by, name=f"Plus{by}") for by in (1, 2))
    return te.compute(x.shape, lambda i, j: one[i, j] * two[i, j], name="Both")


def test_paths_between_two_products_that_meet_again_are_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen stages that each read the one before in two ways are 65536 paths, and 48 stages."""
    asked = 0

    def counted(*args: Any) -> bool:
        nonlocal asked
        asked += 1
        return will_be_inlined(*args)

    monkeypatch.setattr(streams, "will_be_inlined", counted)
    left, middle, product = matmul(8, 8, 8)
    for _ in range(16):
        product = _met_again(product)
    right, k = te.placeholder((8, 8), name="Right"), te.reduce_axis((0, 8), name="k")
    last = te.compute((8, 8), lambda i, j: te.sum(product[i, k] * right[k, j], axis=k), name="Last")
    assert generate_sketches(task_of([left, middle, right, last]))
    assert 0 < asked < 1000
