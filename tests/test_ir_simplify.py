import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ansor.dtypes import int_range
from ansor.ir.printer import format_expr
from ansor.ir.simplify import Bounds, interval, prove, simplify
from ansor.te.expr import (
    Binary,
    BinaryOp,
    Cast,
    Const,
    Not,
    Select,
    Var,
)

# -- evaluation of integer expressions on grids of values ----------------------------------------------


def wrap(values, dtype):
    low, high = int_range(dtype)
    if dtype == "int64":
        return values
    return (values - low) % (high - low + 1) + low


def evaluate(expr, env):
    """The values of an integer or bool expression for arrays (int64, all of one shape) of variable values."""
    match expr:
        case Const(value=value):
            return np.full(next(iter(env.values())).shape, value, np.int64)
        case Var():
            return env[expr]
        case Not(a=a):
            return 1 - evaluate(a, env)
        case Cast(a=a, dtype=dtype):
            value = evaluate(a, env)
            return (value != 0).astype(np.int64) if dtype == "bool" else wrap(value, dtype)
        case Select(cond=cond, then=then, other=other):
            return np.where(evaluate(cond, env) != 0, evaluate(then, env), evaluate(other, env))
        case Binary(op=op, a=a, b=b, dtype=dtype):
            x, y = evaluate(a, env), evaluate(b, env)
            result = ARITHMETIC[op](x, y)
            return result.astype(np.int64) if dtype == "bool" else wrap(result, dtype)
    raise AssertionError(expr)


