"""Inline mathematics: errors in units in the last place against float64 references, and special values."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from ansor.codegen.compile import assembly
from ansor.codegen.llvm import abreast, emit_llvm, pieces
from ansor.codegen.llvm.dtype_map import float_literal
from ansor.codegen.llvm.mathlib import MAX_ULP
from ansor.codegen.llvm.pieces import Pieces
from ansor.codegen.machine import Machine
from ansor.dtypes import to_numpy
from ansor.ir.nest import Buffer, For, If, LoopKind, LoopNest, Store
from ansor.te.expr import INTRINSICS, Expr, Load, Var, call, const
from ansor.te.numeric import apply_call
from tests.codegen_helper import run

LIMITS = {**{name: limit for name, limit in MAX_ULP.items() if name != "pow"}, "sqrt": 0.5}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 3.5, math.inf, -math.inf, math.nan, 1e-45, -1e-40, 1e-38]
SPECIAL += [88.7, 88.8, 89.5, -87.0, -103.9, -104.5, 3.4e38, -3.4e38, 0.6499, 0.6501, 0.9296, 0.93, 4.1, 9.1]
WORST = [-4.157294, 0.6524191, 0.65509903, 0.9363451, 1.0790035, -5.197236, 5.1997986]
WORST += [
    3.6612453,
    -1.3196088,
    2.970714e38,
    1.4120755,
    0.705924,
    1.0061859,
    -3.4357357,
    3.516695,
    -4.5298743,
]
WORST += [1510341.9, 1.0732785, 0.12066592, 4.5296855]
WORST += [3.6471586, 3.6456726, 1.3191689, -0.46114764, 0.38436380, 0.38429907, 1.3978524, 0.44186059]
"""Where the functions err most, found by trying every float32 there."""
CPUS = ["host", "haswell", "x86-64"]
"""With all that there is, with fused multiply-adds but no more, and with neither."""


def machine(cpu: str) -> Machine:
    host = Machine.host()
    if cpu == "host":
        return host
    if host.arch != "x86_64":
        pytest.skip("another architecture")
    if cpu == "haswell" and not (host.has_fma and host.vector_bits >= 256):
        pytest.skip("this CPU has no AVX2")
    return Machine.of(host.triple, cpu)


def apply(name: str, arrays: list[np.ndarray], dtype: str, lanes: int, cpu: str) -> np.ndarray:
    """The intrinsic of one-dimensional arrays, whose length is a multiple of `lanes`."""
    n = arrays[0].size
    buffers = [Buffer(f"x{i}", dtype, (n,)) for i in range(len(arrays))]
    out = Buffer("out", dtype, (n,))
    i, j = Var("i"), Var("j")
    store = Store(out, (i * lanes + j,), call(name, *[Load(b, (i * lanes + j,), dtype) for b in buffers]))
    body = For(i, n // lanes, LoopKind.SERIAL, For(j, lanes, LoopKind.VECTORIZED, store))
    result = np.full(n, 7, to_numpy(dtype))
    nest = LoopNest("kernel", (*buffers, out), (), body, (len(buffers),))
    run(nest, *arrays, result, machine=machine(cpu))
    return result


def reference(name: str, *arrays: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return apply_call(name, [a.astype(np.float64) for a in arrays], "float64")


def ulps(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance to the exact value in units of the last place of the dtype; inf where kinds differ."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(found.dtype)
        spacing = np.spacing(np.abs(rounded)).astype(np.float64)
        error = np.abs(found.astype(np.float64) - exact) / spacing
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    special = ~np.isfinite(exact) | ~np.isfinite(rounded) | ~np.isfinite(found)
    return np.where(same & special, 0.0, np.where(special, np.inf, error))


def samples() -> np.ndarray:
    bits = np.arange(0, 1 << 32, 9973, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x = np.concatenate([np.array([*SPECIAL, *WORST], np.float32), bits])
    return np.ascontiguousarray(x[: x.size // 16 * 16])


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("name", sorted(LIMITS))
def test_float32_errors_stay_within_the_documented_ulps(name: str, cpu: str) -> None:
    x = samples()
    error = ulps(apply(name, [x], "float32", 16, cpu), reference(name, x))
    worst = int(np.argmax(error))
    assert error[worst] <= LIMITS[name], f"{name}({x[worst]!r})"


def test_exp_by_a_table_errs_by_less_than_a_unit() -> None:
    if not Machine.host().has_range:
        pytest.skip("no AVX-512 to look roots up")
    x = np.concatenate([samples(), np.array([-51.834759] * 16, np.float32)])
    error = ulps(apply("exp", [x], "float32", 16, "host"), reference("exp", x))
    assert error.max() <= 1


@pytest.mark.parametrize(("cpu", "has"), [("knl", False), ("skylake-avx512", True)])
def test_roots_are_looked_up_by_machines_that_bound_magnitudes(cpu: str, has: bool) -> None:
    host = Machine.host()
    if host.arch != "x86_64":
        pytest.skip("another architecture")
    source, out, i = Buffer("x", "float32", (16,)), Buffer("out", "float32", (16,)), Var("i")
    for name, bounds in (("exp", True), ("sigmoid", True), ("tanh", False), ("erf", False)):
        store = Store(out, (i,), call(name, Load(source, (i,), "float32")))
        nest = LoopNest("kernel", (source, out), (), For(i, 16, LoopKind.VECTORIZED, store), (1,))
        machine = Machine.of(host.triple, cpu)
        text = assembly(emit_llvm(nest, machine), machine)
        assert ("vpermps" in text) == has
        assert ("vrangeps" in text) == (has and bounds)
        assert "vdivps" not in text or name == "sigmoid" or not has


@pytest.mark.parametrize("name", ["erf", "tanh"])
def test_pieces_fit_together(name: str) -> None:
    """Where one piece ends and the next begins, where the first has its anchor, and where the result is 1."""
    fitted: Pieces = getattr(pieces, name)()
    bounds = [(k + 0.5) * fitted.width for k in range(15)]
    some = np.array([0.0, *bounds, *fitted.anchors, fitted.end], np.float32)
    around = np.concatenate([some, *(some + i * np.spacing(some) for i in range(-40, 40))])
    x = np.concatenate([around, -around, np.full(2, 1e30), np.zeros(14)]).astype(np.float32)
    x = np.ascontiguousarray(x[: x.size // 16 * 16])
    for cpu in CPUS:
        found = apply(name, [x], "float32", 16, cpu)
        assert np.abs(found).max() == 1
        assert ulps(found, reference(name, x)).max() <= MAX_ULP[name]


def test_exp_of_more_lanes_than_a_register_holds() -> None:
    host = Machine.host()
    if host.arch != "x86_64":
        pytest.skip("another architecture")
    n = 64
    source, out, i = Buffer("x", "float16", (n,)), Buffer("out", "float16", (n,)), Var("i")
    store = Store(out, (i,), call("exp", Load(source, (i,), "float16")))
    nest = LoopNest("kernel", (source, out), (), For(i, n, LoopKind.VECTORIZED, store), (1,))
    machine = Machine.of(host.triple, "sapphirerapids")
    text = emit_llvm(nest, machine)
    assert "<32 x float>" in text
    assert "vscalefps" in assembly(text, machine)


@pytest.mark.parametrize("lanes", [1, 2, 3, 5, 8])
@pytest.mark.parametrize(
    "name",
    [
        *("exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tan", "atan", "sinh", "cosh"),
        *("tanh", "sigmoid", "erf"),
    ],
)
def test_results_do_not_depend_on_the_number_of_lanes(
    name: str, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor on whether several vectors are computed at a time."""
    x = np.concatenate([np.array(SPECIAL, np.float32), np.linspace(-12, 12, 92, dtype=np.float32)])
    assert x.size == 120
    wide = apply(name, [x], "float32", 8, "host")
    np.testing.assert_array_equal(apply(name, [x], "float32", lanes, "host"), wide)
    monkeypatch.setattr(abreast, "_LONGEST", 0)
    np.testing.assert_array_equal(apply(name, [x], "float32", lanes, "host"), wide)


