"""Kernels for NVIDIA GPUs beside cuBLAS, cuDNN, inductor and a copy: one command of ten minutes.

Claims to look at: what tuning finds for float32 products reaches 0.9 of cuBLAS without TF32, for bfloat16
0.6; convolution, depthwise convolution, softmax and norm are as fast as the best of PyTorch; a colour
conversion has 0.9 of the bandwidth of a copy. Products of float32 whose operands may be rounded stand beside
cuBLAS with TF32, without a claim. Every operation is tuned for its share of `--minutes`, or
`--trials`, and its winner timed in turn with the libraries, in a fresh process, after every answer was
compared with ours. What the kernels of the best products and convolutions take (registers, shared memory,
spills) is told, too.

Times are the GPU's, of calls back to back in graphs; nothing is flushed between them, so that what fits stays
in the L2 cache, of all sides alike. Clocks are as the GPU sets them; `nvidia-smi` tells them before and after
each, and while kernels run.

What hangs is killed, and a row says so; what there is no time left for is a row like that. Rows are written
after every case.

`--dry` rehearses all of it without a GPU: small sizes, few trials, programs for OpenCL (PoCL runs them on the
CPU), numpy in place of every library; the winners are compiled for sm_80 and sm_90 to tell what they take. So
is, of full sizes, the program of each that a search would measure first (`experiments.gpu.predicted`), which
has to find registers and a place on the GPU; other goals there are none.

Logs stay in `experiments/out/gpu` (`--log-dir`), so a second run goes on where the first one stopped.

Command: `python -m experiments.bench_gpu [--dry] [--quick] [--ops A,B] [--trials N] [--minutes M]
[--json PATH] [--log-dir DIR]`; ten minutes, with `--dry` three.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Final

import ansor
from ansor.codegen.c.cuda_compilers import find_compiler
from ansor.errors import AnsorError, BuildError, NoDeviceError
from ansor.runtime.device.door import DeviceInfo, device_info
from experiments import command
from experiments.cpu.measure import OURS
from experiments.gpu.cases import CASES, QUICK, GPUCase, chosen
from experiments.gpu.measure import (
    REHEARSED_ARCHES,
    SAMPLED,
    Measured,
    Place,
    Plan,
    Tuned,
    gpu_state,
    measure,
    taken,
    tools,
    tune,
)
from experiments.gpu.predicted import predict
from experiments.harness import (
    OUT,
    Bench,
    Estimate,
    folder_to_write,
    gist,
    positive_number,
    positive_time,
    speedup,
    words_of,
)

MINUTES: Final = 9.0
TRIALS: Final = 1000
"""More than there is time for."""
DRY_TRIALS: Final = 4
OVERHEAD: Final = 12.0
"""Seconds of each case that are not its tuning: starting a process, timing."""
COMPILING: Final = 20.0
"""Seconds that a library's compiler takes."""
LEAST: Final = 5.0
"""Seconds that tuning a case has at least."""
GRACE: Final = 30.0
"""Seconds after the planned ones in which everything ends."""
HANGING: Final = 4.0
"""What takes so many times as long as planned hangs."""
PREDICTING: Final = 60.0
"""Seconds that finding and compiling what is predicted of a case may take."""


