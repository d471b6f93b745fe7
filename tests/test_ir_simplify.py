from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansor.dtypes import int_range
from ansor.ir.nest import Buffer
from ansor.ir.printer import format_expr
from ansor.ir.simplify import Bounds, assume, interval, prove, simplify
from ansor.te.expr import (
    Binary,
    BinaryOp,
    Cast,
    Const,
    Load,
    Not,
    Select,
    Var,
    call,
    cast,
    const,
    logical_not,
    select,
)
from ansor.te.intrinsics import floormod, if_then_else
from ansor.te.structure import same_structure

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
    BinaryOp.BITAND: np.bitwise_and,
    BinaryOp.BITOR: np.bitwise_or,
    BinaryOp.XOR: np.bitwise_xor,
    BinaryOp.SHL: np.left_shift,
    BinaryOp.SHR: np.right_shift,
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
        if kind < 0.95:
            return self.bits(depth)
        if kind < 0.97:
            return Select(
                self.condition(depth - 1),
                self.integer(depth - 1),
                self.integer(depth - 1),
                bool(self.rng.random() < 0.5),
                self.dtype,
            )
        if kind < 0.985:
            x = self.integer(depth - 1)  # the pieces of one number put together again
            d = Const(self.pick(FACTORS), self.dtype)
            quotient = Binary(BinaryOp.FLOORDIV, x, d, self.dtype)
            remainder = Binary(BinaryOp.FLOORMOD, x, d, self.dtype)
            scaled = Binary(BinaryOp.MUL, quotient, d, self.dtype)
            return Binary(BinaryOp.ADD, scaled, remainder, self.dtype)
        narrow = Maker(self.rng, self.variables, self.dtype)
        other = self.pick(["int64", "int32", "int8", "uint8"])
        return Cast(Cast(narrow.integer(depth - 1), other), self.dtype)

    def bits(self, depth):
        op = self.pick([BinaryOp.BITAND, BinaryOp.BITOR, BinaryOp.XOR, BinaryOp.SHL, BinaryOp.SHR])
        a, b = self.integer(depth - 1), self.integer(depth - 1)
        if op in (BinaryOp.SHL, BinaryOp.SHR):
            b = Binary(BinaryOp.FLOORMOD, b, Const(self.pick([2, 3, 8]), self.dtype), self.dtype)
        return Binary(op, a, b, self.dtype)

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


def test_remainders_of_remainders_of_remainders_are_one() -> None:
    k = Var("k")
    inner = floormod(floormod(floormod(k + 2, 12), 8), 4)
    check_case(inner, {k: (-4, 7)})
    assert str(simplify(inner, Bounds({k: (-4, 7)}))) == "floormod((k + 2), 4)"


@settings(max_examples=1500, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(["int32", "int32", "int64", "int8", "uint8", "uint32"]),
)
def test_simplified_expressions_have_the_same_values(seed, dtype):
    check_case(*random_case(seed, dtype))


# -- the canonical form ---------------------------------------------------------------------------------

i, j, k, n, d = Var("i"), Var("j"), Var("k"), Var("n"), Var("d")
KNOWN = Bounds({i: (0, 7), j: (0, 3), k: (0, 15), n: (1, None)})
A = Buffer("A", "float32", (512,))
IDX = Buffer("IDX", "int32", (512,))
FLAGS = Buffer("F", "bool", (64,))
SMALL = Buffer("SMALL", "int8", (512,))