@pytest.mark.parametrize(
    "name",
    [
        *("expm1", "log1p", "sin", "tan", "atan", "sinh", "tanh", "erf", "sqrt"),
        *("floor", "ceil", "round", "abs"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_zeros_keep_their_sign(name: str, dtype: str) -> None:
    x = np.array([0.0, -0.0] * 8, to_numpy(dtype))
    found = apply(name, [x], dtype, 16, "host")
    np.testing.assert_array_equal(np.signbit(found), np.signbit(x) & (name != "abs"))


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("name", ["floor", "ceil", "round", "abs"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_rounding_functions_are_exact(name: str, dtype: str, cpu: str) -> None:
    values = [*SPECIAL, 0.5, 1.5, -0.5, -1.5, 2.0**23 + 1, -(2.0**22) - 0.5, 8388607.5, 1e9, -1e9, -7.25]
    with np.errstate(all="ignore"):
        x = np.array(values * 16, np.float64).astype(to_numpy(dtype))
    with np.errstate(all="ignore"):
        expected = apply_call(name, [x], dtype)
        found = apply(name, [x], dtype, 16, cpu)
        np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


def test_the_documentation_has_the_same_limits() -> None:
    page = (Path(__file__).parents[1] / "docs" / "targets.md").read_text(encoding="utf-8")
    stated = {name: float(limit) for name, limit in re.findall(r"`(\w+)` \| ([\d.]+) \|", page)}
    assert stated == {**MAX_ULP, "sqrt": 0.5}


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("name", sorted(LIMITS))
def test_float64_functions(name: str, cpu: str) -> None:
    rng = np.random.default_rng(5)
    special = [*SPECIAL, 709.7, 710.0, -745.1, -746.0, 5e-324, -1e-310, 1e300, 21.9, 22.1]
    x = np.concatenate([special, rng.uniform(-30, 30, 3000), rng.normal(size=1000) * 1e-4])
    x = x[: x.size // 8 * 8].copy()
    error = ulps(apply(name, [x], "float64", 8, cpu), reference(name, x))
    worst = int(np.argmax(error))
    assert error[worst] <= 4, f"{name}({x[worst]!r})"


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_angles_near_multiples_of_half_pi_and_of_large_numbers(dtype: str, cpu: str) -> None:
    """The numbers nearest to multiples of pi/2 below and around 2**20, and those nearest of all to one."""
    multiples = np.concatenate([np.arange(4000), np.arange(660_000, 675_000)]) * (np.pi / 2)
    nearest = [16367173 * 2.0**72, *([6381956970095103 * 2.0**797] if dtype == "float64" else [])]
    some = np.array([*multiples, *nearest, 2.0**20, 1e7, 1e22, 1.6e38], dtype)
    x = np.concatenate([some, np.nextafter(some, some.dtype.type(np.inf)), -some])
    x = np.ascontiguousarray(x[: x.size // 16 * 16])
    for name, most in (("sin", 2), ("cos", 2), ("tan", 4)):
        exact = np.array([getattr(math, name)(angle) for angle in x.tolist()])  # numpy's errs by 14 units
        error = ulps(apply(name, [x], dtype, 16, cpu), exact)
        worst = int(np.argmax(error))
        assert error[worst] <= (MAX_ULP[name] if dtype == "float32" else most), f"{name}({x[worst]!r})"


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_atan_sinh_and_cosh_near_zero_and_at_their_ends(dtype: str, cpu: str) -> None:
    rng = np.random.default_rng(11)
    info = np.finfo(dtype)
    end = np.nextafter(np.arccosh(info.max / 4) + np.log(4), np.arange(-8, 8)).astype(dtype)
    some = np.array([info.smallest_subnormal * 3, info.tiny, 2.0**-12, 2.0**-26, 0.4142, 1.0, 2.4142], dtype)
    around = [some + k * np.spacing(some) for k in range(-2, 3)]
    scaled = np.exp(rng.uniform(-80, 80, 4000)).astype(dtype)
    x = np.concatenate([*around, scaled, end, end * 1.0001, [info.max, np.inf, np.nan]])
    x = np.concatenate([x, -x]).astype(dtype)
    x = np.concatenate([x, np.zeros(-x.size % 16, dtype)])
    for name in ("atan", "sinh", "cosh"):
        error = ulps(apply(name, [x], dtype, 16, cpu), reference(name, x))
        worst = int(np.argmax(error))
        assert error[worst] <= (MAX_ULP[name] if dtype == "float32" else 2), f"{name}({x[worst]!r})"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_one_angle_reduce_it_once(dtype: str) -> None:
    i, machine = Var("i"), Machine.host()
    source, out = Buffer("x", dtype, (16,)), Buffer("out", dtype, (16,))
    angle = Load(source, (i,), dtype)

    def reductions(value: Expr) -> int:
        body = For(i, 16, LoopKind.VECTORIZED, Store(out, (i,), value))
        text = emit_llvm(LoopNest("kernel", (source, out), (), body, (1,)), machine)
        return text.count(float_literal(2 / math.pi, "double"))

    sine, cosine = call("sin", angle), call("cos", angle)
    assert reductions(sine * cosine * call("tan", angle)) == reductions(sine) > 0
    assert reductions(sine * call("cos", angle * 2.0)) == 2 * reductions(sine)


@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_angle_is_reduced_before_the_loops_that_it_stays_the_same_in(dtype: str, name: str) -> None:
    """Whether it is small or large, and within the branch that it is in."""
    x = np.array([0.5, 1e7, -2.0, 1e30], to_numpy(dtype))
    source, out, i, j = Buffer("x", dtype, x.shape), Buffer("out", dtype, (4, 300)), Var("i"), Var("j")
    angle = Load(source, (i,), dtype)
    store = Store(out, (i, j), call(name, angle))
    loops = [For(j, 300, kind, store) for kind in (LoopKind.SERIAL, LoopKind.VECTORIZED)]
    for inner in (*loops, If(angle < 1e20, loops[0], loops[1])):
        nest = For(i, 4, LoopKind.SERIAL, inner)
        found = np.zeros((4, 300), to_numpy(dtype))
        text = run(LoopNest("kernel", (source, out), (), nest, (1,)), x, found)
        assert ulps(found[:, 0], reference(name, x)).max() <= 2
        assert (found == found[:, :1]).all()
        assert text.rindex("\nloop.") > text.rindex(float_literal(2 / math.pi, "double"))


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_expm1_and_log1p_near_zero_and_at_their_ends(dtype: str, cpu: str) -> None:
    rng = np.random.default_rng(7)
    small = np.exp(rng.uniform(-80, 0, 2000)) * rng.choice([-1, 1], 2000)
    ends = [-1.0, *(-1 + 2.0**-k for k in range(1, 24)), -1.5, *(2.0**k for k in range(-149, 128))]
    ends += [88.37, 88.38, 88.7, 88.72284, -17.5, -18.5, 709.0, 709.5, 709.78, -38.0, -40.5, 3.4e38]
    x = np.array([*small, *ends, *SPECIAL], dtype)
    x = np.concatenate([x, np.zeros(-x.size % 16, dtype)])
    for name in ("expm1", "log1p"):
        error = ulps(apply(name, [x], dtype, 16, cpu), reference(name, x))
        worst = int(np.argmax(error))
        assert error[worst] <= (MAX_ULP[name] if dtype == "float32" else 2), f"{name}({x[worst]!r})"


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(("dtype", "least", "greatest"), [("float32", -149, 127), ("float64", -1074, 1023)])
def test_powers_of_two_and_their_logarithms_are_exact(
    dtype: str, least: int, greatest: int, cpu: str
) -> None:
    n = np.arange(least, greatest + 1, dtype=dtype)
    n = np.concatenate([n, np.zeros(-n.size % 16, dtype)])
    powers = np.ldexp(np.ones_like(n), n.astype(np.int32))
    np.testing.assert_array_equal(apply("exp2", [n], dtype, 16, cpu), powers)
    np.testing.assert_array_equal(apply("log2", [powers], dtype, 16, cpu), n)
    beyond = np.array([least - 1, least - 2, greatest + 1, greatest + 9] * 4, dtype)
    np.testing.assert_array_equal(apply("exp2", [beyond], dtype, 16, cpu), [0, 0, np.inf, np.inf] * 4)


@pytest.mark.parametrize("cpu", CPUS)
def test_pow_of_every_pair_of_special_values(cpu: str) -> None:
    some = np.array([*SPECIAL, 2.0, 3.0, -3.0, 5.0, 1e30, 2.0**24 + 2], np.float32)
    x, y = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(some, some))
    rng = np.random.default_rng(3)
    x = np.concatenate([x, np.exp(rng.uniform(-3, 3, 5000)).astype(np.float32)])
    y = np.concatenate([y, rng.uniform(-40, 40, 5000).astype(np.float32)])
    n = x.size // 8 * 8
    x, y = x[:n].copy(), y[:n].copy()
    error = ulps(apply("pow", [x, y], "float32", 8, cpu), reference("pow", x, y))
    worst = int(np.argmax(error))
    assert error[worst] <= MAX_ULP["pow"], f"pow({x[worst]!r}, {y[worst]!r})"


@pytest.mark.parametrize("exponent", [0.5, -0.5, 1.0, 2.0, 3.0, 4.0, -1.0, 1.5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_constant_exponents(exponent: float, dtype: str) -> None:
    x = np.array([*SPECIAL, 1.25, -7.0, 11.0, 0.1], to_numpy(dtype))
    source, out, i = Buffer("x", dtype, (x.size,)), Buffer("out", dtype, (x.size,)), Var("i")
    value = call("pow", Load(source, (i,), dtype), const(exponent, dtype))
    nest = LoopNest(
        "kernel", (source, out), (), For(i, x.size, LoopKind.VECTORIZED, Store(out, (i,), value)), (1,)
    )
    found = np.zeros_like(x)
    text = run(nest, x, found)
    assert ("fpext" in text or "@pow" in text) == (exponent == 1.5)  # the others are a few instructions
    assert ulps(found, reference("pow", x, np.full_like(x, exponent))).max() <= 2


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", [n for n in sorted(INTRINSICS) if INTRINSICS[n] == 1])
def test_sixteen_bit_floats_are_within_one_rounding(name: str, dtype: str) -> None:
    """All 65536 values: the float64 result rounded once, or its neighbour where that is a near tie."""
    x = np.arange(1 << 16, dtype=np.uint16).view(to_numpy(dtype))
    found = apply(name, [x], dtype, 16, "host")
    with np.errstate(all="ignore"):
        expected = apply_call(name, [x], dtype)
        differs = (found != expected) & ~(np.isnan(found) & np.isnan(expected))
    steps = np.abs(found.view(np.int16).astype(int) - expected.view(np.int16).astype(int))
    assert steps[differs].max(initial=0) <= 1
    assert differs.mean() < 0.01


def test_fma_rounds_once() -> None:
    tiny = np.float32(2.0**-12)
    a = np.array([1 + tiny] * 16, np.float32)
    found = apply("fma", [a, a, np.full(16, -1, np.float32)], "float32", 16, "host")
    np.testing.assert_array_equal(found, np.float32(2.0**-11 + 2.0**-24))