def main(argv: Sequence[str] | None = None) -> int:
    bench = Bench("bench_gpu: kernels beside libraries, by the GPU's clock", argv, add_options)
    given = bench.arguments
    place = Place(given.dry)
    try:
        info = device_info(place.kind)
    except NoDeviceError as error:
        hint = "" if given.dry else "\n--dry goes the same way without a GPU"
        raise SystemExit(f"bench_gpu: {error}{hint}") from None
    folder = given.log_dir.resolve() / ("dry" if given.dry else "")
    folder.mkdir(parents=True, exist_ok=True)
    print(conditions(info), flush=True)
    cache = f"never flushed: calls back to back on {info.name} {info.arch}".strip()
    bench.add("L2 cache", 1e-6 * info.cache_bytes, "MB", peer=cache)
    cases = given.ops or [CASES[name] for name in (QUICK if bench.quick else CASES)]
    trials = given.trials or (DRY_TRIALS if given.dry else TRIALS)
    end = time.monotonic() + 60.0 * given.minutes
    with tools() as both:
        for position, case in enumerate(bench.each(cases, lambda case: case.name)):
            seconds = share(cases[position:], end - time.monotonic())
            one_case(bench, case, Plan(place, folder, trials, seconds, both), end + GRACE)
            bench.write(folder / "results.json")
    for case in cases if place.rehearsal and compiles() else ():
        foresee(bench, case, min(PREDICTING, max(LEAST, end + GRACE - time.monotonic())))
        bench.write(folder / "results.json")
    return bench.finish()


def conditions(info: DeviceInfo) -> str:
    """Under which conditions times are taken."""
    try:
        binding = f"{info.binding} {version(info.binding)}"
    except (PackageNotFoundError, ValueError):
        binding = info.binding or "a binding that has no name"
    cache = f"L2 {info.cache_bytes / 1e6:.0f} MB, never flushed: calls back to back"
    return f"{info.name} {info.arch} by {binding}, {cache}\nclocks as they are: {gpu_state()}"


def overhead(case: GPUCase) -> float:
    """The seconds of a case that are not its tuning."""
    return OVERHEAD + COMPILING * ("torch.compile" in case.peers)


def share(cases: Sequence[GPUCase], seconds: float) -> float:
    """The seconds that tuning the first of some cases may take, of those that are left for all of them."""
    rest = seconds - sum(map(overhead, cases))
    return max(LEAST, rest * cases[0].weight / sum(case.weight for case in cases))


def one_case(bench: Bench, case: GPUCase, plan: Plan, last: float) -> None:
    """
    Tune and measure one case; a row that says so if it has no program, answers differ, or it takes too long.

    Parameters
    ----------
    last
        When it must have ended, by the monotonic clock.
    """
    place = plan.place
    repeats, milliseconds = (3, 2.0) if bench.quick or place.rehearsal else (7, 20.0)

    def left(*later: float) -> float:
        """The seconds before `last`, without those that come later; a TimeoutError if there are none."""
        found = last - time.monotonic() - sum(later)
        if found <= 0:
            raise TimeoutError("no time is left")
        return found

    try:
        plan = replace(plan, seconds=min(plan.seconds, left(overhead(case))))
        tuned = tune(case, plan, last - overhead(case))
        limit = min(HANGING * overhead(case), left())
        measured = measure(case, place, tuned.log, repeats, milliseconds, limit)
    except TimeoutError as error:
        bench.add_failure(f"{case.name}: failed: time", gist(error))
        return
    except (AnsorError, RuntimeError) as error:
        (plan.folder / f"{case.name}.error.txt").write_text(f"{error}\n")
        bench.add_failure(f"{case.name}: failed", gist(error))
        return
    add_rows(bench, case, place, tuned, measured)


