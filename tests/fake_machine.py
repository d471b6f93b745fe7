"""A builder and runner in one that answers by arithmetic: costs are a function of task and program."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ansor import te
from ansor.schedule.identity import program_key
from ansor.schedule.state import State
from measure import (
    BuildResult,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    ProgramBuilder,
    ProgramRunner,
    RecordToFile,
    load_records,
)
from search import SearchTask, TuningOptions

HOST = "llvm -num-cores=2"


class FakeMachine(ProgramBuilder, ProgramRunner):
    """Costs in [1, 2) times `scale` seconds; `fails` says which programs do; interrupts after so many."""

    n_parallel = 2

    def __init__(
        self,
        fails: Callable[[MeasureInput], bool] = lambda _: False,
        interrupt_after: int | None = None,
        scale: Callable[[MeasureInput], float] = lambda _: 1e-3,
    ) -> None:
        self.fails = fails
        self.left = interrupt_after
        self.scale = scale
        self.ran: list[tuple[str, str]] = []

    def build_each(self, inputs: Sequence[MeasureInput]) -> Iterator[BuildResult]:
        return (BuildResult(b"object") for _ in inputs)

    def run_each(
        self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]
    ) -> Iterator[MeasureResult]:
        for inp in inputs:
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    raise KeyboardInterrupt
            assert isinstance(inp.state, State)
            key = program_key(inp.state)
            self.ran.append((inp.task.workload_key, key))
            when = 1700000000 + len(self.ran)
            if self.fails(inp):
                yield MeasureResult.failed(MeasureErrorNo.RUNTIME_DEVICE, "it crashed", 0.5, when)
                continue
            number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:3], "little") / 2**24
            yield MeasureResult((self.scale(inp) * (1 + number),), all_cost=0.5, timestamp=when)  # type: ignore[arg-type]


def matmul(n: int, m: int | None = None, k: int | None = None, names: str = "ABC") -> list[te.Tensor]:
    """C[n, m] = A[n, k] B[k, m]."""
    m, k = m or n, k or n
    a, b = te.placeholder((n, k), name=names[0]), te.placeholder((k, m), name=names[1])
    axis = te.reduce_axis((0, k), name="k")
    return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name=names[2])]


def matmul_task(n: int, **changes: Any) -> SearchTask:
    return SearchTask(compute_dag=matmul(n), **({"target": HOST, "desc": f"matmul {n}"} | changes))


def options(trials: int, log: Path | None = None, **changes: Any) -> TuningOptions:
    """Silent options over a `FakeMachine`; `machine=` replaces it."""
    machine = changes.pop("machine", None) or FakeMachine()
    settings: dict[str, Any] = {
        "num_measure_trials": trials,
        "num_measures_per_round": 4,
        "verbose": 0,
        "builder": machine,
        "runner": machine,
        "measure_callbacks": [RecordToFile(log)] if log is not None else None,
    }
    return TuningOptions(**(settings | changes))


def logged(log: Path) -> list[str]:
    """Log lines without what differs from run to run: the time stamps."""
    return [f"{inp.task.workload_key} {inp.state} {res.costs}" for inp, res in load_records(log)]
