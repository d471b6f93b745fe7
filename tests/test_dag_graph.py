"""The compute DAG: stage order, text and flop count against TVM's, and what is refused."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ansor import te
from ansor.errors import DefinitionError
from ansor.schedule.dag import ComputeDAG, stage_order
from ansor.te import ComputeOp, Tensor

DATA = Path(__file__).parent / "data"
ORACLES = json.loads((DATA / "compute_dags.json").read_text())
TE = SimpleNamespace(**{name: getattr(te, name) for name in te.__all__}, max2=te.maximum)


def load_definitions() -> ModuleType:
    spec = importlib.util.spec_from_file_location("te_workloads", DATA / "te_workloads.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DEFINITIONS = load_definitions()


def names(dag: ComputeDAG) -> list[str]:
    return [op.name for op in dag.ops]


@pytest.mark.parametrize("oracle", ORACLES, ids=[oracle["workload"] for oracle in ORACLES])
def test_text_and_flops_are_those_of_tvm(oracle: dict[str, Any]) -> None:
    """The lines are compared in order: it is the order that records count stages in."""
    dag = ComputeDAG(getattr(DEFINITIONS, oracle["workload"])(TE))
    assert [line.replace("tir.", "") for line in oracle["dag"]] == str(dag).splitlines()
    assert dag.flop_count == dag.flop_ct == oracle["flops"]


def test_inputs_and_outputs_keep_the_given_order() -> None:
    a, b = te.placeholder((4,), name="A"), te.placeholder((4,), name="B")
    c = te.compute((4,), lambda i: b[i] + a[i], name="C")
    dag = ComputeDAG((a, c, b))
    assert dag.tensors == (a, c, b)
    assert dag.inputs == (a, b)
    assert dag.outputs == (c,)
    assert names(dag) == ["B", "A", "C"]


def test_outputs_are_staged_in_the_given_order() -> None:
    a = te.placeholder((4,), name="A")
    outputs = [te.compute((4,), lambda i, n=n: a[i] + float(n), name=f"C{n}") for n in range(4)]
    assert names(ComputeDAG([a, *outputs])) == ["A", "C0", "C1", "C2", "C3"]


def test_an_output_that_is_read_is_still_an_output() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((4,), lambda i: b[i] * 2.0, name="C")
    assert not ComputeDAG([a, c]).access.is_output(b.op)
    dag = ComputeDAG([a, b, c])
    assert names(dag) == ["A", "B", "C"]
    assert dag.access.is_output(b.op)
    assert dag.access.is_output(c.op)


def test_a_diamond_is_staged_once() -> None:
    a = te.placeholder((4,), name="A")
    top = te.compute((4,), lambda i: a[i] + 1.0, name="top")
    left = te.compute((4,), lambda i: top[i] * 2.0, name="left")
    right = te.compute((4,), lambda i: top[i] * 3.0, name="right")
    bottom = te.compute((4,), lambda i: right[i] + left[i], name="bottom")
    assert names(ComputeDAG([a, bottom])) == ["A", "top", "right", "left", "bottom"]


def test_an_index_is_read_before_what_it_indexes() -> None:
    a, index = te.placeholder((9,), name="A"), te.placeholder((4,), "int32", name="I")
    c = te.compute((4,), lambda i: a[index[i]], name="C")
    dag = ComputeDAG([a, index, c])
    assert names(dag) == ["I", "A", "C"]
    assert str(dag).splitlines() == ["I = PLACEHOLDER [4] int32", "A = PLACEHOLDER [9]", "C(i) = A[I[i]]"]


def test_the_graph_of_networkx() -> None:
    """Edges go from what is read to what reads it; what is read twice has one."""
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] * a[3 - i], name="B")
    c = te.compute((4,), lambda i: b[i] + a[i], name="C")
    graph = ComputeDAG([a, c]).graph()
    assert [op.name for op in graph] == ["A", "B", "C"]
    assert [(x.name, y.name) for x, y in graph.edges] == [("A", "B"), ("A", "C"), ("B", "C")]


def test_stage_order_of_long_chains() -> None:
    """Graphs are as deep as they like: nothing recurses over operations."""
    tensor = te.placeholder((4,), name="A")
    chain = [tensor]
    for n in range(3000):
        chain.append(te.compute((4,), lambda i, t=chain[-1]: t[i] + 1.0, name=f"T{n}"))
    assert stage_order([chain[0], chain[-1]]) == tuple(t.op for t in chain)


def test_text_of_tuples_and_reductions_of_ones_own() -> None:
    x = te.placeholder((4, 8), name="X")
    k = te.reduce_axis((0, 8), "k")
    argmax = te.comm_reducer(
        lambda a, b: (te.select(a[1] >= b[1], a[0], b[0]), te.maximum(a[1], b[1])),
        lambda index, value: (te.const(-1, index), te.min_value(value)),
        name="argmax",
    )
    at, best = te.compute((4,), lambda i: argmax((k, x[i, k]), axis=k), name="Arg")
    product = te.compute((), lambda: te.prod(best[k], axis=k, where=k < 4), name="P")
    assert str(ComputeDAG([x, at, product])).splitlines() == [
        "X = PLACEHOLDER [4, 8]",
        "Arg(i).v0 argmax= (k, X[i, k])",
        "Arg(i).v1 argmax= (k, X[i, k])",
        "P() *= Arg.v1[k] if (k < 4)",
    ]


def test_symbolic_sizes() -> None:
    n = te.var("n")
    a = te.placeholder((n, 4), name="A")
    c = te.compute((n, 4), lambda i, j: a[i, j] + 1.0, name="C")
    dag = ComputeDAG([a, c])
    assert str(dag) == "A = PLACEHOLDER [n, 4]\nC(i, j) = (A[i, j] + 1f)\n"
    assert dag.flop_count == -1.0
    assert json.loads(dag.workload_key())[1:] == [["n", 4], ["n", 4]]


def vectors() -> tuple[Tensor, Tensor, Tensor]:
    a, b = te.placeholder((4,), name="A"), te.placeholder((4,), name="B")
    return a, b, te.compute((4,), lambda i: a[i] + b[i], name="C")


def test_a_missing_input_is_named() -> None:
    a, _, c = vectors()
    with pytest.raises(DefinitionError, match=r"C reads 'B', which is not among the given tensors \(A, C\)"):
        ComputeDAG([a, c])


def test_inputs_alone_are_refused() -> None:
    a, b, _ = vectors()
    with pytest.raises(DefinitionError, match="the tensors A, B are all inputs"):
        ComputeDAG([a, b])


def test_a_tensor_given_twice_is_refused() -> None:
    a, b, c = vectors()
    with pytest.raises(DefinitionError, match="tensor 'A' is given twice"):
        ComputeDAG([a, a, b, c])


@pytest.mark.parametrize("wrong", [3, "C", None, np.zeros(4)])
def test_what_is_no_tensor_is_refused(wrong: object) -> None:
    a, b, _ = vectors()
    with pytest.raises(DefinitionError, match=r"element 2 of the tensors is .*, not a tensor"):
        ComputeDAG([a, b, wrong])  # type: ignore[list-item]


def test_a_single_tensor_is_refused() -> None:
    with pytest.raises(DefinitionError, match="made from a list of tensors"):
        ComputeDAG(vectors()[2])  # type: ignore[arg-type]


def test_axes_of_one_name_are_refused() -> None:
    """te refuses them as well; here an operation is made without its checks."""
    *_, c = vectors()
    axis = c.op.axis[0]
    op = ComputeOp("D", (axis, te.IterVar("i", extent=axis.extent)), (), c.op.body)
    with pytest.raises(DefinitionError, match="'D' has two axes named 'i'"):
        ComputeDAG([*vectors()[:0], *c.op.input_tensors, op.output(0)])


def test_unknown_operations_are_refused() -> None:
    alien = SimpleNamespace(name="scan", input_tensors=(), num_outputs=1)
    with pytest.raises(
        DefinitionError, match=r"'scan' is a SimpleNamespace; only te.placeholder and te.compute"
    ):
        ComputeDAG([Tensor(alien, 0, (4,), "float32"), *vectors()])  # type: ignore[arg-type]
