"""Expressions in device code: brackets, constants before a statement, lazy choices, names."""

from __future__ import annotations

import numpy as np
import pytest

from ansor.codegen.c import CUDA, OPENCL, emit_c, split_kernels
from ansor.codegen.c.names import Names, device_name
from ansor.ir.interp import run_nest
from ansor.ir.nest import Buffer, If, Let, LoopNest, Stmt
from ansor.te.expr import Binary, BinaryOp, Expr, Var, call, cast, const, logical_not, select
from tests.device_nests import ODD_NAMES, launch, load, oddly_named, store
from tests.opencl_helper import run_opencl

i, j, n = Var("i"), Var("j"), Var("n")
A, B = Buffer("A", "float32", (8, 8)), Buffer("B", "int32", (8, 8))
x, y = load(A, i, j), load(B, i, j)
negative = -x


def kernel(body: Stmt, out: Buffer) -> LoopNest:
    return LoopNest("kernel", (A, B, out), (n,), launch(body, ty=(i, 8), tx=(j, 8)), (2,))


def lines(body: Stmt, out: Buffer, dialect=CUDA) -> list[str]:  # type: ignore[no-untyped-def]
    """The statements of a kernel, its head and indices left out."""
    text = emit_c(split_kernels(kernel(body, out)), dialect)
    found = text[text.index('extern "C"' if dialect is CUDA else "__kernel") :].splitlines()[1:-1]
    return [line[2:] for line in found if "threadIdx" not in line and "get_local_id" not in line]


def assigned(expr: Expr) -> list[str]:
    """What is written to store `expr`, without the element that is stored to."""
    out = Buffer("out", expr.dtype, (8, 8))
    *before, last = lines(store(out, (i, j), expr), out)
    return [*before, last.removeprefix("out[i * 8 + j] = ").removesuffix(";")]


