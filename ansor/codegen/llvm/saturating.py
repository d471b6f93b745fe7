"""`tanh`, `sigmoid` and `erf` of float32: odd polynomials near 0, and made of exponentials beyond."""

from __future__ import annotations

from typing import Final

from ansor.codegen.llvm import pieces
from ansor.codegen.llvm.evaluation import clamp, polynomial, single
from ansor.codegen.llvm.exponential import exp, exp_moderate
from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.vectors import Vectors

_TANH: Final = (
    -0.333333283662796,
    0.13333125412464142,
    -0.053936757147312164,
    0.02164689637720585,
    -0.008047142997384071,
    0.0020264608319848776,
)
_ERF_SMALL: Final = (
    0.12837916612625122,
    -0.37612631916999817,
    0.11283687502145767,
    -0.026858942583203316,
    0.005199907347559929,
    -0.0008130018250085413,
    8.316795720020309e-05,
)
_ERF_LARGE: Final = (
    -1.1285570859909058,
    -0.6356009244918823,
    -0.1053096354007721,
    0.022723324596881866,
    -0.002960382727906108,
    6.047294300515205e-05,
    4.3454012484289706e-05,
    -4.7642920435464475e-06,
)


def tanh(v: Vectors, x: Value) -> Value:
    """tanh: an odd polynomial below 0.65, else 1 - 2 / (exp(2|x|) + 1)."""
    if v.machine.has_range:  # it looks up as well
        return pieces.tanh().call(v, x)
    magnitude = clamp(v, v.intrinsic("fabs", x), None, 10.0)
    one = single(v, 1.0)
    grown = v.binary("fadd", exp_moderate(v, v.binary("fadd", magnitude, magnitude)), one)
    large = v.binary("fsub", one, v.binary("fdiv", single(v, 2.0), grown))
    square = v.binary("fmul", x, x)
    small = v.fma(v.binary("fmul", square, x), polynomial(v, square, _TANH), x)
    is_small = v.compare("olt", magnitude, single(v, 0.65))
    return v.intrinsic("copysign", v.select(is_small, small, large), x)


def sigmoid(v: Vectors, x: Value) -> Value:
    """sigmoid: e / (1 + e), with e = exp(x) of an x where that is finite, and 1 + e equal to e."""
    e = exp(v, x, 88.0)
    return v.binary("fdiv", e, v.binary("fadd", e, single(v, 1.0)))


def erf(v: Vectors, x: Value) -> Value:
    """erf: an odd polynomial below 0.9296875, else 1 - exp(polynomial), which is 1 from 4 on."""
    if v.machine.has_range:
        return pieces.erf().call(v, x)
    magnitude = clamp(v, v.intrinsic("fabs", x), None, 4.0)
    exponent = v.binary("fmul", magnitude, polynomial(v, magnitude, _ERF_LARGE))
    large = v.binary("fsub", single(v, 1.0), exp_moderate(v, exponent))
    square = v.binary("fmul", x, x)
    small = v.fma(x, polynomial(v, square, _ERF_SMALL), x)
    is_small = v.compare("olt", magnitude, single(v, 0.9296875))
    return v.select(is_small, small, v.intrinsic("copysign", large, x))
