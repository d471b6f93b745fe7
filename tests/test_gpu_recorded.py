"""GPU programs that another tool recorded become kernels here, and compute the right result without races."""

from __future__ import annotations

from functools import cache
from typing import Any

from ansor.ir.nest import Barrier
from ansor.runtime.build import lower
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.state import State
from tests.gpu_schedules import MOST_STEPS, count, kernels, steps, variants
from tests.program_laws import Case
from tests.sketches_cases import oracle_lines, oracle_workload


@cache
def case_of(workload: str) -> Case:
    return Case.of(State.initial(ComputeDAG(oracle_workload(workload))))


@cache
def programs() -> list[tuple[dict[str, Any], State]]:
    return [
        (entry, State.replay(case_of(entry["workload"]).state.dag, entry["record"]["i"][1][1]))
        for entry in oracle_lines("state", "cuda")
    ]


def test_every_recorded_program_becomes_kernels():
    """All 135, and those that are short enough are run: some of every workload."""
    lowered, run = 0, dict.fromkeys((entry["workload"] for entry in oracle_lines("state", "cuda")), 0)
    for entry, state in programs():
        for nest in variants(state):
            if steps(nest.body) <= MOST_STEPS:
                case_of(entry["workload"]).check_interpreted(nest, check_races=True)
                run[entry["workload"]] += 1
        lowered += 1
    assert lowered == 135
    assert min(run.values()) >= 1, run
    assert sum(run.values()) >= 60


def test_a_tile_in_shared_memory_takes_two_barriers():
    """Before the threads load it and after; one where it is loaded once, none for a single thread."""
    for entry, state in programs():
        if entry["workload"] in ("matmul", "batch_matmul", "conv2d", "depthwise", "conv1d_dilated"):
            nest = kernels(state)
            assert count(nest.body, Barrier) in (1, 2), str(nest)


def test_lowering_for_cuda_is_lowering_to_kernels():
    _, state = programs()[0]
    assert str(lower(state, target="cuda", name="kernel")) == str(kernels(state))
