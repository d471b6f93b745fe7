"""What a user may try with modules and targets that cannot work, and what they are told."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.errors import ArgumentError, DefinitionError, RunError, TargetError


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


@pytest.mark.parametrize(
    "triple", ["i686-linux-gnu", "armv7-linux-gnueabihf", "riscv32-linux-gnu", "x86_64-unknown-linux-gnux32"]
)
def test_a_target_whose_addresses_have_32_bits_is_refused(triple: str) -> None:
    source = te.placeholder((4,), name="A")
    result = te.compute((4,), lambda i: source[i] + 1, name="C")
    with pytest.raises(TargetError, match=f"addresses of {triple} have 32 bits"):
        ansor.build(te.create_schedule(result), [source, result], target=f"llvm -mtriple={triple}")


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


def test_sizes_that_leave_fused_axes_less_than_nothing_are_refused() -> None:
    """Two such extents, fused, would be a loop again."""
    n, m = te.var("n"), te.var("m")
    x = te.placeholder((n, m), name="X")
    windows = te.compute((n - 2, m - 2), lambda i, j: x[i, j] + x[i + 2, j + 2], name="Windows")
    k, r = te.reduce_axis((0, n - 2), "k"), te.reduce_axis((0, m - 2), "r")
    total = te.compute((1,), lambda i: te.sum(windows[k, r], axis=[k, r]), name="Total")
    schedule = te.create_schedule(total)
    unfused = ansor.build(schedule, [x, total])
    schedule[total].fuse(*schedule[total].op.reduce_axis)
    module = ansor.build(schedule, [x, total])
    for built in (unfused, module):
        assert built(np.ones((4, 5), "float32")) == 12
        assert built(np.ones((2, 5), "float32")) == 0
    for shape in ((1, 1), (0, 0), (5, 1)):
        assert unfused(np.ones(shape, "float32")) == 0
        with pytest.raises(ArgumentError, match=r"of 'Total', of [nm]-2, has -[12] elements; it takes"):
            module(np.ones(shape, "float32"))


def test_scratch_of_less_than_nothing_takes_no_memory() -> None:
    n = te.var("n")
    x, k = te.placeholder((n,), name="X"), te.reduce_axis((0, n - 40), "k")
    part = te.compute((n - 40,), lambda i: x[i + 40] * 2.0, name="Part")
    total = te.compute((1,), lambda i: te.sum(part[k], axis=k), name="Total")
    module = ansor.build(te.create_schedule(total), [x, total])
    assert module(np.ones(42, "float32")) == 4
    assert module(np.ones(5, "float32")) == 0


def test_sizes_are_only_refused_where_loops_follow_from_them() -> None:
    """Not those of what is inlined, nor extents that are choices."""
    n = te.var("n")
    x = te.placeholder((n,), name="X")
    inner = te.compute((n - 2,), lambda i: x[i + 2], name="Inner")
    out = te.compute((n,), lambda i: te.if_then_else(i < n - 2, inner[i], x[i]), name="Out")
    schedule = te.create_schedule(out)
    schedule[inner].compute_inline()
    assert ansor.build(schedule, [x, out])(np.ones(1, "float32")) == 1
    part = te.compute((te.select(n > 3, n - 1, n),), lambda i: x[i], name="Part")
    out = te.compute((n,), lambda i: x[i] + part[0], name="Out")
    assert (ansor.build(te.create_schedule(out), [x, out])(np.ones(5, "float32")) == 2).all()


def test_code_for_a_cpu_with_more_instructions_is_refused_before_it_runs(tmp_path: Path) -> None:
    """As where a hypervisor hides some of what the CPU of that name has."""
    source = te.placeholder((4,), name="A")
    result = te.compute((4,), lambda i: source[i] + 1, name="C")
    path = tmp_path / "increment.o"
    ansor.build(te.create_schedule(result), [source, result], name="increment").save(path)
    data = path.read_bytes()
    hidden = re.search(rb",-([a-z0-9.-]+),", data)
    if hidden is None:
        pytest.skip("this CPU lacks nothing that LLVM has a name for")
    name = hidden[1].decode()
    path.write_bytes(data.replace(hidden[0], b",+" + hidden[1] + b",", 1))
    with pytest.raises(RunError, match=rf"cannot run here: .* has {re.escape(name)}, this CPU has not"):
        ansor.load_module(path)(np.ones(4, "float32"))
