"""The workload registry: names, keys, and what is refused."""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import ansor.workloads  # noqa: F401  Loaded before any test replaces the registry.
from ansor import te
from ansor.errors import DefinitionError
from ansor.schedule.dag import ComputeDAG
from ansor.task import registry
from ansor.task.registry import (
    decode_workload_key,
    make_workload_key,
    register_workload,
    register_workload_tensors,
    registered_workloads,
    workload_function,
    workload_key_to_tensors,
)
from ansor.te import Tensor
from search import SearchTask


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(registry, "_FUNCTIONS", dict(registry._FUNCTIONS))
    monkeypatch.setattr(registry, "_TENSORS", {})


def scale(n: int, factor: float = 2.0, dtype: str = "float32") -> list[Tensor]:
    x = te.placeholder((n,), dtype, "X")
    return [x, te.compute((n,), lambda i: x[i] * factor, name="Y")]


def test_decorator_without_a_name() -> None:
    assert register_workload(scale) is scale
    assert workload_function("scale") is scale


def test_decorator_with_a_name() -> None:
    @register_workload("scaled")
    def anything(n: int) -> list[Tensor]:
        return scale(n)

    assert workload_function("scaled") is anything
    assert make_workload_key(anything, (4,)) == '["scaled", 4]'


def test_plain_call() -> None:
    register_workload("by_call", scale)
    assert workload_function("by_call") is scale


def test_nested_functions_have_qualified_names() -> None:
    @register_workload
    def inner(n: int) -> list[Tensor]:
        return scale(n)

    assert json.loads(make_workload_key(inner, (4,))) == [
        "test_nested_functions_have_qualified_names.<locals>.inner",
        4,
    ]


def test_a_second_function_of_the_name_is_refused_without_override() -> None:
    register_workload("twice", scale)
    register_workload("twice", scale)  # The same function again is no conflict.

    def other(n: int) -> list[Tensor]:
        return scale(n, 3.0)

    with pytest.raises(DefinitionError, match=r"workload 'twice' is registered already, .*override=True"):
        register_workload("twice", other)
    register_workload("twice", other, override=True)
    assert workload_function("twice") is other


def test_names_are_strings() -> None:
    with pytest.raises(DefinitionError, match="under a string, found 3 of type int"):
        register_workload(3)  # type: ignore[call-overload]
    with pytest.raises(DefinitionError, match="workload 'x' must be a function, found 3"):
        register_workload("x", 3)  # type: ignore[call-overload]


def test_the_prefix_is_reserved() -> None:
    with pytest.raises(DefinitionError, match=r"names that start with 'ansor\.' are ansor's own"):
        register_workload("ansor.mine", scale)


def test_a_user_may_take_the_short_name_of_a_catalogue_entry() -> None:
    def matmul_add(n: int) -> list[Tensor]:
        return scale(n)

    register_workload("matmul_add", matmul_add)
    assert len(workload_key_to_tensors('["matmul_add", 4]')) == 2
    assert len(workload_key_to_tensors('["ansor.matmul_add", 4, 4, 4]')) == 4


def test_keys_are_tvm_text() -> None:
    register_workload(scale)
    assert make_workload_key("scale", (512, 0.5, "float32")) == '["scale", 512, 0.5, "float32"]'
    assert make_workload_key(scale, [4]) == make_workload_key(scale, 4) == '["scale", 4]'
    assert make_workload_key(scale) == '["scale"]'
    nested = make_workload_key(scale, [(1, [2, True], None)])
    assert nested == '["scale", [1, [2, true], null]]'
    assert decode_workload_key(nested) == ("scale", ((1, (2, True), None),))


def test_numpy_scalars_are_numbers() -> None:
    register_workload(scale)
    args = (np.int64(4), np.float32(0.5), te.const(7))
    assert make_workload_key(scale, args) == '["scale", 4, 0.5, 7]'


def test_tensor_arguments_are_shape_and_dtype() -> None:
    received: list[Any] = []

    @register_workload("of_tensor")
    def of_tensor(x: Tensor, options: tuple[Any, ...]) -> list[Tensor]:
        received.append(options)
        return [x, te.compute(x.shape, lambda *i: x(*i) * x(*i), name="Y")]

    argument = te.placeholder((3, 5), "float64", "anything")
    key = make_workload_key(of_tensor, (argument, ["a", argument]))
    triple = ["TENSOR", [3, 5], "float64"]
    assert json.loads(key) == ["of_tensor", triple, ["a", triple]]
    x, y = workload_key_to_tensors(key)
    assert (x.shape, x.dtype, y.dtype) == ((3, 5), "float64", "float64")
    assert x is not argument
    ((word, tensor),) = received
    assert word == "a"
    assert tensor.shape == (3, 5)


