"""What extraction expects of the emitter is what lowering really makes of each program."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from ansor import te
from ansor.codegen.machine import Machine
from ansor.dtypes import dtype_info
from ansor.ir.nest import Alloc, For, LoopKind, LoopNest, Store, sub_statements, walk_statements
from ansor.ir.registers import RegisterLimits
from ansor.schedule.lowering import lower
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.task.target import Target
from ansor.task.task import Task
from ansor.te import Tensor
from ansor.te.expr import Expr, Load, Var, int_value
from ansor.workloads.catalogue import get_workload
from costmodel.explain import FeatureTable
from costmodel.extraction.columns import pack
from costmodel.extraction.extract import core_of
from costmodel.extraction.form import Form
from costmodel.extraction.plan import plan, strips_of
from costmodel.extraction.statements import statements_of
from sketches import Population, ProgramSpace
from tests.costmodel_law import buffer_name, odd_lengths
from tests.paths import walk
from tests.sketches_cases import SMALL, channel_filters, matmul, oracle_workload, padded_conv1d, task_of

WORKLOADS = (
    "matmul_add",
    "conv2d_bn_relu",
    "depthwise",
    "grouped",
    "softmax",
    "norm",
    "transpose_bmm_softmax",
)


@dataclass
class Made:
    """What lowering made of one statement; of several copies, the one with most."""

    elements: float = 0.0
    lanes: float = 1.0
    unrolled: float = 1.0
    chunks: float = 1.0
    bits: int = 0
    vectors: int = 1
    repeats: bool = False
    parallel: float = 1.0
    """Iterations of what the schedule runs in parallel, lanes included."""

    def accumulators(self, limits: RegisterLimits) -> float:
        """Vector registers of the tile."""
        return self.elements // self.lanes * math.ceil(self.lanes * self.bits / limits.vector_bits)


@dataclass
class Found:
    """The statements of a lowered program by the name of the stored buffer."""

    limits: RegisterLimits
    parallel: set[str]
    """Names of loops that the schedule runs in parallel."""
    reductions: set[str] = field(default_factory=set)
    made: dict[str, Made] = field(default_factory=dict)

    @classmethod
    def of(cls, nest: LoopNest, state: State, limits: RegisterLimits) -> Found:
        loops = [loop for stage in state.stages for loop in stage.iterators]
        found = cls(limits, {loop.name for loop in loops if loop.annotation is Annotation.PARALLEL})
        for stmt in walk_statements(nest.body):
            if isinstance(stmt, Store) and _updates(stmt):
                found.reductions.add(_plain(stmt.buffer.name))
        found.visit(nest.body, [])
        return found

    def visit(self, stmt: object, loops: list[For]) -> None:
        if isinstance(stmt, Store):
            self.store(stmt, loops)
        elif isinstance(stmt, For):
            self.visit(stmt.body, [*loops, stmt])
        else:
            for inner in sub_statements(stmt):  # type: ignore[arg-type]
                self.visit(inner, loops)

    def store(self, stmt: Store, loops: list[For]) -> None:
        name = _plain(stmt.buffer.name)
        if name in self.reductions and not _updates(stmt):
            return  # an initial value, or a copy out of the registers
        one = self.made.setdefault(name, Made())
        lanes = _product(loops, LoopKind.VECTORIZED)
        one.lanes = max(one.lanes, lanes)
        unrolled = _product(loops, LoopKind.UNROLLED)
        if stmt.buffer.name.endswith(".lanes"):
            one.vectors = int(stmt.buffer.shape[-2])  # type: ignore[call-overload]
            along = [loop for loop in loops if loop.var.name == "u" or loop.var.name.endswith(".s")]
            unrolled //= _product(along, LoopKind.UNROLLED)
            one.repeats |= any(loop.kind is LoopKind.SERIAL for loop in along)
        one.unrolled = max(one.unrolled, unrolled)
        one.chunks = max(one.chunks, _product(loops, LoopKind.PARALLEL))
        parallel = [loop for loop in loops if {loop.var.name, _of_schedule(loop)} & self.parallel]
        one.parallel = max(one.parallel, math.prod(int_value(loop.extent) or 1 for loop in parallel))
        if stmt.buffer.scope == "register":
            info = dtype_info(stmt.buffer.dtype)
            one.bits = max(info.bits, 32) if info.kind == "float" else info.bits
            one.elements = max(one.elements, math.prod(int(x) for x in stmt.buffer.shape))  # type: ignore[call-overload]


def _plain(name: str) -> str:
    return name.removesuffix(".acc").removesuffix(".lanes")


def _of_schedule(loop: For) -> str:
    """Name of the loop of the schedule that one of lowering's was, or is the vectors of."""
    return re.sub(r"(\.v)?(_\d+)?$", "", loop.var.name)


