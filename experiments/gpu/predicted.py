"""What full sizes would take of GPUs that are not here: the programs that a search would measure first.

A search that knows no measurement takes what the analytic model believes in. The best of that is compiled for
a GPU's architecture by the CUDA compiler, which tells what each kernel takes. Nothing runs and nothing is
timed: seconds are the model's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

import ansor
from ansor.runtime.device.resources import KernelResources
from ansor.task.gpu_limits import gpu_faults
from experiments.gpu.cases import CASES, GPUCase
from experiments.harness import fresh_process

PROPOSED: Final = 16
"""Programs of a round, of which some are drawn at random."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """
    The program of a case that is believed to be the fastest on a GPU.

    Attributes
    ----------
    arch
        The GPU's architecture.
    seconds
        What the model estimates.
    kernels
        What its kernels take, in order.
    faults
        Limits of the GPU that it breaks, in words.
    """

    arch: str
    seconds: float
    kernels: Sequence[KernelResources]
    faults: Sequence[str]


def predict(case: GPUCase, arches: Sequence[str], timeout: float) -> list[Predicted]:
    """
    Find and compile the program of a case for each architecture, in a fresh process.

    Raises
    ------
    TimeoutError
        If that takes more than so many seconds.
    RuntimeError
        If there is no compiler for CUDA, or it refuses a program.
    """
    found = fresh_process("experiments.gpu.predicted:predicted", case.name, list(arches), timeout=timeout)
    return [
        Predicted(**{**one, "kernels": [KernelResources(**kernel) for kernel in one["kernels"]]})
        for one in found
    ]


def predicted(name: str, arches: Sequence[str]) -> list[dict[str, Any]]:
    """Predict in this process; the fields of `Predicted`."""
    return [asdict(_predicted(CASES[name], arch)) for arch in arches]


def _predicted(case: GPUCase, arch: str) -> Predicted:
    task, model = case.task(f"cuda -arch={arch}", rehearsal=False), ansor.AnalyticModel()
    states = ansor.SketchPolicy(task, model).propose(0, PROPOSED, ansor.History()).states
    seconds = model.seconds(task, states)
    best = states[int(np.argmin(seconds))]
    module = ansor.build(best, best.dag.tensors, target=task.target, name="kernel")
    assert isinstance(module, ansor.DeviceModule)
    faults = gpu_faults(best, task.hardware_params, task.target.kind)
    return Predicted(arch, float(seconds.min()), module.resources(arch), faults)