def add_rows(bench: Bench, case: GPUCase, place: Place, tuned: Tuned, measured: Measured) -> None:
    """Add what was found of a case: its speed, that over the best library, and what its kernels take."""
    size = case.of(place.rehearsal)
    name = size.name if place.rehearsal else case.name
    ours = measured.times[OURS]
    bench.add(f"{name}: tuning", tuned.trials, "trials", peer=f"{tuned.seconds:.0f} s in this run")
    flops = ansor.ComputeDAG(size.entry.function(*size.args)).flop_count
    bench.add(f"{name}: speed", Estimate.of([1e-9 * flops / seconds for seconds in ours]), "GFLOP/s")
    traffic = size.traffic().total
    bench.add(f"{name}: traffic", Estimate.of([1e-9 * traffic / seconds for seconds in ours]), "GB/s")
    for peer, times in measured.times.items():
        if peer != OURS:
            told = f"{peer}, {1e6 * median(times):.4g} us; ours {1e6 * median(ours):.4g} us"
            stands = peer == measured.best and not place.rehearsal
            over = f"speed over {case.over if stands else peer}"
            goal = case.goal if stands else None
            bench.add(f"{name}: {over}", speedup(ours, times), "x", peer=told, at_least=goal)
    if measured.best is None and not place.rehearsal:
        bench.add(f"{name}: speed over {case.over}", 0.0, "x", peer="it is not here", at_least=case.goal)
    for peer, why in measured.skipped.items():
        print(f"  {name}: without {peer}: {why}")
    for arch, kernels in measured.resources.items():
        for number, (text, spilled) in enumerate(kernels):
            bench.add(f"{name}: spilled by kernel {number} for {arch}", spilled, "bytes", peer=text)
    for asked, samples in measured.clocks.items():
        what, unit = SAMPLED[asked]
        if samples:
            peer = f"{len(samples)} times while kernels ran"
            bench.add(f"{name}: {what}", Estimate.of(samples), unit, peer=peer)
    if not place.rehearsal:
        print(f"  {name}: before: {measured.gpu[0]}\n  {name}: after: {measured.gpu[1]}")


def compiles() -> bool:
    """Whether there is a compiler for CUDA, which a rehearsal can do without; else it says so."""
    try:
        find_compiler()
    except BuildError as error:
        print(f"  nothing is predicted: {error}")
        return False
    return True


def foresee(bench: Bench, case: GPUCase, seconds: float = PREDICTING) -> None:
    """
    Add what the program would take of GPUs that a search of the full size would measure first there.

    Parameters
    ----------
    seconds
        What finding and compiling it may take.
    """
    try:
        found = predict(case, REHEARSED_ARCHES, seconds)
    except (TimeoutError, RuntimeError) as error:
        bench.add_failure(f"{case.name}: predicted: failed", gist(error))
        return
    flops = case.task("cuda", rehearsal=False).compute_dag.flop_count
    for one in found:
        name = f"{case.name}: predicted for {one.arch}"
        told = f"the model's word: {1e-12 * flops / one.seconds:.4g} TFLOP/s"
        bench.add(name, 1e6 * one.seconds, "us", peer=told)
        bench.add(f"{name}: limits broken", len(one.faults), "", peer="; ".join(one.faults), at_most=0)
        for number, kernel in enumerate(one.kernels):
            bench.add(
                f"{name}: spilled by kernel {number}", kernel.spilled_bytes, "bytes",
                peer=taken(kernel), at_most=0,
            )  # fmt: skip
            bench.add(f"{name}: blocks at a time of kernel {number}", kernel.blocks, "blocks", at_least=1)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this benchmark's own options."""
    parser.add_argument("--dry", action="store_true", help="rehearse without a GPU, small, beside numpy")
    parser.add_argument("--ops", type=_cases, default=(), metavar="A,B", help="operations or workloads")
    parser.add_argument("--trials", type=positive_number, metavar="N", help="most trials of each")
    parser.add_argument(
        "--minutes",
        type=positive_time,
        default=MINUTES,
        metavar="M",
        help=f"for everything, {MINUTES:g} by default",
    )
    parser.add_argument(
        "--log-dir", type=folder_to_write, default=OUT / "gpu", metavar="DIR", help="where logs lie"
    )


def _cases(text: str) -> list[GPUCase]:
    try:
        return chosen(words_of(text))
    except KeyError as error:
        known = ", ".join(dict.fromkeys(case.workload for case in CASES.values()))
        raise argparse.ArgumentTypeError(
            f"there is no {error}; known are {known}, and {', '.join(CASES)}"
        ) from None


if __name__ == "__main__":
    command.run(main, unread=1)
