"""What must hold of every scheduled program, as functions that raise when it does not.

A `Case` is a state with inputs and the oracle's outputs, computed once by the interpreter of the unscheduled
graph. Everything else about a program is compared with it, or with another form of the same program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ansor.alignment import aligned_empty
from ansor.dtypes import is_float, to_numpy
from ansor.ir.interp import run_nest
from ansor.ir.nest import For, LoopNest, Store, walk_statements
from ansor.ir.simplify import Bounds, simplify
from ansor.ir.verify import check_nest
from ansor.runtime.build import build
from ansor.runtime.module import Module
from ansor.schedule.lowering import lower
from ansor.schedule.source import schedule_code
from ansor.schedule.state import State
from ansor.te.expr import Expr, Var
from ansor.te.interp import evaluate
from ansor.te.tensor import ComputeOp, Tensor
from tests.random_choice import Chooser
from tests.random_graphs import random_graph, random_inputs, random_symbolic_graph, shape_of
from tests.random_schedules import random_state

_TOLERANCE = {"float64": 2.0**-40, "float32": 2.0**-16, "float16": 2.0**-6, "bfloat16": 2.0**-3}


@dataclass(frozen=True)
class Case:
    """A scheduled program with its inputs, the right outputs, and the largest value met on the way."""

    state: State
    sizes: Mapping[Var, int]
    inputs: Mapping[Tensor, np.ndarray]
    expected: Mapping[Tensor, np.ndarray]
    scale: Mapping[str, float]

    @classmethod
    def of(cls, state: State, sizes: Mapping[Var, int] | None = None, seed: int = 0) -> Case:
        dag = state.dag
        known = dict(sizes or {})
        inputs = random_inputs(dag, seed, known)
        computed = [t for op in dag.ops if isinstance(op, ComputeOp) for t in op.outputs]
        values = evaluate(computed, inputs, known)
        # A float of a narrow dtype carries its rounding errors into every later dtype.
        scale: dict[str, float] = {}
        for tensor, value in values.items():
            if is_float(tensor.dtype):
                largest = float(np.abs(value.astype(np.float64)).max(initial=0))
                scale[tensor.dtype] = max(scale.get(tensor.dtype, 1.0), largest)
        return cls(state, known, inputs, {t: values[t] for t in dag.outputs}, scale)

    @property
    def tolerance(self) -> float:
        """Absolute difference allowed in float outputs: infinite where intermediate values overflow."""
        largest = max(self.scale.values(), default=1.0)
        narrow = max((_TOLERANCE[dtype] for dtype in self.scale), default=0.0)
        return narrow * largest if np.isfinite(largest) else float("inf")

    def arrays(self) -> list[np.ndarray]:
        """Fresh arguments: copies of the inputs, and outputs that hold nonsense."""
        return [
            self.inputs[t].copy() if t in self.inputs else _nonsense(shape_of(t, dict(self.sizes)), t.dtype)
            for t in self.state.dag.tensors
        ]

    def check(self, arrays: list[np.ndarray]) -> None:
        """Compare the outputs among `arrays`, and that the inputs are what they were."""
        for tensor, found in zip(self.state.dag.tensors, arrays, strict=True):
            if tensor in self.inputs:
                assert np.array_equal(found, self.inputs[tensor]), f"input {tensor.name} was changed"
                continue
            expected = self.expected[tensor]
            if is_float(tensor.dtype):
                a, b = found.astype(np.float64), expected.astype(np.float64)
                with np.errstate(invalid="ignore"):
                    right = (a == b) | (np.abs(a - b) <= self.tolerance) | (np.isnan(a) & np.isnan(b))
                right |= bool(np.isinf(self.tolerance))
            else:
                right = found == expected
            if not right.all():
                at = np.argwhere(~right)[:3].tolist()
                raise AssertionError(
                    f"{tensor.name} is wrong in {int((~right).sum())} of {right.size} elements, "
                    f"first at {at}: {found[~right][:3].tolist()}, not {expected[~right][:3].tolist()}"
                )

    # -- laws ---------------------------------------------------------------------------------------------

    def check_interpreted(self, nest: LoopNest, **options: Any) -> None:
        """The interpreter of loop nests gives what the interpreter of the graph gives."""
        arrays = self.arrays()
        run_nest(nest, arrays, [self.sizes[size] for size in nest.sizes], **options)
        self.check(arrays)

    def check_compiled(self, nest: LoopNest) -> None:
        """Compiled code gives what the interpreter of the graph gives, wherever its outputs lie in memory."""
        self.check_kernel(build(nest, target="llvm", name="kernel"), (0, 1) if nest.streamed else (0,))

    def check_kernel(self, kernel: Module, offsets: Sequence[int] = (0,)) -> None:
        """The same of a function that is there, with outputs so many elements behind a cache line's start."""
        for offset in offsets:
            arrays = [
                a if t in self.inputs else _moved(a, t.dtype, offset)
                for t, a in zip(self.state.dag.tensors, self.arrays(), strict=True)
            ]
            kernel(*arrays)
            self.check(arrays)