@pytest.mark.parametrize(
    "argument",
    [object(), {1: 2}, {1}, b"x", np.zeros(3), 1j, np.longdouble(3), np.array(np.longdouble(3))],
)
def test_arguments_that_no_key_can_hold(argument: object) -> None:
    register_workload(scale)
    with pytest.raises(DefinitionError, match="an argument of workload 'scale' is"):
        make_workload_key(scale, (argument,))


def test_tensor_arguments_of_symbolic_shape() -> None:
    register_workload(scale)
    with pytest.raises(DefinitionError, match=r"symbolic shape \[n\]; a key needs numbers"):
        make_workload_key(scale, (te.placeholder((te.var("n"),), name="X"),))


def test_unregistered_functions() -> None:
    with pytest.raises(DefinitionError, match="the function 'scale' is not registered; decorate it"):
        make_workload_key(scale, (4,))
    with pytest.raises(DefinitionError, match=r"no workload is registered as 'nothing'.*import\s+the module"):
        make_workload_key("nothing", (4,))
    with pytest.raises(DefinitionError, match="a registered function or its name, found 3"):
        make_workload_key(3, (4,))  # type: ignore[arg-type]


def test_a_key_makes_the_graph_again() -> None:
    register_workload(scale)
    dags = [ComputeDAG(workload_key_to_tensors('["scale", 4, 3.0]')) for _ in range(2)]
    assert dags[0].structure_hash == dags[1].structure_hash
    assert dags[0].ops[0] is not dags[1].ops[0]


@pytest.mark.parametrize("key", ["not json", "[]", "{}", "[4, 5]", '"scale"'])
def test_keys_that_cannot_be_read(key: str) -> None:
    with pytest.raises(DefinitionError, match="neither a registered key nor of the form"):
        workload_key_to_tensors(key)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, r"workload bad\(4\) gives None; return a list of tensors"),
        ([], r"gives \[\]; return a list of tensors"),
        ([1], "holds 1, which is not a tensor"),
    ],
)
def test_functions_that_return_no_tensors(result: object, message: str) -> None:
    register_workload("bad", lambda n: result)
    with pytest.raises(DefinitionError, match=message):
        workload_key_to_tensors('["bad", 4]')


def test_a_tuple_or_a_single_tensor_will_do() -> None:
    register_workload("pair", lambda n: tuple(scale(n)))
    assert isinstance(workload_key_to_tensors('["pair", 4]'), list)
    register_workload("one", lambda n: te.compute((n,), lambda i: te.const(1.0), name="Ones"))
    (ones,) = workload_key_to_tensors('["one", 4]')
    assert ones.name == "Ones"


def test_tensors_registered_under_a_key() -> None:
    dag = ComputeDAG(scale(4))
    key = register_workload_tensors(dag.workload_key(), dag.tensors)
    assert workload_key_to_tensors(key) == list(dag.tensors)
    register_workload_tensors(key, scale(4))
    register_workload_tensors(key, scale(4), override=False)
    with pytest.raises(DefinitionError, match="stands for another computation already"):
        register_workload_tensors(key, scale(5), override=False)
    assert workload_key_to_tensors(register_workload_tensors(key, scale(5)))[0].shape == (5,)
    with pytest.raises(DefinitionError, match="return a list of tensors"):
        register_workload_tensors("x", [])


def test_a_key_of_ones_own_stands_for_one_computation() -> None:
    """Else records of the one would be results of the other."""
    SearchTask(compute_dag=scale(4), workload_key="scale of four")
    SearchTask(compute_dag=scale(4), workload_key="scale of four")
    with pytest.raises(DefinitionError, match="give this one a key of its own"):
        SearchTask(compute_dag=scale(5), workload_key="scale of four")


def test_a_method_is_found_again() -> None:
    """Each look at a method of an object gives another one, which is equal."""

    class Scales:
        def make(self, n: int) -> list[Tensor]:
            return scale(n)

    scales = Scales()
    register_workload("scales", scales.make)
    register_workload("scales", scales.make)
    assert make_workload_key(scales.make, (4,)) == '["scales", 4]'


def test_all_names_include_the_catalogue() -> None:
    register_workload(scale)
    known = registered_workloads()
    assert {"scale", "ansor.matmul", "ansor.softmax"} <= set(known)
    assert list(known) == sorted(known)


def test_a_fresh_process_finds_the_catalogue() -> None:
    """A key from a log is enough; nothing needs to be imported by hand."""
    code = (
        "from ansor.task.registry import workload_key_to_tensors as w, make_workload_key as m\n"
        "print(len(w('[\"ansor.matmul\", 4, 5, 6]')), m('ansor.norm', (1, 2, 3)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split(" ", 1) == ["3", '["ansor.norm", 1, 2, 3]\n']
