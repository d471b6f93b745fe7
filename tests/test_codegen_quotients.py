"""Division of vectors by one number for all lanes: the nearest floats, as of IEEE division."""

from __future__ import annotations

import numpy as np
import pytest

from ansor.codegen.llvm import emit_llvm
from ansor.ir.nest import Buffer, For, LoopKind, LoopNest, Store
from ansor.te.expr import Expr, Load, Var, const
from tests.codegen_helper import run
from tests.test_codegen_math import machine

SIZES = [1.0, 3.0, 7.0, 49.0, 1000.0, 1.0000001, 1.9999999, 16777215.0, 2.0**24, 1.5 * 2.0**23]
ODD = [2.0**25, 2.0**60, 0.9999999, 0.3, 1e-30, 1e-45, 1e-38, 3.4e38, 0.0, np.inf, np.nan]
DIVISORS = [sign * size for size in [*SIZES, *ODD] for sign in (1.0, -1.0)]
CPUS = ["host", "haswell", "x86-64"]
LEAST = 2.0**-100


def nest_of(rows: int, columns: int, divisor: float | None) -> LoopNest:
    """Rows over a number each, or over one constant."""
    x, s, out = (
        Buffer("x", "float32", (columns,)),
        Buffer("s", "float32", (rows,)),
        Buffer("o", "float32", (rows, columns)),
    )
    i, j, k = Var("i"), Var("j"), Var("k")
    by: Expr = Load(s, (i,), "float32") if divisor is None else const(divisor, "float32")
    store = Store(out, (i, j * 16 + k), Load(x, (j * 16 + k,), "float32") / by)
    inner = For(j, columns // 16, LoopKind.SERIAL, For(k, 16, LoopKind.VECTORIZED, store))
    return LoopNest("kernel", (x, s, out), (), For(i, rows, LoopKind.SERIAL, inner), (2,))


def quotients(x: np.ndarray, s: np.ndarray, cpu: str, divisor: float | None = None) -> np.ndarray:
    out = np.zeros((s.size, x.size), np.float32)
    run(nest_of(s.size, x.size, divisor), x, s, out, machine=machine(cpu))
    return out


def assert_right(found: np.ndarray, x: np.ndarray, s: np.ndarray) -> None:
    """The nearest floats, or of two as near as can be the other; of the least quotients either neighbour."""
    with np.errstate(all="ignore"):
        expected, exact = x / s[:, None], x.astype(np.float64) / s[:, None].astype(np.float64)
    differs = (found.view(np.uint32) != expected.view(np.uint32)) & ~(np.isnan(found) & np.isnan(expected))
    steps = found.view(np.int32).astype(np.int64) - expected.view(np.int32)
    assert np.abs(steps[differs]).max(initial=0) <= 1
    wrong = differs & (np.abs(exact) >= LEAST)
    off = np.abs(found[wrong].astype(np.float64) - exact[wrong])
    assert (off <= (0.5 + 2.0**-22) * np.abs(found[wrong] - expected[wrong])).all()
    assert wrong.mean() <= 0.02


def dividends() -> np.ndarray:
    bits = np.arange(0, 1 << 32, 99991, dtype=np.uint64).astype(np.uint32).view(np.float32)
    special = [
        0.0,
        -0.0,
        1.0,
        3.0,
        21.0,
        np.inf,
        -np.inf,
        np.nan,
        1e-45,
        -1e-45,
        1e-38,
        3.4028235e38,
        -3.4028235e38,
    ]
    x = np.concatenate([np.array(special, np.float32), bits])
    return np.ascontiguousarray(x[: x.size // 16 * 16])


@pytest.mark.parametrize("cpu", CPUS)
def test_quotients_by_a_number_of_the_row(cpu: str) -> None:
    x, s = dividends(), np.array(DIVISORS, np.float32)
    assert_right(quotients(x, s, cpu), x, s)


@pytest.mark.parametrize("divisor", DIVISORS)
def test_quotients_by_a_constant(divisor: float) -> None:
    x, s = dividends(), np.array([divisor], np.float32)
    assert_right(quotients(x, s, "host", divisor), x, s)


def near_ties() -> tuple[np.ndarray, np.ndarray]:
    """Significands whose quotients are as near as can be to the middle between two floats."""
    rng = np.random.default_rng(0)
    numerators, divisors = [], []
    for divisor in (2 * rng.integers(1 << 22, 1 << 23, 60) + 1).tolist():
        found = []
        for k in (24, 25):
            for distance in (-3, -2, -1, 1, 2, 3):
                numerator = distance * pow(2, -k, divisor) % divisor
                found += [n for n in (numerator, numerator + divisor) if 1 << 23 <= n < 1 << 24]
        numerators.append((found + [divisor] * 16)[:16])
        divisors.append(divisor)
    return np.array(numerators, np.float32), np.array(divisors, np.float32)


def test_quotients_near_a_tie_are_rounded_as_they_should_be() -> None:
    numerators, divisors = near_ties()
    x = numerators.ravel()
    assert_right(quotients(x, divisors, "host"), x, divisors)


def test_random_quotients() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=4096).astype(np.float32)
    s = np.exp(rng.uniform(0, 16, 256)).astype(np.float32)
    assert (quotients(x, s, "host") == x / s[:, None]).all()


@pytest.mark.parametrize("divisor", [3.0, 7.0, 1000.0, 12345679.0, -1.25, 2.0**24, -1.5])
@pytest.mark.parametrize("constant", [False, True])
def test_quotients_that_are_floats_are_exact(divisor: float, constant: bool) -> None:
    rng = np.random.default_rng(2)
    most = 2.0**24 / abs(np.float32(divisor))
    whole = np.floor(rng.uniform(-1, 1, 4096) * most).astype(np.float32)
    s = np.array([divisor], np.float32)
    x = whole * s  # fits 24 bits where the divisor is whole
    kept = x.astype(np.float64) == whole.astype(np.float64) * s.astype(np.float64)
    assert kept.any()
    found = quotients(x, s, "host", float(s[0]) if constant else None)[0]
    assert (found.view(np.uint32) == (x / s).view(np.uint32))[kept].all()


def test_a_vector_machine_does_not_divide_by_a_constant() -> None:
    assert "fdiv" not in emit_llvm(nest_of(2, 32, 49.0), machine("host"))