def _moved(array: np.ndarray, dtype: str, offset: int) -> np.ndarray:
    """The same array so many elements behind the start of a cache line."""
    place = aligned_empty((array.size + offset,), dtype)[offset:].reshape(array.shape)
    place[...] = array
    return place


def _nonsense(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if is_float(dtype):
        return np.full(shape, np.nan, to_numpy(dtype))
    return np.full(shape, 1 if dtype == "bool" else 77, to_numpy(dtype))


def seeded_case(seed: int, max_steps: int = 12) -> Case:
    """The random program that belongs to a seed; one in eight has symbolic sizes."""
    c = Chooser.from_seed(seed)
    if c.chance(8):
        dag, sizes = random_symbolic_graph(c)
        return Case.of(random_state(c, dag, max_steps), sizes)
    return Case.of(random_state(c, random_graph(c), max_steps))


def check_all(case: Case, compiled: bool = True) -> None:
    """Every law that there is."""
    simple = lowered(case.state)
    case.check_interpreted(simple, check_races=True)
    polished = lowered(case.state, simple_mode=False)
    check_nest(simple)
    check_nest(polished)
    case.check_interpreted(polished)
    if compiled:
        case.check_compiled(polished)
    check_replay(case.state)
    check_printed_code(case.state, str(simple))
    check_simplified(simple)


def check_results(state: State) -> None:
    """A program computes its graph: interpreted, which sees races and reads out of bounds, and compiled."""
    case, polished = Case.of(state), lowered(state, simple_mode=False)
    case.check_interpreted(lowered(state), check_races=True)
    case.check_interpreted(polished)
    case.check_compiled(polished)


def lowered(state: State, simple_mode: bool = True) -> LoopNest:
    return lower(state, simple_mode=simple_mode, name="kernel")


def check_replay(state: State) -> None:
    """The steps, and their record form, rebuild the same loops; with extents, and lowered."""
    text, full = str(state), str(state.with_bounds())
    for steps in (state.steps, [step.to_json() for step in state.steps]):
        again = State.replay(state.dag, steps)
        assert str(again) == text
        assert str(again.with_bounds()) == full
        assert [step.to_json() for step in again.steps] == [step.to_json() for step in state.steps]


def check_printed_code(state: State, expected: str | None = None) -> None:
    """The printed program, executed, gives the same lowered text, which may be known already."""
    code = schedule_code(state)
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    again = lower(namespace["s"], namespace["tensors"], simple_mode=True, name="kernel")
    assert str(again) == (expected or str(lowered(state))), code


def check_simplified(nest: LoopNest) -> None:
    """Indices and guards of a lowered nest are as simple as `simplify` makes them."""
    ranges: dict[Var, Any] = dict.fromkeys(nest.sizes, (0, None))
    for stmt in walk_statements(nest.body):
        if isinstance(stmt, For):
            ranges[stmt.var] = (0, stmt.extent - 1 if isinstance(stmt.extent, int) else None)
    bounds = Bounds(ranges)

    def check(expr: Expr) -> None:
        assert str(simplify(expr, bounds)) == str(expr)

    for stmt in walk_statements(nest.body):
        if isinstance(stmt, Store):
            for index in stmt.indices:
                check(index)
