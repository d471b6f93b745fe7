"""What compiling a program costs, and what LLVM's own optimisations would add to it.

Claims: a search on two cores gets a program every 60 ms at most, as one process writes the next while another
one compiles the last; writing and compiling take that together, as a median, on one core, but for Winograd's
convolutions; no program takes more than 250 ms, as unrolling is bounded by the code that it makes. And the
pipelines of LLVM (O1, O2, O3), which run before code generation, and its loop strength reduction (LSR), which
is part of that, take longer than ours, which has the one pass that its output needs, and make no faster
kernels (`ansor.codegen.compile`). Each is added alone: O1, O2 and O3 are without strength reduction, like
ours.
Programs are of two kinds: sampled at random, for the time of compiling; and proposed by the search, which are
built as it does, and of which the kernels are timed in turn.

Command: `python -m experiments.bench_compile [--quick] [--json PATH]`; 4 minutes, half a one with `--quick`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Final

import llvmlite.binding as llvm
import numpy as np

import ansor
from ansor.codegen.compile import compile_ir, loop_reduction
from ansor.codegen.llvm import emit_llvm
from ansor.codegen.machine import Machine, target_machine
from ansor.collector import collector_paused
from ansor.runtime.jit import load_object
from ansor.runtime.pool import kernel_imports
from ansor.runtime.timer import compiled_timer
from ansor.schedule.lowering import lower
from experiments import command
from experiments.harness import Bench, Estimate
from experiments.search.cases import CASES, Case
from experiments.turns import take_turns

NAMES: Final = ("matmul-512", "conv2d-14", "winograd-28", "depthwise-112", "softmax-1024")
PIPELINES: Final = ("ours", "LSR", "O1", "O2", "O3")
GOAL_MS: Final = 60.0
WORST_MS: Final = 250.0
"""Of the slowest program: a search should lose no more to one program than to some ten usual ones of 25 ms.

The slowest of 800 random ones took 130 ms on a shared core of a Zen 5 server: half as fast a one keeps it.
"""
ENTRY: Final = "kernel"
WARM: Final = 4
"""Programs that are built before the time is taken."""
FASTER: Final = 1.05
"""Kernels of another pipeline over ours: less is within what times of a few kernels differ by."""


def written_code(state: ansor.State, machine: Machine) -> str:
    """Lower a program and write its LLVM IR, as builders do."""
    with collector_paused():
        nest = lower(state, list(state.dag.tensors), name=ENTRY, limits=machine.register_limits)
        return emit_llvm(nest, machine, ENTRY, aligned=True)


def compiled(text: str, machine: Machine, pipeline: str) -> bytes:
    """Compile a program by our pipeline, also with LSR, or by one of LLVM's in front of code generation."""
    if pipeline in ("ours", "LSR"):
        return compile_ir(text, machine, strength_reduction=pipeline == "LSR")
    tm = target_machine(machine)
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple, module.data_layout = machine.triple, str(tm.target_data)
    builder = llvm.create_pass_builder(tm, llvm.create_pipeline_tuning_options(int(pipeline[1])))
    builder.getModulePassManager().run(module, builder)
    with loop_reduction(machine):
        return bytes(tm.emit_object(module))


def cost_of_compiling(bench: Bench, name: str, case: Case, count: int) -> None:
    """Time writing and compiling of random programs, on this core [ms of CPU time]."""
    task = case.task()
    machine = Machine.for_target(task.target)
    written: list[float] = []
    spent: dict[str, list[float]] = {pipeline: [] for pipeline in PIPELINES}
    for state in ansor.sample_programs(task, count, np.random.default_rng(0)):
        start = time.thread_time()
        text = written_code(state, machine)
        written.append(1e3 * (time.thread_time() - start))
        for pipeline, times in spent.items():
            start = time.thread_time()
            compiled(text, machine, pipeline)
            times.append(1e3 * (time.thread_time() - start))
    whole = [emit + build for emit, build in zip(written, spent["ours"], strict=True)]
    bench.add(f"{name}: write and compile", Estimate.of(whole), "ms", at_most=GOAL_MS)
    bench.add(f"{name}: write and compile, 95 % of programs below", quantiles(whole, n=20)[-1], "ms")
    bench.add(f"{name}: write and compile, the slowest of {count}", max(whole), "ms", at_most=WORST_MS)
    bench.add(f"{name}: share of writing", sum(written) / sum(whole), "of 1")
    for pipeline, times in spent.items():
        if pipeline != "ours":
            more = [other / own for other, own in zip(times, spent["ours"], strict=True)]
            title = f"{name}: time of compiling by {pipeline}"
            bench.add(title, Estimate.of(more), "x", peer="ours", at_least=1)


def time_of_building(bench: Bench, name: str, case: Case, count: int) -> None:
    """Time how long a search waits for programs that it proposes: all of them, by the builder that it has."""
    task = case.task()
    states = ansor.SketchPolicy(task).propose(0, count + WARM, ansor.History()).states
    inputs = [ansor.MeasureInput(task, state) for state in states]
    with ansor.LocalBuilder() as builder:
        builder.build(inputs[:WARM])  # starts its workers
        start = time.perf_counter()
        results = builder.build(inputs[WARM:])
        seconds = time.perf_counter() - start
    if errors := [result.error_msg for result in results if result.error_msg]:
        raise RuntimeError(f"{len(errors)} of {len(results)} programs were not built, first: {errors[0]}")
    title = f"{name}: building in a search, {builder.n_parallel} workers, time for each program"
    bench.add(title, 1e3 * seconds / len(results), "ms", at_most=GOAL_MS)


def speed_of_kernels(bench: Bench, name: str, case: Case, count: int, repeats: int) -> None:
    """Time the kernels that the pipelines make of programs that the search proposes, in turn."""
    task = case.task()
    machine = Machine.for_target(task.target)
    states = ansor.SketchPolicy(task).propose(0, count, ansor.History()).states[:count]
    arrays = case.inputs()
    arrays += [
        ansor.aligned_empty(tuple(int(str(s)) for s in tensor.shape), tensor.dtype)
        for tensor in task.compute_dag.outputs
    ]
    addresses = tuple(int(array.ctypes.data) for array in arrays)
    ratios: dict[str, list[float]] = {pipeline: [] for pipeline in PIPELINES[1:]}
    for state in states:
        text = written_code(state, machine)
        codes = {
            pipeline: load_object(compiled(text, machine, pipeline), (ENTRY,), kernel_imports())
            for pipeline in PIPELINES
        }
        timers = {pipeline: compiled_timer(code[ENTRY], addresses, ()) for pipeline, code in codes.items()}
        times = {
            pipeline: median(values)
            for pipeline, values in take_turns(timers, repeats, settle_seconds=0.0).items()
        }
        for pipeline, found in ratios.items():
            found.append(times["ours"] / times[pipeline])
    for pipeline, found in ratios.items():
        title = f"{name}: speed of kernels by {pipeline}"
        bench.add(title, Estimate.of(found), "x", peer="ours", at_most=FASTER)


def main(argv: Sequence[str] | None = None) -> int:
    bench = Bench("bench_compile: the time of compiling, and what other pipelines are worth", argv)
    for name in NAMES[: 2 if bench.quick else None]:
        with bench.case(name):
            cost_of_compiling(bench, name, CASES[name], count=20 if bench.quick else 200)
            time_of_building(bench, name, CASES[name], count=20 if bench.quick else 60)
            speed_of_kernels(bench, name, CASES[name], *((4, 5) if bench.quick else (8, 11)))
    return bench.finish()


if __name__ == "__main__":
    command.run(main, unread=1)
