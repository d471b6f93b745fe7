"""The description that travels with compiled code."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansor import te
from ansor.errors import BuildError
from ansor.ir.dims import evaluate, format_dim, solve
from ansor.ir.nest import Buffer, LoopNest, Seq
from ansor.runtime.signature import Argument, Signature, find_metadata
from ansor.te.expr import Var, const

names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
dims = st.recursive(
    st.integers(0, 2**40) | st.sampled_from(["n", "m"]),
    lambda inner: st.tuples(st.sampled_from(["add", "sub", "mul", "floordiv"]), inner, inner),
    max_leaves=4,
)
signatures = st.builds(
    Signature,
    name=names,
    symbol=st.just("f"),
    arguments=st.lists(
        st.builds(
            Argument,
            name=names,
            dtype=st.sampled_from(["float32", "bfloat16", "bool"]),
            shape=st.lists(dims, max_size=3).map(tuple),
            output=st.booleans(),
        ),
        max_size=3,
    ).map(tuple),
    sizes=st.just(("n", "m")),
    triple=names,
    cpu=names,
    threads=st.none() | st.integers(1, 64),
)


@given(signatures)
def test_survives_json_and_the_bytes_of_a_file(signature: Signature) -> None:
    assert Signature.from_json(json.loads(json.dumps(signature.to_json()))) == signature
    data = b"\x7fELF...\0" + signature.metadata() + b"\xff\0tail"
    assert find_metadata(data, "k.o") == signature


def test_files_without_a_description_are_refused() -> None:
    with pytest.raises(BuildError, match=r"k\.o holds no ansor module"):
        find_metadata(b"\x7fELF", "k.o")
    one = Signature("f", "f", (), (), "t", "c").metadata()
    with pytest.raises(BuildError, match="2 ansor functions, expected one"):
        find_metadata(one + one, "k.o")
    with pytest.raises(BuildError, match="malformed: KeyError"):
        Signature.from_json({})


@given(dims, st.integers(1, 50), st.integers(1, 50))
def test_what_is_solved_satisfies_the_equation(dim: object, n: int, m: int) -> None:
    try:
        value = evaluate(dim, {"n": n, "m": m})  # type: ignore[arg-type]
    except ValueError:
        return
    assert value is not None
    found: dict[str, int] = {"m": m}
    solve(dim, value, found)  # type: ignore[arg-type]
    again = None
    try:
        again = evaluate(dim, found)  # type: ignore[arg-type]
    except ValueError:
        return
    assert again is None or again == value


def test_text_of_dimensions() -> None:
    assert format_dim(("mul", ("add", "n", 1), 4)) == "(n+1)*4"
    assert format_dim(("min", "n", 4)) == "min(n, 4)"


def test_of_a_loop_nest() -> None:
    n = te.var("n")
    other = Var("n")
    params = (
        Buffer("A", "float32", (n, const(4))),
        Buffer("A", "int8", (other * 2, 3)),
    )
    nest = LoopNest("f", params, (n, other), Seq(()), outputs=(1,))
    signature = Signature.of_nest(nest, symbol="g", triple="t", cpu="c")
    assert signature.sizes == ("n", "n_1")
    assert signature.arguments == (
        Argument("A", "float32", ("n", 4)),
        Argument("A_1", "int8", (("mul", "n_1", 2), 3), True),
    )
    with pytest.raises(
        BuildError, match="the shape of parameter 'A' holds `n`, which the sizes do not define"
    ):
        Signature.of_nest(LoopNest("f", params, (), Seq(())), symbol="g", triple="t", cpu="c")
