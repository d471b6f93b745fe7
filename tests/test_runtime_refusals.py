"""What a user may try with modules and targets that cannot work, and what they are told."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.errors import ArgumentError, DefinitionError, TargetError


@pytest.fixture(scope="module")
def module() -> ansor.Module:
    source = te.placeholder((4,), name="A")
    result = te.compute((4,), lambda i: source[i] + 1, name="C")
    return ansor.build(te.create_schedule(result), [source, result], name="increment")


def test_an_empty_target_is_no_target() -> None:
    source = te.placeholder((4,), name="A")
    result = te.compute((4,), lambda i: source[i] + 1, name="C")
    schedule = te.create_schedule(result)
    with pytest.raises(TargetError, match="the target is empty"):
        ansor.build(schedule, [source, result], target="")
    with pytest.raises(TargetError, match="the target is empty"):
        ansor.lower(schedule, [source, result], target="")


@pytest.mark.parametrize("action", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_module_is_not_pickled(module: ansor.Module, action) -> None:
    with pytest.raises(TypeError, match=r"cannot be pickled.*export_library\(path\) or save\(path\)"):
        action(module)


def test_arrays_are_not_passed_by_name(module: ansor.Module) -> None:
    with pytest.raises(
        ArgumentError, match=r"by position, found the keyword 'A'; pass \(A, C\) in this order"
    ):
        module(A=np.ones(4, np.float32))


def test_outputs_beyond_memory_are_named() -> None:
    n = te.var("n")
    source = te.placeholder((1,), name="A")
    result = te.compute((n, 1 << 20, 1 << 10), lambda i, j, k: source[0], name="C")
    built = ansor.build(te.create_schedule(result), [source, result], name="huge")
    with pytest.raises(ArgumentError, match=r"no memory for the output 'C', float32 of shape \(\d+, 1048576"):
        built(np.ones(1, np.float32), sizes={"n": 1 << 20})


@pytest.mark.parametrize("function", [te.sum, te.prod])
def test_a_reduction_needs_an_axis(function) -> None:
    source = te.placeholder((4,), name="A")
    with pytest.raises(DefinitionError, match=r"te\.(sum|prod)\(`A\[i\]`\) needs axis="):
        te.compute((4,), lambda i: function(source[i]), name="C")