def _updates(stmt: Store) -> bool:
    return any(isinstance(node, Load) and node.buffer is stmt.buffer for node in walk(stmt.value))


def _product(loops: list[For], kind: LoopKind) -> int:
    return math.prod(int_value(loop.extent) or 1 for loop in loops if loop.kind is kind)


def check(task: Task, population: Population, limits: RegisterLimits | None = None) -> int:
    """Compare the plan of every row with its lowered program; returns how many accumulate in registers.

    Left out are statements whose parallel loop ends before all that the schedule fused into it: lowering sees
    some of the iterations past the end of an axis, and the plan none.
    """
    core = core_of(task)
    limits = limits or core.registers
    form = Form.of_population(population)
    statements = statements_of(form)
    columns = pack([form], [statements])
    made = plan(columns, limits)
    strips = strips_of(columns.extent, made.lane)
    strips -= made.ragged & (made.lane > 1) & (strips > 1)  # The last one is apart.
    lanes = np.rint(made.lane.prod(axis=0))
    along = columns.reduces & (made.lane != 1)
    unrolled = np.where(made.unrolled & ~along, strips, 1.0).prod(axis=0)
    repeats = (along & ~made.unrolled & (strips > 1)).any(axis=0)
    chunks = made.chunks.prod(axis=0)
    parallel = np.where(columns.parallel, columns.extent, 1.0).prod(axis=0)
    promoted, compared = 0, 0
    for row in range(len(population)):
        state = population.materialize(row)
        nest = lower(state, limits=limits)
        found = Found.of(nest, state, limits)
        for column in np.flatnonzero(columns.program == row):
            name = buffer_name(form.state, statements[columns.ordinal[column]])
            real = found.made[name]
            if real.parallel < parallel[column] and not made.ragged[column]:
                continue
            compared += 1
            planned = (
                made.accumulators[column],
                lanes[column],
                unrolled[column],
                chunks[column],
                made.vectors[column],
                repeats[column],
            )
            expected = (
                real.accumulators(limits),
                real.lanes,
                real.unrolled,
                real.chunks,
                real.vectors,
                real.repeats,
            )
            assert planned == expected, f"{name}\n{state.with_bounds()}\n{nest}"
            promoted += int(real.elements > 0)
    assert compared >= max(1, 0.8 * len(columns) - 1)  # Of few programs one may be left out.
    return promoted


def sample(task: Task, count: int, seed: int) -> tuple[Population, ...]:
    return ProgramSpace.of(task).sample(count, np.random.default_rng(seed)).populations


@pytest.mark.parametrize("name", SMALL)
def test_the_plan_of_small_programs_is_what_lowering_makes(name: str) -> None:
    task = task_of(SMALL[name]())
    for population in sample(task, 25, 1):
        check(task, population)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_plan_is_what_lowering_makes(name: str) -> None:
    task = task_of(oracle_workload(name))
    assert sum(check(task, population) for population in sample(task, 24, 2))