def both(cond: Expr) -> Expr:
    return cast(cond, "int32")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (x + (x + x), "A[i * 8 + j] + (A[i * 8 + j] + A[i * 8 + j])"),
        (x - x - x, "A[i * 8 + j] - A[i * 8 + j] - A[i * 8 + j]"),
        (-x * 2.0, "-A[i * 8 + j] * 2.0f"),
        (-negative, "-(-A[i * 8 + j])"),
        (x / -2.0, "A[i * 8 + j] / -2.0f"),
        (call("exp", x) * 0.5, "expf(A[i * 8 + j]) * 0.5f"),
        (x**2.0, "ansor_square_float32(A[i * 8 + j])"),
        (x**-1.0, "1.0f / A[i * 8 + j]"),
        (x**-0.5, "1.0f / ansor_root_float32(A[i * 8 + j])"),
        (x**2.5, "powf(A[i * 8 + j], 2.5f)"),
        (i * 2 + j, "i * 2 + j"),
        ((i + j) * 2, "(i + j) * 2"),
        (i // 3 % 2, "i / 3 % 2"),
        ((i - j) // 4, "((i - j) >> 2)"),
        ((i - j) % 4, "((i - j) & 3)"),
        ((i - j) // 3, "ansor_floordiv_int32(i - j, 3)"),
        (y & (i | 12), "(B[i * 8 + j] & (i | 12))"),
        (y >> 31, "(B[i * 8 + j] >> 31)"),
        (1 << y, "(int)(1u << (B[i * 8 + j] & 31))"),
        (
            cast(y, "uint32") << cast(y, "uint32"),
            "((unsigned int)B[i * 8 + j] << ((unsigned int)B[i * 8 + j] % 32u))",
        ),
        ((j + 1) // n, "ansor_floordiv_int32(j + 1, n)"),  # n may be 0
        ((j + 1) // (n + 1), "(j + 1) / (n + 1)"),
        (y // n, "ansor_floordiv_int32(B[i * 8 + j], n)"),
        (y + 1, "(int)((unsigned int)B[i * 8 + j] + 1u)"),
        ((y + i) * y, "(int)(((unsigned int)B[i * 8 + j] + (unsigned int)i) * (unsigned int)B[i * 8 + j])"),
        (i * 1000000000, "(int)((unsigned int)i * 1000000000u)"),
        (load(A, 0, i * 1000000000 + j), "A[(int)((unsigned int)i * 1000000000u) + j]"),
        (load(A, 0, y * 1000 + j), "A[(int)((unsigned int)B[i * 8 + j] * 1000u) + j]"),
        (load(A, 0, y + (j - 1)), "A[B[i * 8 + j] + j - 1]"),
        (cast(y, "int8") + cast(1, "int8"), "(signed char)((unsigned int)(signed char)B[i * 8 + j] + 1u)"),
        (cast(y, "uint32") + cast(1, "uint32"), "(unsigned int)B[i * 8 + j] + 1u"),
        (cast(i, "int64") * (1 << 40), "(long long)i * 1099511627776LL"),
        (both((i < j) & ((j < n) | (i < n))), "(int)(i < j && (j < n || i < n))"),
        (both((i < j) | (j < n) | (i < n)), "(int)(i < j || j < n || i < n)"),
        (both(((i < j) & (j < n)) | (i < n)), "(int)((i < j && j < n) || i < n)"),
        (both(logical_not(i < j)), "(int)!(i < j)"),
        (both((i < j) == (j < n)), "(int)((i < j) == (j < n))"),
        (select(i < j, x, const(0.0)) + 1.0, "(i < j ? A[i * 8 + j] : 0.0f) + 1.0f"),
        (select(i < 3, i, select(j < 3, j, n)), "i < 3 ? i : (j < 3 ? j : n)"),
        (Binary(BinaryOp.MAX, i, j, "int32"), "max(i, j)"),
        (cast(x, "bool"), "A[i * 8 + j] != 0.0f"),
        (cast(cast(x, "float16"), "float32"), "ansor_round_float16(A[i * 8 + j])"),
        (const(float("inf")), "__uint_as_float(0x7f800000u)"),
        (const(-(2**31)), "(-2147483647 - 1)"),
        (const(1e-40), "__uint_as_float(0x000116c2u)"),
        (const(0.1, "float64"), "0.1"),
        (const(1.5, "float16"), "0x3e00"),
    ],
)
def test_expressions(expr: Expr, text: str) -> None:
    assert assigned(expr) == [text]


def test_what_is_used_several_times_is_computed_once() -> None:
    difference = x - load(A, i, 0)
    assert assigned(difference * difference) == ["const float t = A[i * 8 + j] - A[i * 8];", "t * t"]
    wrapped = (y + 1) * 3
    before, last = assigned(wrapped * wrapped)
    assert before == "const int t = (int)(((unsigned int)B[i * 8 + j] + 1u) * 3u);"
    assert last == "(int)((unsigned int)t * (unsigned int)t)"


def test_a_lazy_choice_computes_only_its_own_constants() -> None:
    difference = x - load(A, i, 0)
    square = difference * difference
    assert assigned(select(i < j, square, const(0.0), lazy=True)) == [
        "float t_1;",
        "if (i < j) {",
        "  const float t = A[i * 8 + j] - A[i * 8];",
        "  t_1 = t * t;",
        "} else {",
        "  t_1 = 0.0f;",
        "}",
        "t_1",
    ]
    assert assigned(select(i < j, square, const(0.0)))[-1] == "i < j ? t * t : 0.0f"


def doubled(times: int) -> Expr:
    """An expression that is 2**times long as a tree."""
    value: Expr = x
    for _ in range(times):
        value = select(value > 1.0, value * 0.5, value + 1.0, lazy=True)
    return value


def nested(depth: int) -> Expr:
    value: Expr = x
    for _ in range(depth):
        value = call("abs", 1.0 - value)
    return value


@pytest.mark.parametrize(
    "expr",
    [doubled(30), nested(300), nested(3000), sum([x] * 3000, x)],
    ids=["shared", "deep", "deeper", "long"],
)
def test_large_expressions(expr: Expr) -> None:
    """Neither exponentially long, nor nested more deeply than compilers allow."""
    out = Buffer("out", "float32", (8, 8))
    nest = kernel(store(out, (i, j), expr), out)
    text = emit_c(split_kernels(nest), OPENCL)
    assert len(text) < 200_000
    a = np.random.default_rng(0).uniform(0, 2, (8, 8)).astype(np.float32)
    b, found, expected = (
        np.zeros((8, 8), np.int32),
        np.zeros((8, 8), np.float32),
        np.zeros((8, 8), np.float32),
    )
    run_nest(nest, [a, b, expected], [1])
    run_opencl(nest, a, b, found, sizes=[1])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_conditions_on_memory_are_tested_inside_of_guards() -> None:
    out = Buffer("out", "float32", (8, 8))
    body = If((i < n) & (x > 0.0) & (j < n), store(out, (i, j), x))
    assert lines(body, out) == [
        "if (i < n && j < n) {",
        "  if (A[i * 8 + j] > 0.0f) {",
        "    out[i * 8 + j] = A[i * 8 + j];",
        "  }",
        "}",
    ]


def test_names_of_a_let() -> None:
    out, best = Buffer("out", "float32", (8, 8)), Var("best.value", "float32")
    unused = Var("unused", "float32")
    body = Let(unused, x, Let(best, x, If(i < j, store(out, (i, j), best), store(out, (i, j), -best))))
    assert lines(body, out) == [
        "const float best_value = A[i * 8 + j];",
        "if (i < j) {",
        "  out[i * 8 + j] = best_value;",
        "} else {",
        "  out[i * 8 + j] = -best_value;",
        "}",
    ]


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("i.0", "i_0"),
        ("i.0@j.0@", "i_0_j_0"),
        ("max", "max_"),
        ("float4", "float4_"),
        ("kernel", "kernel_"),
        ("threadIdx", "threadIdx_"),
        ("threadIdx.x", "threadIdx_x"),
        ("ansor_abs_int32", "ansor_abs_int32_"),
        ("make_float4", "make_float4_"),
        ("int", "int_"),
        ("INT_MAX", "INT_MAX_"),
        ("RAND_MAX", "RAND_MAX_"),
        ("EXIT_SUCCESS", "EXIT_SUCCESS_"),
        ("cudaStreamDefault", "cudaStreamDefault_"),
        ("A_T", "A_T"),
        ("__shared__", "v__shared__"),
        ("_X", "v_X"),
        ("3d", "_3d"),
        ("größe", "gr_e"),
        ("", "_"),
        ("...", "_"),
        ("X", "X"),
    ],
)
def test_identifiers(name: str, identifier: str) -> None:
    made = device_name(name)
    assert made == identifier
    assert made.isascii()
    assert made.isidentifier()


def test_names_are_told_apart() -> None:
    names = Names()
    first, second, third = Var("i.0"), Var("i_0"), Buffer("i.0", "float32", (1,))
    assert [names.of(item) for item in (first, second, third, first)] == ["i_0", "i_0_1", "i_0_2", "i_0"]
    inside = Names(names)
    assert inside.of(Var("i.0")) == "i_0_3"
    assert names.fresh("i.0") == "i_0_3"


def test_any_name_compiles() -> None:
    """Words of the languages, functions that the text calls, and whatever else people call tensors."""
    arrays = [np.full(8, 0.1 * number, np.float32) for number in range(len(ODD_NAMES))]
    run_opencl(oddly_named(), *arrays)
    expected = np.exp(np.float32(0.1 * (len(ODD_NAMES) - 1)))
    np.testing.assert_allclose(arrays[0], expected, rtol=1e-6)
