"""Stores put together: channels computed in vectors of pixels, and the rows of turned tiles."""

from __future__ import annotations

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.schedule.manual import Schedule
from ansor.te.tensor import Tensor
from tests.codegen_helper import AVX2, AVX512, PLAIN
from tests.program_laws import Case, check_all


def channels(
    pixels: int,
    count: int,
    dtype: str = "float32",
    lanes: int = 16,
    swapped: bool = False,
    streaming: bool = False,
) -> tuple[Schedule, list[Tensor]]:
    """B[p, c] = A[p, c] * (c + 2) + A[p, count - 1 - c], pixels in lanes, channels unrolled."""
    a = te.placeholder((pixels, count), dtype, "A")
    b = te.compute(
        (pixels, count), lambda p, c: a[p, c] * te.cast(c + 2, dtype) + a[p, count - 1 - c], name="B"
    )
    s = te.create_schedule(b.op)
    pixel, channel = b.op.axis
    outer, inner = s[b].split(pixel, lanes)
    s[b].reorder(outer, *((inner, channel) if swapped else (channel, inner)))
    s[b].unroll(channel)
    s[b].vectorize(inner)
    if streaming:
        s[b].streaming_stores()
    return s, [a, b]


def stores(s: Schedule, tensors: list[Tensor], target: str = AVX512) -> list[str]:
    """The store instructions of the code, without their operands."""
    text = ansor.build(s, tensors, target=target, name="kernel").get_source("ll")
    return [line.split(" %")[0].strip() for line in text.splitlines() if line.strip().startswith("store ")]


DTYPES = ("float32", "float64", "float16", "int8", "uint8", "int16")


@pytest.mark.parametrize("count", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("swapped", [False, True])
def test_channels_are_what_they_should_be(count: int, dtype: str, swapped: bool) -> None:
    """Every other shape: the dtypes take turns, and so do the counts."""
    shapes = ((16, 16), (37, 16), (64, 64), (48, 12), (8, 2))
    for pixels, lanes in shapes[(DTYPES.index(dtype) + count) % 2 :: 2]:
        s, tensors = channels(pixels, count, dtype, lanes, swapped)
        values = np.random.default_rng(count).integers(0, 5, (pixels, count)).astype(dtype)
        expected = values * np.arange(2, count + 2).astype(dtype) + values[:, ::-1]
        np.testing.assert_array_equal(ansor.build(s, tensors)(values), expected.astype(dtype))


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("target", "lanes"), [(AVX512, 16), (AVX2, 8), (PLAIN, 4)])
def test_whole_vectors_are_stored(target: str, lanes: int, swapped: bool) -> None:
    s, tensors = channels(64, 3, swapped=swapped)
    assert set(stores(s, tensors, target)) == {f"store <{lanes} x float>"}


def rows(
    outer: int, row: int, lanes: int, unrolled: int, dtype: str = "float32", streaming: bool = False
) -> tuple[Schedule, list[Tensor]]:
    """B[c, p] = A[p, c] * (p + 2) + A[p, c]: channels in lanes, pixels unrolled around them."""
    a = te.placeholder((row, outer), dtype, "A")
    b = te.compute((outer, row), lambda c, p: a[p, c] * te.cast(p + 2, dtype) + a[p, c], name="B")
    s = te.create_schedule(b.op)
    channels, lane = s[b].split(b.op.axis[0], lanes)
    pixels, pixel = s[b].split(b.op.axis[1], unrolled)
    s[b].reorder(channels, pixels, pixel, lane)
    s[b].unroll(pixel)
    s[b].vectorize(lane)
    if streaming:
        s[b].streaming_stores()
    return s, [a, b]


@pytest.mark.parametrize("unrolled", [2, 3, 4, 7, 8, 14, 16, 17, 20])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_turned_tiles_are_what_they_should_be(unrolled: int, dtype: str) -> None:
    """Every other shape: the dtypes take turns, and so do even and odd numbers of rows."""
    shapes = ((16, 20, 16), (37, 40, 16), (64, 21, 64), (24, 20, 12), (9, 20, 4), (8, 7, 2))
    for outer, row, lanes in shapes[(DTYPES.index(dtype) + unrolled) % 2 :: 2]:
        s, tensors = rows(outer, row, lanes, unrolled, dtype)
        values = np.random.default_rng(unrolled).integers(0, 3, (row, outer)).astype(dtype)
        expected = (values * np.arange(2, row + 2).astype(dtype)[:, None] + values).T
        np.testing.assert_array_equal(ansor.build(s, tensors)(values), expected.astype(dtype))


@pytest.mark.parametrize(("target", "lanes"), [(AVX512, 16), (AVX2, 8), (PLAIN, 4)])
def test_rows_of_turned_tiles_are_stored_as_vectors(target: str, lanes: int) -> None:
    s, tensors = rows(64, 32, lanes, lanes)
    assert stores(s, tensors, target) == [f"store <{lanes} x float>"] * lanes
    s, tensors = rows(64, 32, lanes, 2 * lanes)
    assert stores(s, tensors, target) == [f"store <{lanes} x float>"] * 2 * lanes
    s, tensors = rows(64, 32, lanes, 2)
    assert stores(s, tensors, target) == ["store <2 x float>"] * lanes