@pytest.mark.parametrize(
    "tensors",
    [
        matmul(24, 3, 64),
        matmul(10, 2, 50),
        matmul(12, 4, 96),
        get_workload("transposed_conv2d").tensors(1, 4, 4, 32, 3, 4, 2, 1),
    ],
    ids=lambda tensors: str(tensors[-1].shape),
)
def test_the_plan_of_few_channels_is_what_lowering_makes(tensors: list[Tensor]) -> None:
    """Some of these reduce in lanes although their channels could be lanes."""
    task = task_of(tensors)
    limits = core_of(task).registers
    populations = sample(task, 25, 4)

    assert sum(check(task, population) for population in populations)
    assert any(
        ".lanes[" in str(lower(population.materialize(row), limits=limits))
        for population in populations
        for row in range(len(population))
    )


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64"])
@pytest.mark.parametrize("channels", [2, 3, 5, 8])
def test_the_plan_of_short_rows_is_what_lowering_makes(channels: int, dtype: str) -> None:
    """Tiles of rows, and of columns, that divide or not, with vectors of several pixels."""
    task = task_of(channel_filters(6, 24, channels, 3, dtype))
    for population in sample(task, 12, 5):
        check(task, population, RegisterLimits(512, 32))
        check(task, odd_lengths(population, 6))


def images(*shape: int, reach: int = 0, dtype: str = "float32") -> list[Tensor]:
    """The sum of each image, read `reach` elements on."""
    *outer, last = shape
    x = te.placeholder((24, *outer, last + reach), dtype, name="X")
    axes = [te.reduce_axis((0, n), f"r{number}") for number, n in enumerate(shape)]
    return [
        x,
        te.compute((24,), lambda i: te.sum(x[(i, *axes[:-1], axes[-1] + reach)], axis=axes), name="Sum"),
    ]


@pytest.mark.parametrize("limits", [(512, 32), (256, 16)])
@pytest.mark.parametrize(
    "tensors",
    [
        images(7, 7),
        images(3, 20, 20),
        images(2, 3, 6),
        images(6, 64),
        images(7, 7, reach=1),
        images(7, 7, dtype="float16"),
        images(6, 64, dtype="bfloat16"),
        images(400_000_000, 7),
    ],
    ids=lambda tensors: f"{tensors[0].shape} {tensors[0].dtype}",
)
def test_the_plan_of_rows_end_to_end_is_what_lowering_makes(
    tensors: list[Tensor], limits: tuple[int, int]
) -> None:
    task = task_of(tensors)
    made = ProgramSpace.of(task, {"cpu_keep_row_sums": 0}).sample(12, np.random.default_rng(8))
    populations = made.populations
    assert sum(check(task, population, RegisterLimits(*limits)) for population in populations)
    for population in populations:
        check(task, odd_lengths(population, 9), RegisterLimits(*limits))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize(
    "condition",
    [lambda i, k: k != i, lambda i, k: (k + i) % 3 > 0, lambda i, k: k % 3 > 0],
    ids=["apart", "of both", "of the terms"],
)
def test_the_plan_of_rows_under_a_condition_is_what_lowering_makes(
    condition: Callable[[Var, Var], Expr], dtype: str
) -> None:
    x, k = te.placeholder((24, 200), dtype, name="X"), te.reduce_axis((0, 200), name="k")
    task = task_of(
        [x, te.compute((24,), lambda i: te.sum(x[i, k], axis=k, where=condition(i, k)), name="Sum")]
    )
    for population in sample(task, 12, 8):
        check(task, population)


def sums(*shape: int, channels: int) -> list[Tensor]:
    """Sums over an image, stored and then read, of one channel or weighted by three."""
    x, w = te.placeholder((16, *shape), name="X"), te.placeholder((*shape, channels), name="W")
    y = te.compute((16, *shape), lambda *i: x[i] * 2.0, name="Y")
    axes = tuple(te.reduce_axis((0, n), f"r{number}") for number, n in enumerate(shape))

    def term(i: Var, c: Var) -> Expr:
        return y[(i, *axes)] * w[(*axes, c)] if channels > 1 else y[(i, *axes)]

    out = te.compute((16, channels), lambda i, c: te.sum(term(i, c), axis=axes), name="Sum")
    return [x, *([w] if channels > 1 else []), out]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("shape", [(7, 7), (3, 20, 20), (40, 6)])
