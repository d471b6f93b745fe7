"""No code outside `ansor.workloads` knows an operator: neither by a name in the text nor by what it does."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ansor import te
from ansor.schedule.dag import ComputeDAG
from ansor.task.task import Task
from ansor.workloads import CATALOGUE, Workload
from sketches import sample_programs
from tests.sketches_cases import HARDWARE

ROOT = Path(__file__).parent.parent
ROOMS = ("ansor", "sketches", "measure", "costmodel", "search")
ENGLISH = {"add", "attention", "batch", "capsule", "dense", "dilated", "group", "layer", "max", "avg"}
ENGLISH |= {"pool", "scores", "to", "transposed"}
"""Parts of the catalogue's names that have other meanings: these count only as a whole name."""
SYNONYMS = {"bn", "convolution", "gemm", "gemv", "norm", "normalization", "relu"}
"""Not "pooling": it is also how models merge the rows of a program."""


PARTS = {part for name in CATALOGUE for part in name.split("_")}
FORBIDDEN = (PARTS | {re.sub(r"\dd$", "", part) for part in PARTS} | SYNONYMS) - ENGLISH


def offence(text: str) -> str | None:
    """The operator that an identifier or string names."""
    if text.lower() in CATALOGUE:
        return text
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower()
    words = re.findall(r"[a-z]+(?:\dd)?", spaced)
    return next((word for word in words if word in FORBIDDEN), None)


def mentions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of all identifiers and strings that are no documentation."""
    documentation = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        match node:
            case ast.Constant(value=str(text)) if id(node) not in documentation:
                if "Examples:" not in text:  # what a command prints for --help
                    yield line, text
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.alias(name=name):
                yield line, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield line, name
            case ast.keyword(arg=str(name)):
                yield line, name


def test_no_code_outside_workloads_names_an_operator() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} names {word}: {text!r}"
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if "workloads" not in path.relative_to(ROOT).parts
        for line, text in mentions(ast.parse(path.read_text()))
        if (word := offence(text)) is not None
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "code",
    [
        'if op.tag == "conv2d_nhwc": pass',
        "def is_matmul(op): pass",
        "class SoftmaxRule: pass",
        'name.startswith("dense")',
        "rule(depthwise=True)",
        "from x import max_pool2d",
        "stage.BatchNorm",
    ],
)
def test_the_rule_bites(code: str) -> None:
    assert any(offence(text) for _, text in mentions(ast.parse(code)))


@pytest.mark.parametrize("code", ['"""A matmul."""\nx = 1', "batch_max = group + dense_rows", "x  # softmax"])
def test_the_rule_spares_documentation_and_plain_english(code: str) -> None:
    assert not any(offence(text) for _, text in mentions(ast.parse(code)))


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=CATALOGUE)
def test_programs_do_not_depend_on_names(entry: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same random programs come of the same computation whose tensors, axes and tags say nothing."""
    before = [state_steps(entry, seed) for seed in range(2)]
    numbers = itertools.count()
    compute, placeholder, reduce_axis = te.compute, te.placeholder, te.reduce_axis

    def nameless_compute(*args: Any, **options: Any) -> Any:
        return compute(*args[:2], **{**options, "name": f"t{next(numbers)}", "tag": ""})

    def nameless_placeholder(shape: Any, dtype: str = "float32", *_: Any, **__: Any) -> Any:
        return placeholder(shape, dtype, f"t{next(numbers)}")

    def nameless_axis(extent: Any, *_: Any, **__: Any) -> Any:
        return reduce_axis(extent, f"r{next(numbers)}")

    monkeypatch.setattr(te, "compute", nameless_compute)
    monkeypatch.setattr(te, "placeholder", nameless_placeholder)
    monkeypatch.setattr(te, "reduce_axis", nameless_axis)
    assert all(op.name.startswith("t") for op in ComputeDAG(entry.tensors(*entry.small[0])).ops)
    assert [state_steps(entry, seed) for seed in range(2)] == before


def state_steps(entry: Workload, seed: int) -> list[str]:
    """The steps of random programs as their records say, which refer to stages and loops by number."""
    task = Task.create(ComputeDAG(entry.tensors(*entry.small[0])), "[]", "llvm", hardware_params=HARDWARE)
    states = sample_programs(task, 3, np.random.default_rng(seed))
    return [str([step.to_json() for step in state.steps]) for state in states]
