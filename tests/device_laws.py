"""What must hold of every program that a search draws for a GPU: on a device it computes what its graph says.

A seed is one workload of the catalogue of random small sizes, of one of its dtypes, for a GPU of its own
limits; of every sketch of it some programs are drawn, built as a user builds them, and run. The workloads
take turns, so that as many seeds as there are workloads meet all. `experiments.fuzz --target opencl` goes on
for as long as you like.

What tensor cores multiply has seeds of its own, and its programs are interpreted: there are none but on GPUs
of NVIDIA's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

import ansor
from ansor.errors import DefinitionError
from ansor.ir.nest import LoopNest
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.state import State
from ansor.task.hardware import HardwareParams
from ansor.task.task import Task
from ansor.te import Tensor
from ansor.workloads import CATALOGUE, Workload
from ansor.workloads.catalogue import Args
from sketches import ProgramSpace
from tests.gpu_cases import GPU, gpu_task
from tests.gpu_schedules import MOST_STEPS, kernels, steps
from tests.program_laws import Case
from tests.random_choice import Chooser
from tests.tensor_core_schedules import half_product

MOST_FLOPS = 2e5
_SHAPES = ("kernel", "stride", "padding", "dilation", "groups", "tile", "capsule")
"""Parameters whose values belong together, and are those of an example."""
_LENGTHS = (1, 2, 4, 8, 16, 32, 48, 64, 128)
SEEDS = (*range(len(CATALOGUE)), 25, 27, 28, 32, 42, 43, 74, 80, 91, 143, 144, 572, 633)
"""Of each workload one, and such as have sketches that it has at its benchmark sizes alone."""
_GPUS = (
    HardwareParams(-1, 16, 64, 49152, 2**31 - 1, 256, 8, 32),
    HardwareParams(-1, 16, 64, 49152, 2**31 - 1, 256, 8, 32),
    HardwareParams(-1, 16, 64, 32768, 2**31 - 1, 256, 1, 1),
    HardwareParams(-1, 16, 64, 16384, 2**31 - 1, 128, 4, 16),
    HardwareParams(-1, 8, 64, 4096, 2**31 - 1, 64, 2, 8),
)
"""Limits to draw programs within, those of most GPUs first; OpenCL allows no more for sure."""
_PRODUCTS = ("matmul", "dense", "batch_matmul", "matmul_add", "conv1d", "conv2d", "dilated_conv2d")
"""Workloads of the catalogue, with sums wider than their operands, that have tiles for tensor cores."""
_ROUNDED = ("", "A", "B", "AB")
"""Which operands of float32 lie the other way round."""
MOST_PRODUCTS = 1e5
_TILES = (8, 16, 24, 32, 48)


@dataclass(frozen=True)
class DeviceCase:
    """A random computation: what it is called, and the programs of each sketch."""

    name: str
    workload: str
    seed: int
    dag: ComputeDAG
    spaces: tuple[ProgramSpace, ...]
    """One of each sketch."""

    @cached_property
    def case(self) -> Case:
        """Its data and answers."""
        return Case.of(State.initial(self.dag), seed=self.seed)

    @property
    def rules(self) -> list[frozenset[str]]:
        """The rules that made each sketch."""
        return [frozenset(space.sketches[0].rules) for space in self.spaces]

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

    def check_by_hand(self, space: ProgramSpace) -> LoopNest:
        """
        Interpret a program of a space, as the threads of GPUs run it, and watch for races; gives its kernels.

        Raises
        ------
        AssertionError
            If it is wrong, or all that are drawn take too long.
        """
        drawn = (kernels(state, shuffles=True) for state in self.programs(space, 8))
        nest = next((nest for nest in drawn if steps(nest.body) <= MOST_STEPS), None)
        assert nest is not None, self.name
        self.case.check_interpreted(nest, check_races=True)
        return nest


def case_of_seed(seed: int, target: str = "opencl") -> DeviceCase:
    """The random computation of a seed, whose programs are drawn for a target."""
    c = Chooser.from_seed(seed)
    entry = list(CATALOGUE.values())[seed % len(CATALOGUE)]
    dtype = c.one_of(entry.dtypes) if c.chance(3) else entry.dtypes[0]
    args = entry.with_dtype(_sizes(c, entry), dtype)
    dag = ComputeDAG(entry.function(*args))
    hardware = c.one_of(_GPUS)
    space = ProgramSpace.of(Task.create(dag, entry.key(*args), target, hardware_params=hardware))
    spaces = tuple(replace(space, sketches=(sketch,)) for sketch in space.sketches)
    name = f"{entry.name}{args} within {hardware.to_json()}"
    return DeviceCase(name, entry.name, seed, dag, spaces)


def products_of_seed(seed: int) -> DeviceCase:
    """The random computation of a seed whose sketches multiply by tensor cores."""
    c = Chooser.from_seed(seed)
    while True:
        workload, name, tensors = _product(c, seed)
        dag = ComputeDAG(tensors)
        if dag.flop_count > 2 * MOST_PRODUCTS:
            continue
        space = ProgramSpace.of(gpu_task(tensors, "cuda -arch=sm_80", GPU))
        if all("TensorCores" in sketch.rules for sketch in space.sketches):
            spaces = tuple(replace(space, sketches=(sketch,)) for sketch in space.sketches)
            return DeviceCase(name, workload, seed, dag, spaces)


def _product(c: Chooser, seed: int) -> tuple[str, str, Sequence[Tensor]]:
    """A workload, and a product of it of random sizes: what it is called, and the tensors."""
    which = seed % (len(_PRODUCTS) + 1)
    if which == len(_PRODUCTS):
        sizes = (_tiles(c), _tiles(c), _tiles(c), "float32", c.one_of(_ROUNDED))
        return "rounded product", f"rounded product{sizes}", half_product(*sizes)
    entry = CATALOGUE[_PRODUCTS[which]]
    halves = c.one_of(("float16", "bfloat16"))
    dtypes = {"dtype": halves, "out_dtype": "float32", "weight_dtype": halves}
    while True:
        args = [
            dtypes.get(name, value if name in _SHAPES or c.chance(4) else _tiles(c))
            for name, value in entry.bind(c.one_of(entry.small)).items()
        ]
        try:
            return entry.name, f"{entry.name}{tuple(args)}", entry.function(*args)
        except DefinitionError:
            continue


def _tiles(c: Chooser) -> int:
    """An extent that tiles of tensor cores divide, or nearly."""
    return c.between(9, 40) if c.chance(3) else c.one_of(_TILES)


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