def test_rows_end_to_end_cost_what_one_row_does(shape: tuple[int, ...], channels: int) -> None:
    """The same vectors, loaded alike."""
    tables = []
    for form in (shape, (math.prod(shape),)):
        task = task_of(sums(*form, channels=channels))
        table = FeatureTable.of(task, State.initial(task.compute_dag))
        tables.append({feature.name: values[-1] for feature, values in table.features()})
    assert tables[0]["lanes"] > 1
    assert tables[0]["work"] > 0
    for name in ("lanes", "work", "loads_contiguous", "loads_broadcast", "loads_scattered", "tile_loads"):
        assert tables[0].get(name, 0) == pytest.approx(tables[1].get(name, 0)), name


@pytest.mark.parametrize(("length", "limits"), [(9, (512, 32)), (60, (256, 16)), (100, (512, 32))])
def test_the_plan_of_padded_pixels_is_what_lowering_makes(length: int, limits: tuple[int, int]) -> None:
    """Some copies are unrolled whose last vector is shorter."""
    task = task_of(padded_conv1d(length, 3, 4))
    for population in sample(task, 40, 7):
        check(task, population, RegisterLimits(*limits))


@pytest.mark.parametrize("name", ["matmul", "fused matmul"])
def test_the_plan_of_lengths_that_do_not_divide_is_what_lowering_makes(name: str) -> None:
    task = task_of(SMALL[name]())
    for population in sample(task, 12, 3):
        check(task, odd_lengths(population, 4))


@pytest.mark.parametrize(
    "params", [{"cpu_packed_read": 2}, {"max_tile_waste": 1.0}, {"max_tile_waste": 1.4}], ids=str
)
@pytest.mark.parametrize("name", ["matmul_add", "conv2d"])
def test_the_plan_beyond_the_reference_is_what_lowering_makes(name: str, params: dict[str, object]) -> None:
    task = task_of(oracle_workload(name))
    made = ProgramSpace.of(task, params).sample(12, np.random.default_rng(6))
    assert sum(check(task, population) for population in made.populations)


@pytest.mark.parametrize(
    "target",
    [
        "llvm",
        "llvm -mcpu=core-avx2",
        "llvm -mcpu=znver4",
        "llvm -mcpu=nehalem",
        "llvm -mtriple=aarch64-linux-gnu",
        "llvm -mtriple=riscv64-linux-gnu",
        "llvm -mtriple=i686-linux-gnu -mattr=+avx2",
        *(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}" for cpu in ("x86-64", "skylake", "icelake-server")),
        *(
            f"llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64 -mattr={name}"
            for name in ("+fma", "+avx512vl", "+avx512f,-avx2", "+avxvnni")
        ),
        *(
            f"llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -mattr={name}"
            for name in ("-avx512bw", "-fma", "-avx2", "-avx", "-sse4.2")
        ),
    ],
)
def test_the_plan_reckons_with_the_registers_that_lowering_uses(target: str) -> None:
    """Those of vectors: what a matrix unit has beside them it does not know."""
    core = core_of(task_of(SMALL["matmul"](), target))
    machine = Machine.for_target(Target(target))
    assert replace(machine.register_limits, matrix_unit=frozenset()) == core.registers


def test_a_program_with_registers_allocates_them() -> None:
    """The comparison above looks at the right thing: tiles are there."""
    task = task_of(SMALL["matmul"]())
    (population, *_) = sample(task, 8, 5)
    limits = RegisterLimits(256, 16)
    nests = [lower(population.materialize(row), limits=limits) for row in range(len(population))]
    allocated = [
        stmt.buffer.scope for nest in nests for stmt in walk_statements(nest.body) if isinstance(stmt, Alloc)
    ]
    assert "register" in allocated
