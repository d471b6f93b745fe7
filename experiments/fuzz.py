"""Compare random scheduled programs with the oracle for as long as you like.

    python -m experiments.fuzz --seconds 600 --seed 1000
    python -m experiments.fuzz --seconds 600 --tune 12
    python -m experiments.fuzz --seconds 600 --target opencl

Each seed is one random graph under a random schedule, on which every law of `tests/program_laws.py` is
checked: interpreted and compiled results equal those of the unscheduled graph, parallel loops do not race,
steps and records replay, printed code rebuilds the same nest, indices are simplified. With `--tune` a seed is
one random graph that is tuned, every other one as `tune` does by default; all programs that are built and run
must be right. With a `--target` of a device a seed is one workload of the catalogue of random sizes, and
programs of every sketch of it are run there (`tests/device_laws.py`); with `--tune`, too, its graph is tuned
for that. Prints how many programs were compared and the first failures, each with the command that shows it
again.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections import Counter
from collections.abc import Sequence

from experiments import command
from experiments.harness import positive_number, positive_time
from tests.device_laws import case_of_seed
from tests.program_laws import Case, check_all, lowered, seeded_case
from tests.tuning_laws import machinery, policy_of_seed, task_of_seed


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=positive_time, default=60, help="stop after this time")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=positive_number, help="stop after this many programs")
    parser.add_argument(
        "--steps", type=positive_number, default=12, help="most changes of a program at random"
    )
    parser.add_argument("--failures", type=positive_number, default=5, help="stop after this many failures")
    parser.add_argument("--no-compile", action="store_true", help="interpret only")
    parser.add_argument("--tune", type=positive_number, metavar="N", help="tune random graphs, N trials each")
    parser.add_argument("--target", metavar="T", help="opencl or cuda: programs of sketches, on a device")
    parser.add_argument("--programs", type=positive_number, default=2, metavar="N", help="of each sketch")
    arguments = parser.parse_args(argv)
    if arguments.tune is not None:
        return tune(arguments)
    return compare(arguments) if arguments.target is None else run_on_device(arguments)


def compare(arguments: argparse.Namespace) -> int:
    """Random schedules against the oracle."""
    started, seed = time.monotonic(), arguments.seed
    stop = None if arguments.count is None else seed + arguments.count
    failures, steps = 0, Counter[str]()
    while seed != stop and time.monotonic() - started < arguments.seconds and failures < arguments.failures:
        case = None
        try:
            case = seeded_case(seed, arguments.steps)
            steps.update(step.code for step in case.state.steps)
            check_all(case, compiled=not arguments.no_compile)
        except Exception as error:  # A fuzzer is where any error is a finding.
            failures += 1
            report(seed, arguments.steps, case, error)
        seed += 1
    compared = seed - arguments.seed
    print(f"compared {compared} programs, {sum(steps.values())} steps, in {time.monotonic() - started:.0f} s")
    print("steps:", ", ".join(f"{code} {count}" for code, count in steps.most_common()))
    print(f"failures: {failures}")
    return 1 if failures else 0


def tune(arguments: argparse.Namespace) -> int:
    """Whole searches over random graphs."""
    started, seed = time.monotonic(), arguments.seed
    stop = None if arguments.count is None else seed + arguments.count
    failed: list[int] = []
    with machinery() as machine:
        while (
            seed != stop
            and time.monotonic() - started < arguments.seconds
            and len(failed) < arguments.failures
        ):
            try:
                task = task_of_seed(seed, arguments.target or "llvm")
                machine.tune(task, arguments.tune, seed, policy_of_seed(task, seed))
            except Exception as error:  # A fuzzer is where any error is a finding.
                failed.append(seed)
                print(f"\nseed {seed}: {type(error).__name__}: {error}")
                given = "" if arguments.target is None else f"--target {arguments.target!r} "
                again = f"{given}--tune {arguments.tune} --seed {seed} --count 1"
                print(f"again: python -m experiments.fuzz {again}")
                traceback.print_exception(error)
            seed += 1
    seconds = time.monotonic() - started
    print(
        f"tuned {seed - arguments.seed} random graphs, {machine.outcomes.total()} trials, in {seconds:.0f} s"
    )
    print("outcomes:", ", ".join(f"{name} {count}" for name, count in machine.outcomes.most_common()))
    print("models:", ", ".join(f"{name} {count}" for name, count in machine.models.most_common()))
    print("stopped by:", ", ".join(f"{name} {count}" for name, count in machine.stops.most_common()))
    print(f"failures: {len(failed)}")
    return 1 if failed else 0


def run_on_device(arguments: argparse.Namespace) -> int:
    """Sampled programs of the catalogue, on a device, against the oracle."""
    started, seed = time.monotonic(), arguments.seed
    stop = None if arguments.count is None else seed + arguments.count
    failures, programs, sketches = 0, Counter[str](), 0
    while seed != stop and time.monotonic() - started < arguments.seconds and failures < arguments.failures:
        state = None
        try:
            case = case_of_seed(seed)
            print(f"seed {seed}: {case.name}", flush=True)  # Before it runs: a driver may end this process.
            for space in case.spaces:
                for state in case.programs(space, arguments.programs):
                    case.check(state, arguments.target)
                    programs[case.workload] += 1
                sketches += 1
        except Exception as error:  # A fuzzer is where any error is a finding.
            failures += 1
            print(f"\nseed {seed}: {type(error).__name__}: {error}")
            again = f"--target {arguments.target!r} --programs {arguments.programs} --seed {seed} --count 1"
            print(f"again: python -m experiments.fuzz {again}")
            traceback.print_exception(error)
            if state is not None:
                print(state.with_bounds())
        seed += 1
    seconds = time.monotonic() - started
    print(f"ran {programs.total()} programs of {sketches} sketches on {arguments.target}, in {seconds:.0f} s")
    print("workloads:", ", ".join(f"{name} {count}" for name, count in sorted(programs.items())))
    print(f"failures: {failures}")
    return 1 if failures else 0


def report(seed: int, max_steps: int, case: Case | None, error: Exception) -> None:
    """What failed, the program, and how to see it again."""
    print(f"\nseed {seed}: {type(error).__name__}: {error}")
    print(f"again: python -m experiments.fuzz --seed {seed} --count 1 --steps {max_steps}")
    traceback.print_exception(error)
    if case is None:
        return
    print(case.state.dag)
    for step in case.state.steps:
        print(step)
    try:
        print(lowered(case.state))
    except Exception as second:
        print(f"(not lowered: {second})")


if __name__ == "__main__":
    command.run(main, unread=1)
