"""Random programs of the catalogue, and evidence that what was built computes in vectors."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ansor.codegen.machine import Machine
from ansor.dtypes import dtype_info, to_numpy
from ansor.ir.nest import For, LoopKind, LoopNest, Store, walk_statements
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.lowering import lower
from ansor.schedule.state import State
from ansor.task.task import Task
from ansor.te import Tensor
from ansor.te.expr import Cast, Const, Expr, Load, Select, Var, children
from ansor.workloads import Workload
from ansor.workloads.catalogue import Args, Array
from measure.correctness.tolerance import output_tolerance
from measure.workers.check import mismatch, rms
from search.params import REFERENCE_SPACE
from sketches import ProgramSpace, sample_programs
from tests.paths import walk
from tests.sketches_cases import HARDWARE

_DRAWN, _DRAWS = 2, 6
_PARAMS = {**REFERENCE_SPACE, "cpu_fuse_all_vectors": 1}
"""So that all loops may be vectors that a search may vectorize, and none is along a short axis on purpose."""
_SIZES: dict[str, Args] = {"rgb_to_yuv": (67, 4)}
"""Sizes in place of the small ones: of few pixels an elementwise program makes one parallel loop."""

_INTEGERS = {f"{sign}int{bits}": (f"i{bits}",) * 2 for sign in ("", "u") for bits in (8, 16, 32, 64)}
_TYPES = {
    "float64": ("double", "double"),
    "float32": ("float", "float"),
    "float16": ("(?:float|half)", "i16"),
    "bfloat16": ("float", "i16"),
    "bool": ("i1", "i8"),
    **_INTEGERS,
}
"""The LLVM types, as patterns, in which values of each dtype are computed and stored."""


@dataclass(frozen=True)
class Case:
    """A workload at one size and dtype: its tensors, arrays for its inputs and what must come out."""

    entry: Workload
    args: Args

    @classmethod
    def small(cls, entry: Workload, dtype: str) -> Case:
        return cls(entry, entry.with_dtype(_SIZES.get(entry.name, entry.small[0]), dtype))

    @property
    def name(self) -> str:
        return "_".join([self.entry.name, *map(str, self.args)])

    @cached_property
    def tensors(self) -> list[Tensor]:
        return self.entry.tensors(*self.args)

    @property
    def output(self) -> Tensor:
        return self.tensors[-1]

    @cached_property
    def arrays(self) -> list[Array]:
        rng = np.random.default_rng(len(self.name))
        return [input_array(*spec, rng) for spec in self.entry.input_shapes(self.args)]

    @cached_property
    def expected(self) -> Array:
        return self.entry.expected(self.arrays, self.args)

    def fault(self, found: Array) -> str | None:
        """What is wrong with an output, None if nothing is; dtype and reduction length set the tolerance."""
        tolerance = output_tolerance(self.output)
        scale = rms(self.expected) if dtype_info(self.output.dtype).kind == "float" else 0.0
        return mismatch(
            found,
            self.expected,
            self.output.dtype,
            replace(tolerance, scale=scale),
        )

    def program(self, machine: Machine, target: str) -> tuple[State, LoopNest]:
        """The first random program that computes something in a vectorized loop; each case draws others."""
        task = Task.create(ComputeDAG(self.tensors), "[]", target, hardware_params=HARDWARE)
        space = ProgramSpace.of(task, _PARAMS)
        rng = np.random.default_rng(list(self.name.encode()))
        for _ in range(_DRAWS):
            for state in sample_programs(task, _DRAWN, rng, space=space):
                nest = lower(state, self.tensors, limits=machine.register_limits)
                if vector_computations(nest):
                    return state, nest
        raise AssertionError(f"no program of {self.name} computes in vectors")


def input_array(name: str, shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    """Numbers that suit an input of the catalogue: images are bytes, other integers are small."""
    kind = dtype_info(dtype).kind
    if kind == "float":
        return rng.uniform(-1, 1, shape).astype(to_numpy(dtype))
    low, high = (0, 256) if name == "RGB" else (0 if kind == "uint" else -9, 10)
    return rng.integers(low, high, shape).astype(to_numpy(dtype))


def vector_stores(nest: LoopNest) -> list[Store]:
    """The stores in vectorized loops of two or more iterations."""
    return [
        inner
        for loop in walk_statements(nest.body)
        if isinstance(loop, For) and loop.kind is LoopKind.VECTORIZED and int(loop.extent) > 1
        for inner in walk_statements(loop.body)
        if isinstance(inner, Store)
    ]


def vector_computations(nest: LoopNest) -> list[Store]:
    """Those of computed values, not of mere copies."""
    return [store for store in vector_stores(nest) if computed_dtypes(store.value)]


def computed_dtypes(value: Expr) -> set[str]:
    """The dtypes in which an expression calculates with loaded values, conditions of choices aside."""
    match value:
        case Load() | Const() | Var():
            return set()
        case Select(then=then, other=other):
            return computed_dtypes(then) | computed_dtypes(other)
        case _:
            inner = children(value)
            own = {side.dtype for side in inner} if any(_reads(side) for side in inner) else set()
            return own.union(*map(computed_dtypes, inner))


def _reads(value: Expr) -> bool:
    return any(isinstance(node, Load) for node in walk(value))


def vector_path(nest: LoopNest, text: str) -> str | None:
    """Why the IR of a nest is not the vector code that its loops ask for; None if it is.

    For a store of computed values in a vectorized loop, the computation is done in two or more lanes and
    vectors of its elements are stored.
    """
    wanted = [
        (_TYPES[computed][0], _TYPES[store.buffer.dtype][1], _operation(store.value))
        for store in vector_computations(nest)
        for computed in sorted(computed_dtypes(store.value))
    ]
    for computed, stored, operation in wanted:
        calculated = re.search(rf"= {operation} <\d+ x {computed}> (?!@llvm\.masked)", text)
        if calculated and re.search(rf"(?:store|@llvm\.masked\.\w+\S*\() ?<\d+ x {stored}>", text):
            return None
    return f"no vectors of any of {wanted} are computed and stored"


def _operation(value: Expr) -> str:
    """What computes a value; if that only rounds what is loaded, also the instruction for it."""
    rounds = isinstance(value, Cast) and isinstance(value.a, Load)
    return rf"(?:fptrunc|{_OPERATION})" if rounds else _OPERATION


_OPERATION = r"(?:f?(?:add|sub|mul)(?: contract)?|fdiv|fcmp \w+|icmp \w+|[us]div|[us]rem|call)"