def load(buffer, index):
    return Load(buffer, (index,), buffer.dtype)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (i + j + i, "i*2 + j"),
        (j - i - j + 5 - n + 3, "8 - i - n"),
        ((i + 3) * 4 - 12, "i*4"),
        (n * (i + 1) - n, "n*i"),
        ((i * 4 + j) // 4, "i"),
        ((i * 4 + j) % 4, "j"),
        ((i * 4 + j + 9) // 4, "i + (j + 1)//4 + 2"),
        ((i * 4 + j) // 8, "i//2"),
        ((i * 4 + j) % 8, "i%2*4 + j"),
        (k // 2 // 3, "k//6"),
        (k % 12 // 4, "k//4%3"),
        (k % 16, "k"),
        ((i * 4 + j) >> 2, "i"),
        ((i * 4 + j) & 3, "j"),
        (((i << 2) | j) - (j | (i << 2)), "bitor(i*4, j) - bitor(j, i*4)"),
        (k >> 1 >> 1, "k//4"),
        (~k + 16, "15 - k"),
        (1 << j, "shl(1, j)"),
        (k >> (j + 4), "0"),
        (k >> (j % 1 + 1), "k//2"),
        ((i ^ j) & 7, "xor(i, j)"),
        ((k & 12) % 16, "bitand(k, 12)"),
        (k // 4 * 4 + k % 4, "k"),
        (k // 4 * 4 + k // 2 % 2 * 2 + k % 2, "k"),
        (k // 4 % 2 * 4 + k % 4, "k%8"),
        ((i * 16 + k) // 5 * 5 + (i * 16 + k) % 5, "i*16 + k"),
        ((n * 6 + i) // 3 * 3 + (n * 6 + i) % 3, "n*6 + i"),
        ((k - 1) % 3, "(k + 2)%3"),
        ((n * 6 + i) // 3, "n*2 + i//3"),
        ((n * 6 + i) % 3, "i%3"),
        ((i * n) // n, "i"),
        (Binary(BinaryOp.TRUNCDIV, i * 4 + j, const(4), "int32"), "i"),
        (Binary(BinaryOp.TRUNCMOD, i - 4, const(3), "int32"), "truncmod(i - 4, 3)"),
        (Binary(BinaryOp.MIN, i * 4 + j, const(31), "int32"), "i*4 + j"),
        (Binary(BinaryOp.MAX, i + n, i + n - 2, "int32"), "i + n"),
        (i * 4 + j < 32, "True"),
        (i * 4 + j < 28, "i < 7"),
        (i * 4 + j < 30, "i*4 + j < 30"),
        (i * 4 + k * 8 < 30, "i + k*2 < 8"),
        (k // 4 < 2, "k < 8"),
        (k // 4 >= 2, "k >= 8"),
        (i + k // 4 <= 4, "i*4 + k < 20"),
        (i > k // 3, "k < i*3"),
        (i < k // 3, "i*3 + 2 < k"),
        (k // 3 * 6 + 1 < i * 6, "k < i*3"),
        ((i + 20) // 36 < 1, "True"),
        (i - 1 >= 0, "i >= 1"),
        (n - i > j, "i + j < n"),
        (n - i - 1 < n, "True"),
        (i * 4 + 1 == k * 2, "False"),
        (i * 4 - 8 == k * 2, "i*2 == k + 4"),
        (logical_not(i < 5), "i >= 5"),
        (logical_not(i == k), "i != k"),
        ((i < 5) & (j < 9) & (i < 5), "i < 5"),
        ((i < 5) | (j < 9), "True"),
        ((k < 5) | (j > 9), "k < 5"),
        (select(j < 9, i, k), "i"),
        (select(i < k, i + j, j + i - 0), "i + j"),
        (cast(i, "int64") * 2 + cast(i, "int64"), "int64(i)*3"),
        (call("abs", i + 1), "i + 1"),
        (load(IDX, i * 4 + j - i * 4) + 1 - 1, "IDX[j]"),
        (cast(load(SMALL, i), "int32") < 200, "True"),
    ],
)
def test_canonical_forms(expr, expected):
    assert format_expr(simplify(expr, KNOWN)) == expected


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (load(FLAGS, i) & load(FLAGS, i * 1), "F[i]"),
        (select(i < k, load(FLAGS, j), load(FLAGS, j + 0)), "F[j]"),
        (
            select(load(FLAGS, i), load(FLAGS, j), load(FLAGS, k))
            | select(load(FLAGS, i), load(FLAGS, j), load(FLAGS, k)),
            "select(F[i], F[j], F[k])",
        ),
        (load(FLAGS, i) & logical_not(load(FLAGS, i)) & logical_not(load(FLAGS, i)), "F[i] and not F[i]"),
        (load(FLAGS, i) & load(FLAGS, j), "F[i] and F[j]"),
    ],
)
def test_equal_bools_that_are_read_are_one(expr, expected):
    assert format_expr(simplify(expr, KNOWN)) == expected


def test_data_wraps_and_is_not_taken_apart():
    x = load(IDX, i)
    for expr in (x < x + 1, (x * 4 + 1) // 4, d < d + 1):
        assert simplify(expr, KNOWN) is expr
    assert format_expr(simplify(d + 1 > d, Bounds({d: (0, None)}))) == "True"


def test_a_divisor_that_wraps_to_zero_is_not_divided_by():
    zero = (i + (2**31 - 1)) - (i - (2**31 - 1)) + 2
    assert format_expr(simplify(Binary(BinaryOp.FLOORDIV, const(7), zero, "int32"), KNOWN)) == "7//0"


def test_an_unchanged_expression_is_the_same_object():
    for expr in (i * 4 + j, load(A, i * 4 + j) * 2.0, (i < n) & (j < k), load(IDX, k // 2) % 8, i == k):
        assert simplify(expr, KNOWN) is expr
        assert simplify(expr, KNOWN) is expr


def test_float_arithmetic_stays_and_indices_in_it_are_simplified():
    value = (load(A, (i * 4 + j) // 4) + 0.0) * 1.0 + load(A, j + i - j)
    result = simplify(value, KNOWN)
    assert format_expr(result) == "(A[i] + 0.0)*1.0 + A[i]"
    assert result.dtype == "float32"


def test_a_lazy_choice_is_simplified_under_its_condition():
    inside = select(
        i >= 4, load(A, Binary(BinaryOp.MAX, i - 4, const(0), "int32")), load(A, i // 4), lazy=True
    )
    assert format_expr(simplify(inside, KNOWN)) == "if_then_else(i >= 4, A[i - 4], A[0])"
    eager = select(i >= 4, load(A, Binary(BinaryOp.MAX, i - 4, const(0), "int32")), load(A, i // 4))
    assert simplify(eager, KNOWN) is eager


def test_assumptions_narrow_single_variables():
    assert assume(KNOWN, (i < 5) & (j >= 2))[i] == (0, 4)
    assert assume(KNOWN, i * 4 + j < 16)[i] == (0, 3)
    assert assume(KNOWN, i < 7, holds=False)[i] == (7, 7)
    assert assume(KNOWN, (i < 7) | (j < 1), holds=False)[j] == (1, 3)
    assert assume(KNOWN, n <= 12)[n] == (1, 12)
    for nothing in (i < 9, i < n + 8, i + j < 11):
        assert assume(KNOWN, nothing) is KNOWN


def test_assumptions_narrow_the_variables_of_sums():
    """Of the last tile all is known: 8 x 4 elements in 7 x 4, where the last row is cut."""
    last = assume(KNOWN, i * 4 + j < 31, holds=False)
    assert (last[i], last[j]) == ((7, 7), (3, 3))
    assert assume(KNOWN, i + j < 5)[i] == (0, 4)
    assert assume(KNOWN, i - j > 5)[i] == (6, 7)
    assert assume(KNOWN, i - j > 5)[j] == (0, 1)
    assert assume(KNOWN, k // 5 * 3 + j < 8)[k] == (0, 14)
    assert assume(KNOWN, k // 5 * 3 + j < 8, holds=False)[k] == (10, 15)


@given(coefficients=st.tuples(*[st.integers(-9, 9)] * 3), limit=st.integers(-90, 90), holds=st.booleans())
def test_assumptions_leave_what_they_say(coefficients, limit, holds):
    """All values under which a condition holds lie in the ranges learnt from it."""
    a, b, c = coefficients
    ranges = {i: range(8), j: range(4), k: range(16)}
    assert all(KNOWN[v] == (0, len(values) - 1) for v, values in ranges.items())
    learnt = assume(KNOWN, i * a + j * b + k * c < limit, holds=holds)
    for x, y, z in product(*ranges.values()):
        if (x * a + y * b + z * c < limit) == holds:
            assert all(
                low <= v <= high for v, (low, high) in zip((x, y, z), map(learnt.get, ranges), strict=True)
            )


def test_bounds_are_values():
    assert KNOWN.extended({d: (0, 1)})[d] == (0, 1)
    assert d not in KNOWN
    assert repr(Bounds({i: (0, None)})) == "Bounds({i: 0..?})"
    with pytest.raises(ValueError, match=r"range 3..2 of variable 'i' is empty"):
        Bounds({i: (3, 2)})


def test_prove_and_interval_of_what_is_unknown():
    assert prove(i < k, KNOWN) is None
    assert interval(n * 4 + 3, KNOWN) == (7, None)
    assert interval(0 - n, KNOWN) == (None, -1)
    assert interval(i < k, KNOWN) == (0, 1)
    assert interval(load(A, i), KNOWN) == (None, None)


def test_deep_and_shared_expressions():
    chain = load(A, i)
    for _ in range(5000):
        chain = chain * 2.0
    assert simplify(chain, KNOWN) is chain
    total = i + j
    for _ in range(5000):
        total = Binary(BinaryOp.ADD, total, i, "int32")
    assert format_expr(simplify(total, KNOWN)) == "i*5001 + j"
    shared = load(A, i)
    for _ in range(60):
        shared = shared * shared
    assert simplify(shared, KNOWN) is shared
    assert same_structure(shared, Binary(BinaryOp.MUL, shared.a, shared.b, "float32"))


def test_equality_of_trees():
    assert same_structure(i * 4 + j, i * 4 + j)
    assert not same_structure(i * 4 + j, j + i * 4)
    assert not same_structure(const(0.0), const(-0.0))
    assert not same_structure(const(1), const(1, "int64"))
    assert not same_structure(load(A, i), load(IDX, i))


def test_conditions_around_a_choice_do_not_count_as_choices():
    """Of choices inside of each other some narrow what is known; of what surrounds them all of it does."""
    known = Bounds({i: (0, 99)})
    for most in range(20, 6, -1):
        known = assume(known, i < most)
    inner = if_then_else(i - 1 >= 0, i, const(99))
    assert format_expr(simplify(if_then_else(i >= 1, inner, const(5)), known)) == "if_then_else(i >= 1, i, 5)"
    assert interval(if_then_else(i >= 1, i - 1, const(0)), known) == (0, 5)


def test_products_of_sums_are_multiplied_out_where_they_are_indices():
    """Of data that would only be more operations."""
    data = load(IDX, i)
    assert format_expr(simplify((i + 1) * (j + 2), KNOWN)) == "i*j + i*2 + j + 2"
    assert format_expr(simplify((data - 128) * (load(IDX, j) - 3), KNOWN)) == "(IDX[i] - 128)*(IDX[j] - 3)"
    assert format_expr(simplify((data - 128) * j, KNOWN)) == "(IDX[i] - 128)*j"
    assert format_expr(simplify((data * 2) * (load(IDX, j) * 3), KNOWN)) == "IDX[i]*IDX[j]*6"
    assert format_expr(simplify((data - 128) * 4 + 512, KNOWN)) == "IDX[i]*4"
