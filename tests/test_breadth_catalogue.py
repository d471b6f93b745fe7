"""Every workload of the catalogue, in every dtype it claims, each at a random schedule with vector code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ansor
from ansor.codegen.machine import Machine
from ansor.workloads import CATALOGUE
from tests.breadth_programs import Case, vector_path


def cases() -> Iterator[Case]:
    for entry in CATALOGUE.values():
        for dtype in entry.dtypes:
            yield Case.small(entry, dtype)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in cases()])
def test_random_vector_programs_compute_the_workload(case: Case) -> None:
    state, nest = case.program(Machine.host(), "llvm")
    module = ansor.build(nest, target="llvm")
    assert vector_path(nest, module.get_source("ll")) is None, f"{state}\n{nest}"
    assert case.fault(module(*case.arrays)) is None, f"{state}\n{state.steps}"
