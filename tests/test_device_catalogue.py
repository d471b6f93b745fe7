"""Every workload of the catalogue, of random small sizes: programs of all sketches are right on a device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import chain

import numpy as np
import pytest

import ansor
from ansor.codegen.c import CUDA, emit_c, split_kernels
from ansor.ir.nest import LoopNest
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.state import State
from ansor.task.task import Task
from ansor.workloads import CATALOGUE, Workload
from sketches import ProgramSpace
from tests.cuda_on_host import run_cuda_on_host, run_together
from tests.device_kernels import each_kind_of_device
from tests.device_laws import SEEDS, DeviceCase, case_of_seed, products_of_seed
from tests.device_nests import together

BLOCKS = 3
PRODUCTS = 24
"""Seeds of what tensor cores multiply."""


case_of = cache(case_of_seed)
products_of = cache(products_of_seed)


@cache
def programs_of(block: int) -> list[tuple[DeviceCase, State]]:
    """A program of each sketch of every third seed."""
    found = []
    for case in map(case_of, SEEDS[block::BLOCKS]):
        drawn = [(case, state) for space in case.spaces for state in case.programs(space, 1)]
        assert len(drawn) == len(case.spaces), case.name
        found += drawn
    return found


@each_kind_of_device
@pytest.mark.usefixtures("quick_pocl")
@pytest.mark.parametrize("block", range(BLOCKS))
def test_sampled_programs_compute_what_the_catalogue_says(kind: str, block: int) -> None:
    """One of each sketch, compiled at once; `python -m experiments.fuzz --target opencl` runs more."""
    programs = programs_of(block)
    results = [case.case.arrays() for case, _ in programs]
    nests = [ansor.lower(state, target=kind) for _, state in programs]
    ansor.build(together(nests), target=kind)(*chain.from_iterable(results))
    for (case, state), arrays in zip(programs, results, strict=True):
        try:
            case.case.check(arrays)
        except AssertionError as error:
            error.add_note(f"seed {case.seed}: {case.name}\n{state}")
            raise


@pytest.mark.parametrize("block", range(BLOCKS))
def test_sampled_programs_by_tensor_cores_compute_what_the_catalogue_says(block: int) -> None:
    """One of each sketch, as the threads of a GPU run it, without races; and its text, emulated."""
    ran: list[tuple[DeviceCase, list[np.ndarray]]] = []
    nests: list[LoopNest] = []
    for seed in range(block, PRODUCTS, BLOCKS):
        case = products_of(seed)
        try:
            for space in case.spaces:
                nests.append(case.check_by_hand(space))
                ran.append((case, case.case.arrays()))
        except Exception as error:
            error.add_note(f"seed {seed}: {case.name}")
            raise
    for nest in nests:
        assert re.search(r"^ +ansor_mma_\w+\(&", emit_c(split_kernels(nest), CUDA), re.MULTILINE)
    run_together(run_cuda_on_host, [(nest, arrays, ()) for nest, (_, arrays) in zip(nests, ran, strict=True)])
    for case, arrays in ran:
        case.case.check(arrays)


def test_the_sketches_that_are_checked_are_counted() -> None:
    """Of how many random computations there are how many sketches, and by which rules they are made.

    What rules derive of a workload at its benchmark sizes they derive of it here, too.
    """
    catalogue = [case_of(seed) for seed in SEEDS]
    met = {(case.workload, rules) for case in catalogue for rules in case.rules}
    assert {one for entry in CATALOGUE.values() for one in _benchmarked(entry)} <= met
    cases = [*catalogue]
    cases += [products_of(seed) for seed in range(PRODUCTS)]
    made = [rules for case in cases for rules in case.rules]
    assert len({case.name for case in cases}) == len(cases) >= 45
    assert len(made) >= 48
    assert frozenset().union(*made) >= {
        "AddCacheRead",
        "AddCacheWrite",
        "AddRfactorBlocks",
        "AlwaysInline",
        "CrossThreadReduction",
        "MultiLevelTilingWithFusion",
        "TensorCores",
    }
    assert sum("TensorCores" in rules for rules in made) >= PRODUCTS


def _benchmarked(entry: Workload) -> Iterator[tuple[str, frozenset[str]]]:
    """The rules of each sketch of a workload at its benchmark sizes."""
    for args in entry.benchmark:
        task = Task.create(ComputeDAG(entry.function(*args)), entry.key(*args), "opencl")
        yield from ((entry.name, frozenset(sketch.rules)) for sketch in ProgramSpace.of(task).sketches)


def test_a_seed_is_a_workload_of_random_sizes() -> None:
    """The same one again, and another one a round of the catalogue later."""
    rounds = [
        [case_of_seed(seed + first) for seed in range(len(CATALOGUE))] for first in (0, 0, len(CATALOGUE))
    ]
    assert [case.workload for case in rounds[0]] == list(CATALOGUE)
    assert [case.name for case in rounds[0]] == [case.name for case in rounds[1]]
    assert all(mine.name != other.name for mine, other in zip(rounds[0], rounds[2], strict=True))
