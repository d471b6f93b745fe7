"""What tensor intrinsics are worth: matrix products of bytes and of bfloat16, tuned with and without them.

Claim: with the dot products that the CPU has (VNNI, AVX512-BF16), the search finds products of bytes and of
bfloat16 that are several times faster than without, and about as fast as PyTorch's, which calls a library
written for these instructions. Products of equal sign pay for VNNI's mixed signs with one more product for
each vector of the packed operand. Where the CPU has no such instruction both are the same; without PyTorch
its rows are left out.

Command: `python -m experiments.bench_narrow [--quick] [--json PATH]`; 6 minutes, 2 with `--quick`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Final

import numpy as np

import ansor
from ansor.dtypes import to_numpy
from experiments import command
from experiments.harness import Bench, Estimate, speedup
from experiments.search.runs import whole
from experiments.turns import interleave

CASES: Final[Mapping[str, tuple[str, str, str]]] = {
    "bfloat16": ("bfloat16", "float32", "bfloat16"),
    "uint8 x int8": ("uint8", "int32", "int8"),
    "int8 x int8": ("int8", "int32", "int8"),
}
"""The dtypes of the first operand, the result and the second operand, by name."""


def tuned(n: int, dtypes: Sequence[str], trials: int, intrinsics: bool) -> ansor.Module:
    """Tune a product of n x n matrices and build the best program."""
    task = ansor.SearchTask(func="ansor.matmul", args=(n, n, n, *dtypes))
    policy = ansor.SketchPolicy(task, params={"cpu_tensor_intrinsics": 2 * int(intrinsics)})
    options = ansor.TuningOptions(num_measure_trials=trials, verbose=0)
    state = whole(task.tune(options, policy)).best_state
    if state is None:
        raise RuntimeError(f"no program was found for {dtypes} in {trials} trials")
    return ansor.build(state, task.compute_dag.tensors)


def operands(n: int, dtypes: Sequence[str]) -> tuple[Any, Any]:
    """Random matrices; of bytes so small that both signs hold them."""
    rng = np.random.default_rng(0)
    first, _, second = dtypes
    if first == "bfloat16":
        a, b = (rng.standard_normal((n, n)).astype(to_numpy(first)) for _ in range(2))
    else:
        a, b = (rng.integers(0, 128, (n, n)).astype(to_numpy(d)) for d in (first, second))
    return a, b


def torch_product(a: Any, b: Any) -> Callable[[], Any] | None:
    """The same in PyTorch, which multiplies bytes if both are int8; None if it is not installed."""
    try:
        torch = import_module("torch")
    except ImportError:
        return None
    torch.set_num_threads(ansor.get_num_threads())
    if a.dtype == to_numpy("bfloat16"):
        x, y = (torch.from_numpy(m.astype(np.float32)).bfloat16() for m in (a, b))
        return lambda: x @ y
    x, y = (torch.from_numpy(m.astype(np.int8)) for m in (a, b))
    return lambda: torch._int_mm(x, y)


def one_case(bench: Bench, name: str, n: int, trials: int, repeats: int) -> None:
    """Add the rows of one of `CASES`."""
    dtypes = CASES[name]
    a, b = operands(n, dtypes)
    out = np.empty((n, n), to_numpy(dtypes[1]))
    calls: dict[str, Callable[[], object]] = {}
    for variant in (True, False):
        program = tuned(n, dtypes, trials, variant)
        program(a, b, out)
        np.testing.assert_allclose(out, a.astype(out.dtype) @ b.astype(out.dtype), rtol=1e-3, atol=1e-2)
        calls["ours" if variant else "without"] = partial(program, a, b, out)
    peer = torch_product(a, b)
    if peer is not None:
        calls["PyTorch"] = peer
    times = interleave(calls, repeats=repeats)
    bench.add(f"{name} {n}", Estimate.of([2e-9 * n**3 / t for t in times["ours"]]), "GOP/s")
    for other in list(times)[1:]:
        bench.add(f"{name} {n}: speed", speedup(times["ours"], times[other]), "x", peer=other)


def main(argv: Sequence[str] | None = None) -> int:
    bench = Bench("bench_narrow: products of bytes and of bfloat16 by tensor intrinsics", argv)
    n, trials, repeats = (512, 16, 7) if bench.quick else (1024, 64, 15)
    for name in CASES:
        with bench.case(f"{name} {n}"):
            one_case(bench, name, n, trials, repeats)
    return bench.finish()


if __name__ == "__main__":
    command.run(main, unread=1)