def test_rows_that_are_no_whole_vectors_are_stored_under_a_mask() -> None:
    s, tensors = rows(64, 14, 16, 7)
    text = ansor.build(s, tensors, target=AVX512, name="kernel").get_source("ll")
    assert text.count("call void @llvm.masked.store") == 16
    s, tensors = channels(64, 5)  # more channels than are put together to whole vectors
    text = ansor.build(s, tensors, target=AVX512, name="kernel").get_source("ll")
    assert "store float" not in text
    assert "masked.scatter" not in text


def test_a_vector_that_is_not_full_stores_its_own_rows() -> None:
    s, tensors = channels(45, 3, lanes=15)
    text = ansor.build(s, tensors, target=AVX512, name="kernel").get_source("ll")
    assert "masked.scatter" not in text
    assert text.count("call void @llvm.masked.store") == 15
    values = np.arange(135, dtype=np.float32).reshape(45, 3)
    expected = values * np.arange(2, 5, dtype=np.float32) + values[:, ::-1]
    np.testing.assert_array_equal(ansor.build(s, tensors)(values), expected)


def test_rows_keep_their_order_of_loops() -> None:
    """Loops are not turned round where each vector lies in memory in one piece anyway."""
    a = te.placeholder((3, 64), name="A")
    b = te.compute((3, 64), lambda r, x: a[r, x] + 1.0, name="B")
    s = te.create_schedule(b.op)
    s[b].unroll(b.op.axis[0])
    s[b].vectorize(b.op.axis[1])
    assert stores(s, [a, b]) == ["store <16 x float>"] * 12


def test_streamed_channels_pass_the_caches_by() -> None:
    s, tensors = channels(64, 3, streaming=True)
    text = ansor.build(s, tensors, target=AVX512, name="kernel").get_source("asm")
    assert "vmovntps" in text


@pytest.mark.parametrize(("unrolled", "streams"), [(8, False), (16, True)])
def test_rows_pass_the_caches_by_as_whole_lines_alone(unrolled: int, streams: bool) -> None:
    s, tensors = rows(64, 32, 16, unrolled, streaming=True)
    text = ansor.build(s, tensors, target=AVX512, name="kernel").get_source("asm")
    assert ("vmovntps" in text) is streams


def test_a_part_of_long_rows_is_stored_before_the_next_is_computed() -> None:
    s, tensors = rows(64, 64, 8, 32)
    text = ansor.build(s, tensors, target=AVX2, name="kernel").get_source("ll")
    before, _, behind = text.partition("store <8 x float>")
    assert before.count("fmul") <= 8 < behind.count("fmul")


@pytest.mark.parametrize("streaming", [False, True])
def test_all_laws_hold(streaming: bool) -> None:
    for count in (2, 3, 4):
        s, _ = channels(37, count, streaming=streaming)
        check_all(Case.of(s.state))
    s, _ = rows(37, 20, 16, 7, streaming=streaming)
    check_all(Case.of(s.state))


def packed_words(
    steps: int, columns: int, word: int, dtype: str, unrolled: bool
) -> tuple[Schedule, list[Tensor]]:
    """P[k, j, w] = B[word*k + w, j], a word of elements in a vector, as what dot products read is packed."""
    b = te.placeholder((steps * word, columns), dtype, "B")
    p = te.compute((steps, columns, word), lambda k, j, w: b[k * word + w, j], name="P")
    s = te.create_schedule(p.op)
    if unrolled:
        s[p].unroll(p.op.axis[1])
    s[p].vectorize(p.op.axis[2])
    return s, [b, p]


@pytest.mark.parametrize(("dtype", "word"), [("bfloat16", 2), ("int8", 4), ("uint8", 3), ("float32", 2)])
@pytest.mark.parametrize("columns", [16, 12, 37, 4, 3])
@pytest.mark.parametrize("unrolled", [False, True])
def test_words_are_packed_as_they_should_be(dtype: str, word: int, columns: int, unrolled: bool) -> None:
    s, _ = packed_words(5, columns, word, dtype, unrolled)
    check_all(Case.of(s.state))


@pytest.mark.parametrize(("dtype", "word", "kept"), [("bfloat16", 2, "i16"), ("int8", 4, "i8")])
def test_rows_are_read_as_vectors_where_words_are_packed(dtype: str, word: int, kept: str) -> None:
    s, tensors = packed_words(8, 32, word, dtype, unrolled=False)
    text = ansor.build(s, tensors, target=AVX512, name="kernel").get_source("ll")
    loads = {line.split(",")[0].split("= ")[1] for line in text.splitlines() if "= load" in line}
    assert loads <= {f"load <{lanes} x {kept}>" for lanes in (16, 32)}, loads
    assert all(" x " in store for store in stores(s, tensors))
