"""The files that hold the arguments of a task: its inputs and what its outputs must be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ansor.alignment import bytes_of
from ansor.dtypes import is_float
from ansor.errors import RunError
from ansor.schedule.dag import ComputeDAG
from ansor.te.interp import evaluate
from ansor.te.tensor import Tensor
from measure.correctness.masks import constants
from measure.workers.arguments import ArgumentSpec
from measure.workers.check import rms

Array = npt.NDArray[Any]


def write_argument(spec: ArgumentSpec, array: Array) -> None:
    """Write an argument's file.

    Raises
    ------
    RunError
        If there is no room for it.
    """
    try:
        with open(spec.path, "wb") as file:
            file.write(bytes_of(np.ascontiguousarray(array)).data)
    except OSError as error:
        raise RunError(
            f"cannot write {spec.size_bytes:,} bytes of {spec.name!r}, an argument to measure with, to "
            f"{spec.path!r}: {error.strerror}; make room there, or name another directory in the environment "
            "variable TMPDIR"
        ) from error


def remove_files(specs: Iterable[ArgumentSpec]) -> None:
    """Remove all files of some arguments, those of other right answers, too."""
    for spec in specs:
        for path in spec.files:
            Path(path).unlink(missing_ok=True)


def inputs_of(dag: ComputeDAG, specs: Sequence[ArgumentSpec]) -> dict[Tensor, Array]:
    """The data of the inputs of a graph, mapped."""
    return {tensor: spec.map() for tensor, spec in zip(dag.tensors, specs, strict=True) if not spec.output}


def interpret(dag: ComputeDAG, computed: ComputeDAG, specs: Sequence[ArgumentSpec]) -> None:
    """Write the outputs of a graph with the inputs of `dag`."""
    results = evaluate(computed.outputs, inputs_of(dag, specs))
    for spec, tensor in zip(specs, computed.tensors, strict=True):
        if spec.output:
            write_argument(spec, results[tensor])


def with_scale(spec: ArgumentSpec, tensor: Tensor) -> ArgumentSpec:
    """Complete the tolerance of an output by the scale of what is expected."""
    if not spec.output or not is_float(spec.dtype):
        return spec
    return replace(spec, tolerance=replace(spec.tolerance, scale=rms(spec.map(), constants(tensor))))
