"""The structure hash: blind to names, sensitive to everything else; and the keys that carry it."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.errors import DefinitionError
from ansor.schedule.access import named_tile
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.structure import HASH_DIGITS, KeyMatch, axis_names, match_key
from ansor.task.registry import workload_key_to_tensors
from ansor.te import Expr, Tensor
from ansor.workloads import CATALOGUE
from measure.correctness.reference import ReferenceStore

ORACLES = json.loads((Path(__file__).parent / "data" / "compute_dags.json").read_text())


def matmul(
    shape: tuple[int, int, int] = (4, 6, 8),
    names: Sequence[str] = ("A", "B", "C", "k"),
    dtype: str = "float32",
    body: Callable[[Expr, Expr], Expr] = lambda a, b: a * b,
    reducer: Callable[..., Expr] = te.sum,
    where: Callable[[Expr], Expr] | None = None,
    transposed: bool = False,
    order: Callable[[list[Tensor]], list[Tensor]] = lambda tensors: tensors,
    **options: Any,
) -> ComputeDAG:
    n, m, k = shape
    a = te.placeholder((n, k), dtype, names[0])
    b = te.placeholder((m, k) if transposed else (k, m), dtype, names[1])
    r = te.reduce_axis((0, k), names[3])
    condition = None if where is None else where(r)
    c = te.compute(
        (n, m),
        lambda i, j: reducer(body(a[i, r], b[j, r] if transposed else b[r, j]), axis=r, where=condition),
        name=names[2],
        **options,
    )
    return ComputeDAG(order([a, b, c]))


BASE = matmul()


def test_the_hash_has_its_form() -> None:
    assert len(BASE.structure_hash) == HASH_DIGITS
    assert set(BASE.structure_hash) <= set("0123456789abcdef")


def test_equal_definitions_hash_alike() -> None:
    assert matmul().structure_hash == BASE.structure_hash


def test_names_and_tags_do_not_matter() -> None:
    renamed = matmul(names=("X", "Y", "Z", "kk"), tag="gemm", attrs={"note": 1, "FLOP": 7})
    assert renamed.structure_hash == BASE.structure_hash


def test_the_hash_is_stable_across_versions() -> None:
    """A log written today must be found tomorrow: changing this value orphans users' records."""
    assert BASE.structure_hash == "ac6937553ec7308aecc617080469189649acac9a"


