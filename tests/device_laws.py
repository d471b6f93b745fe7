"""What must hold of every program that a search draws for a GPU: on a device it computes what its graph says.

A seed is one workload of the catalogue of random small sizes, of one of its dtypes, for a GPU of its own
limits; of every sketch of it some programs are drawn, built as a user builds them, and run. The workloads
take turns, so that as many seeds as there are workloads meet all. `experiments.fuzz --target opencl` goes on
for as long as you like.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

import ansor
from ansor.errors import DefinitionError
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.state import State
from ansor.task.hardware import HardwareParams
from ansor.task.task import Task
from ansor.workloads import CATALOGUE, Workload
from ansor.workloads.catalogue import Args
from sketches import ProgramSpace
from tests.program_laws import Case
from tests.random_choice import Chooser

MOST_FLOPS = 2e5
_SHAPES = ("kernel", "stride", "padding", "dilation", "groups", "tile", "capsule")
"""Parameters whose values belong together, and are those of an example."""
_LENGTHS = (1, 2, 4, 8, 16, 32, 48, 64, 128)
_GPUS = (
    HardwareParams(-1, 16, 64, 49152, 2**31 - 1, 256, 8, 32),
    HardwareParams(-1, 16, 64, 49152, 2**31 - 1, 256, 8, 32),
    HardwareParams(-1, 16, 64, 32768, 2**31 - 1, 256, 1, 1),
    HardwareParams(-1, 16, 64, 16384, 2**31 - 1, 128, 4, 16),
    HardwareParams(-1, 8, 64, 4096, 2**31 - 1, 64, 2, 8),
)
"""Limits to draw programs within, those of most GPUs first; OpenCL allows no more for sure."""


@dataclass(frozen=True)
class DeviceCase:
    """A random computation: what it is called, its data and answers, and the programs of each sketch."""

    name: str
    workload: str
    seed: int
    case: Case
    spaces: tuple[ProgramSpace, ...]
    """One of each sketch."""

    def programs(self, space: ProgramSpace, count: int) -> Iterator[State]:
        """So many programs of a space, less those that break a limit however often they are drawn."""
        for population, row in space.sample(count, np.random.default_rng(self.seed)).in_order():
            yield population.materialize(row)

    def check(self, state: State, target: str) -> None:
        """
        Build a program and call it.

        Raises
        ------
        AssertionError
            If it is wrong.
        """
        arrays = self.case.arrays()
        ansor.build(state, state.dag.tensors, target=target, name="kernel")(*arrays)
        self.case.check(arrays)


def case_of_seed(seed: int) -> DeviceCase:
    """The random computation of a seed."""
    c = Chooser.from_seed(seed)
    entry = list(CATALOGUE.values())[seed % len(CATALOGUE)]
    dtype = c.one_of(entry.dtypes) if c.chance(3) else entry.dtypes[0]
    args = entry.with_dtype(_sizes(c, entry), dtype)
    dag = ComputeDAG(entry.function(*args))
    hardware = c.one_of(_GPUS)
    space = ProgramSpace.of(Task.create(dag, entry.key(*args), "opencl", hardware_params=hardware))
    spaces = tuple(replace(space, sketches=(sketch,)) for sketch in space.sketches)
    name = f"{entry.name}{args} within {hardware.to_json()}"
    return DeviceCase(name, entry.name, seed, Case.of(State.initial(dag), seed=seed), spaces)


def _sizes(c: Chooser, entry: Workload) -> Args:
    """Arguments of random sizes, without a dtype, that take few operations."""
    while True:
        example = entry.bind(c.one_of(entry.small))
        args = [
            value if name in _SHAPES else _length(c, value)
            for name, value in example.items()
            if isinstance(value, int)
        ]
        try:
            dag = ComputeDAG(entry.function(*args))
        except DefinitionError:  # such as channels that the groups do not divide
            continue
        if dag.flop_count <= MOST_FLOPS:
            return tuple(args)


def _length(c: Chooser, example: int) -> int:
    """An extent of the order of an example's, or a usual one."""
    return c.one_of(_LENGTHS) if c.chance(4) else c.between(1, 4 * example)
