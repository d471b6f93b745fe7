"""How far extraction expects loops to be unrolled is how far lowering unrolls them, whatever the bound."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from ansor.ir.registers import RegisterLimits
from ansor.schedule.lowering import lower
from ansor.task.task import Task
from costmodel.extraction.extract import core_of
from sketches import Population
from tests.sketches_cases import SMALL, oracle_workload, task_of
from tests.test_costmodel_features_plan import check, sample

WORKLOADS = ("conv2d_bn_relu", "depthwise", "grouped", "conv1d_dilated", "max_pool", "softmax", "norm")


def limits_of(task: Task, most: int) -> RegisterLimits:
    return replace(core_of(task).registers, max_instructions=most)


@cache
def sampled(name: str) -> tuple[Task, tuple[Population, ...]]:
    task = task_of(SMALL[name]() if name in SMALL else oracle_workload(name))
    return task, sample(task, 8, 7)


@pytest.mark.parametrize("most", [40, 400])
@pytest.mark.parametrize("name", [*SMALL, *WORKLOADS])
def test_the_plan_of_bounded_code_is_what_lowering_makes(name: str, most: int) -> None:
    """Bounds so low that programs reach them, in stencils, polynomials and initialisations."""
    task, populations = sampled(name)
    for population in populations:
        check(task, population, limits_of(task, most))


@pytest.mark.parametrize("name", ["conv2d_bn_relu", "depthwise"])
def test_the_bound_leaves_loops_of_some_programs(name: str) -> None:
    task, populations = sampled(name)
    few, many = (limits_of(task, most) for most in (400, 10**9))
    states = [population.materialize(row) for population in populations for row in range(len(population))]
    assert any(str(lower(state, limits=few)) != str(lower(state, limits=many)) for state in states)