VARIANTS: dict[str, Callable[[], ComputeDAG]] = {
    "reduce extent": lambda: matmul(shape=(4, 6, 9)),
    "shape": lambda: matmul(shape=(5, 6, 8)),
    "dtype": lambda: matmul(dtype="float64"),
    "access": lambda: matmul(transposed=True),
    "operand order": lambda: matmul(body=lambda a, b: b * a),
    "operator": lambda: matmul(body=lambda a, b: a + b),
    "constant": lambda: matmul(body=lambda a, b: a * b * 2.0),
    "another constant": lambda: matmul(body=lambda a, b: a * b * 3.0),
    "intrinsic": lambda: matmul(body=lambda a, b: te.exp(a) * b),
    "another intrinsic": lambda: matmul(body=lambda a, b: te.tanh(a) * b),
    "select": lambda: matmul(body=lambda a, b: te.select(a > b, a, b)),
    "if_then_else": lambda: matmul(body=lambda a, b: te.if_then_else(a > b, a, b)),
    "reduction": lambda: matmul(reducer=te.max),
    "condition": lambda: matmul(where=lambda k: k < 4),
    "argument order": lambda: matmul(order=lambda t: [t[1], t[0], t[2]]),
    "steering": lambda: matmul(attrs={"auto_scheduler_no_split_at_inner": ["i"]}),
    "steering, other axis": lambda: matmul(attrs={"auto_scheduler_no_split_at_inner": ["j"]}),
    "other attribute": lambda: matmul(attrs={"auto_scheduler_always_unroll_inner": ["i"]}),
    "rounding": lambda: matmul(attrs={"rounded_operands": "tfloat32"}),
    "larger errors": lambda: matmul(attrs={"rounding_amplification": 31.0}),
    "other errors": lambda: matmul(attrs={"rounding_amplification": 2}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_everything_else_matters(name: str) -> None:
    assert VARIANTS[name]().structure_hash != BASE.structure_hash


def test_all_differences_differ() -> None:
    assert len({variant().structure_hash for variant in VARIANTS.values()}) == len(VARIANTS)


def test_steering_attributes_name_axes_by_position() -> None:
    def steered(axis: str) -> str:
        x = te.placeholder((4,), name="X")
        attrs = {"auto_scheduler_no_split_at_inner": [axis]}
        y = te.compute((4,), (lambda i: x[i]) if axis == "i" else (lambda q: x[q]), name="Y", attrs=attrs)
        return ComputeDAG([x, y]).structure_hash

    assert steered("i") == steered("q")


def test_an_answer_is_checked_as_its_own_graph_says() -> None:
    """A store of right answers tells a graph that allows larger errors from one that does not."""
    store = ReferenceStore()
    tasks = [
        ansor.SearchTask(compute_dag=matmul(attrs=attrs)) for attrs in ({}, {"rounding_amplification": 50})
    ]
    one, other = (store.get(task).arguments[2].tolerance.relative for task in tasks)
    assert other == 50 * one
    store.close()


def test_layout_free_placeholders_matter() -> None:
    def free(which: int | None) -> str:
        a, b = te.placeholder((4,), name="A"), te.placeholder((4,), name="B")
        attrs = {} if which is None else {"layout_free_placeholders": [(a, b)[which]]}
        c = te.compute((4,), lambda i: a[i] * b[i], name="C", attrs=attrs)
        return ComputeDAG([a, b, c]).structure_hash

    assert len({free(None), free(0), free(1)}) == 3


def test_what_an_input_is_prepared_by_matters() -> None:
    """A key brings back the graph, and with it the form that the caller's data has to be brought into."""

    def doubled(prepare: Callable[[Expr], Expr] | None) -> ComputeDAG:
        weight = te.placeholder((4,), name="W")
        p = weight
        if prepare is not None:
            p = te.prepared(te.compute((4,), lambda i: prepare(weight[i]), name="P"))
        return ComputeDAG([p, te.compute((4,), lambda i: p[i] * 2.0, name="Y")])

    functions = (None, lambda w: w + 1.0, lambda w: w * 3.0)
    assert len({doubled(one).structure_hash for one in functions}) == 3
    assert doubled(lambda w: w + 1.0).structure_hash == doubled(lambda w: w + 1.0).structure_hash
    tasks = [ansor.SearchTask(compute_dag=doubled(one)) for one in functions[1:]]
    weights = [workload_key_to_tensors(task.workload_key)[0] for task in tasks]
    ones = np.ones(4, np.float32)
    assert [ansor.transform_layout(ones, weight)[0] for weight in weights] == [2.0, 3.0]


def test_symbolic_sizes_are_told_apart_but_not_by_name() -> None:
    def added(rows: Expr, columns: Expr) -> str:
        x = te.placeholder((rows, columns), name="X")
        y = te.compute((rows, columns), lambda i, j: x[i, j] + 1.0, name="Y")
        return ComputeDAG([x, y]).structure_hash

    n, m = te.var("n"), te.var("m")
    assert added(n, m) == added(te.var("rows"), te.var("columns")) == added(te.var("x"), te.var("x"))
    assert added(n, n) != added(n, m)


def test_reused_axis_objects_are_one_axis_per_operation() -> None:
    def chain(shared: bool) -> str:
        x = te.placeholder((4, 4), name="X")
        k = te.reduce_axis((0, 4), "k")
        q = k if shared else te.reduce_axis((0, 4), "k")
        a = te.compute((4, 4), lambda i, j: te.sum(x[i, k] * x[k, j], axis=k), name="A")
        b = te.compute((4, 4), lambda i, j: te.sum(a[i, q] * x[q, j], axis=q), name="B")
        return ComputeDAG([x, b]).structure_hash

    assert chain(True) == chain(False)


def test_shared_expressions_cost_nothing() -> None:
    x = te.placeholder((4,), name="X")

    def doubled(i: Expr) -> Expr:
        value = x[i]
        for _ in range(200):
            value = value + value
        return value

    assert ComputeDAG([x, te.compute((4,), doubled, name="Y")]).structure_hash


def test_the_catalogue_has_no_two_equal_structures_but_by_design() -> None:
    """A grouped convolution of one group is a convolution; at their benchmark sizes all entries differ."""
    hashes = {name: ComputeDAG(entry.tensors()).structure_hash for name, entry in CATALOGUE.items()}
    assert len(set(hashes.values())) == len(hashes)


# -- keys --------------------------------------------------------------------------------------------


def matches(key: str, dag: ComputeDAG) -> KeyMatch:
    return match_key(key, dag.structure_hash, dag.tensors)


def test_a_key_of_a_graph_matches_that_graph_only() -> None:
    key = BASE.workload_key()
    assert json.loads(key) == [BASE.structure_hash, [4, 8], [8, 6], [4, 6]]
    assert matches(key, matmul(names=("X", "Y", "Z", "kk"))) is KeyMatch.EXACT
    assert matches(key, matmul(reducer=te.max)) is KeyMatch.NONE


@pytest.mark.parametrize("oracle", ORACLES, ids=[oracle["workload"] for oracle in ORACLES])
def test_a_key_of_tvm_matches_graphs_of_its_shapes(oracle: dict[str, Any]) -> None:
    key = oracle["workload_key"]
    shapes = json.loads(key)[1:]
    tensors = [te.placeholder(shape, name=f"T{n}") for n, shape in enumerate(shapes)]
    assert match_key(key, "", tensors) is KeyMatch.SHAPES
    assert match_key(key, "", tensors[:-1]) is KeyMatch.NONE
    assert match_key(key, "", [*tensors[:-1], te.placeholder((3, 7, 5), name="T")]) is KeyMatch.NONE


def test_a_hash_of_a_users_function_may_be_a_number() -> None:
    assert matches("[123456, [4, 8], [8, 6], [4, 6]]", BASE) is KeyMatch.SHAPES


@pytest.mark.parametrize(
    "key",
    ['["matmul", 4, 6, 8]', '["conv", [4, 8], [8, 6], [4, 6]]', "not json", "[]", '["matmul"]', "{}", "7"],
)
def test_other_keys_name_no_graph(key: str) -> None:
    assert matches(key, BASE) is KeyMatch.NONE


def test_axis_names_of_steering_attributes() -> None:
    assert axis_names("i") == ("i",)
    assert axis_names(["i", "j"]) == axis_names(("i", "j")) == axis_names('["i", "j"]') == ("i", "j")
    for wrong in (3, '["i'):
        with pytest.raises(DefinitionError, match="expected axis names, found "):
            axis_names(wrong)


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        (
            {"unrolled_tiles": {"z": 4}},
            "among its attrs names 'z', no axis of it; these are i, k",
        ),
        ({"unrolled_tiles": ["i"]}, "must be lengths by axis names"),
        ({"unrolled_tiles": {"i": 0}}, "length of 'i' must be an integer of at least 1, found 0"),
        ({"layout_free_placeholders": ["x"]}, "must be a list of tensors, such as [B], found ['x']"),
        ({"layout_free_placeholders": None}, "must be a list of tensors"),
        ({"rounding_amplification": "x"}, "must be a finite number above 0, found 'x'"),
        ({"FLOP": -5}, "'FLOP' among its attrs must be a finite number of at least 0, found -5"),
        ({"FLOP": float("nan")}, "must be a finite number of at least 0"),
        ({"auto_scheduler_no_split_at_inner": ["j"]}, "names 'j', no axis of it"),
    ],
)
def test_attributes_that_cannot_be_used_are_refused(attrs: dict[str, Any], message: str) -> None:
    x, k = te.placeholder((8, 8), name="X"), te.reduce_axis((0, 8), "k")
    y = te.compute((8,), lambda i: te.sum(x[i, k], axis=k), name="Y", attrs=attrs)
    with pytest.raises(DefinitionError) as caught:
        ComputeDAG([x, y])
    assert message in str(caught.value)
    assert "compute 'Y'" in str(caught.value)


def test_one_tensor_is_no_list_of_tensors() -> None:
    x = te.placeholder((8,), name="X")
    y = te.compute((8,), lambda i: x[i], name="Y", attrs={"layout_free_placeholders": x})
    with pytest.raises(DefinitionError, match="found the tensor 'X' alone"):
        ComputeDAG([x, y])


def test_a_tile_is_one_of_the_axes_that_a_cache_has() -> None:
    x = te.placeholder((8, 8), name="X")
    y = te.compute((8, 8), lambda i, j: x[i, j], name="Y", attrs={"unrolled_tiles": {"i": 4, "j": 8}})
    s = te.create_schedule(y)
    cached = s.cache_write(y, "local")
    assert named_tile(cached.op) == {0: 4, 1: 8}