def truncdiv(x, y):
    return np.sign(x) * np.sign(y) * (abs(x) // np.maximum(abs(y), 1))


ARITHMETIC = {
    BinaryOp.ADD: np.add,
    BinaryOp.SUB: np.subtract,
    BinaryOp.MUL: np.multiply,
    BinaryOp.FLOORDIV: np.floor_divide,
    BinaryOp.FLOORMOD: np.mod,
    BinaryOp.TRUNCDIV: truncdiv,
    BinaryOp.TRUNCMOD: lambda x, y: x - y * truncdiv(x, y),
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
    BinaryOp.EQ: np.equal,
    BinaryOp.NE: np.not_equal,
    BinaryOp.LT: np.less,
    BinaryOp.LE: np.less_equal,
    BinaryOp.GT: np.greater,
    BinaryOp.GE: np.greater_equal,
    BinaryOp.AND: np.logical_and,
    BinaryOp.OR: np.logical_or,
}


def grid(bounds):
    axes = [np.arange(low, high + 1, dtype=np.int64) for low, high in bounds.values()]
    return dict(zip(bounds, (a.ravel() for a in np.meshgrid(*axes, indexing="ij")), strict=True))


# -- random expressions ---------------------------------------------------------------------------------

SUMS = [BinaryOp.ADD, BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MIN, BinaryOp.MAX]
DIVISIONS = [BinaryOp.FLOORDIV, BinaryOp.FLOORMOD, BinaryOp.FLOORDIV, BinaryOp.FLOORMOD]
TRUNCATING = [BinaryOp.TRUNCDIV, BinaryOp.TRUNCMOD]
COMPARING = [BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE, BinaryOp.EQ, BinaryOp.NE]
FACTORS = [2, 3, 4, 6, 8, 12, 16]


class Maker:
    """Random expressions of one integer dtype over variables, as index arithmetic tends to look."""

    def __init__(self, rng, variables, dtype):
        self.rng, self.variables, self.dtype = rng, variables, dtype

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def literal(self, low=-9, high=17):
        return Const(int(self.rng.integers(max(low, int_range(self.dtype)[0]), high)), self.dtype)

    def integer(self, depth):
        kind = self.rng.random()
        if depth == 0 or kind < 0.12:
            return self.literal() if self.rng.random() < 0.2 else self.pick(self.variables)
        if kind < 0.45:
            return Binary(self.pick(SUMS), self.integer(depth - 1), self.integer(depth - 1), self.dtype)
        if kind < 0.6:
            factor = Const(self.pick([*FACTORS, 1, 0, 5]), self.dtype)
            return Binary(BinaryOp.MUL, self.integer(depth - 1), factor, self.dtype)
        if kind < 0.64:
            return Binary(BinaryOp.MUL, self.integer(depth - 1), self.integer(depth - 1), self.dtype)
        if kind < 0.85:
            divisor = Const(self.pick(FACTORS), self.dtype)
            return Binary(self.pick(DIVISIONS), self.integer(depth - 1), divisor, self.dtype)
        if kind < 0.9:
            divisor = Const(self.pick(FACTORS), self.dtype)
            return Binary(self.pick(TRUNCATING), self.integer(depth - 1), divisor, self.dtype)
        if kind < 0.93:
            return Select(
                self.condition(depth - 1),
                self.integer(depth - 1),
                self.integer(depth - 1),
                bool(self.rng.random() < 0.5),
                self.dtype,
            )
        if kind < 0.96:
            x = self.integer(depth - 1)  # the pieces of one number put together again
            d = Const(self.pick(FACTORS), self.dtype)
            quotient = Binary(BinaryOp.FLOORDIV, x, d, self.dtype)
            remainder = Binary(BinaryOp.FLOORMOD, x, d, self.dtype)
            scaled = Binary(BinaryOp.MUL, quotient, d, self.dtype)
            return Binary(BinaryOp.ADD, scaled, remainder, self.dtype)
        narrow = Maker(self.rng, self.variables, self.dtype)
        other = self.pick(["int64", "int32", "int8", "uint8"])
        return Cast(Cast(narrow.integer(depth - 1), other), self.dtype)

    def condition(self, depth):
        kind = self.rng.random()
        if depth <= 0 or kind < 0.6:
            a, b = self.integer(max(depth - 1, 0)), self.integer(max(depth - 2, 0))
            return Binary(self.pick(COMPARING), a, b, "bool")
        if kind < 0.7:
            return Not(self.condition(depth - 1))
        op = self.pick([BinaryOp.AND, BinaryOp.OR])
        return Binary(op, self.condition(depth - 1), self.condition(depth - 1), "bool")


def random_case(seed, dtype):
    rng = np.random.default_rng(seed)
    variables = [Var(name, dtype) for name in "ijk"]
    bounds = {}
    for var in variables:
        low = 0 if rng.random() < 0.6 else int(rng.integers(-6, 6))
        low = max(low, int_range(dtype)[0])
        bounds[var] = (low, low + int(rng.integers(0, 14)))
    maker = Maker(rng, variables, dtype)
    depth = int(rng.integers(1, 6))
    expr = maker.condition(depth) if rng.random() < 0.3 else maker.integer(depth)
    return expr, bounds


def check_case(expr, ranges):
    env = grid(ranges)
    bounds = Bounds(ranges)
    result = simplify(expr, bounds)
    shape = next(iter(env.values())).shape
    expected = np.broadcast_to(evaluate(expr, env), shape)
    found = np.broadcast_to(evaluate(result, env), shape)
    assert result.dtype == expr.dtype
    if not np.array_equal(expected, found):
        at = int(np.flatnonzero(expected != found)[0])
        values = {var.name: int(v[at]) for var, v in env.items()}
        raise AssertionError(f"{format_expr(expr)}  became  {format_expr(result)}  differs at {values}")
    low, high = interval(expr, bounds)
    assert low is not None
    assert high is not None
    assert low <= expected.min(), format_expr(expr)
    assert expected.max() <= high, format_expr(expr)
    if expr.dtype == "bool":
        known = prove(expr, bounds)
        assert known is None or (expected == known).all()
    assert simplify(result, bounds) is result
    again = simplify(result, Bounds(ranges))  # a fresh memory
    assert again is result, f"{format_expr(result)}  became  {format_expr(again)}"


@settings(max_examples=1500, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(["int32", "int32", "int64", "int8", "uint8", "uint32"]),
)
def test_simplified_expressions_have_the_same_values(seed, dtype):
    check_case(*random_case(seed, dtype))
