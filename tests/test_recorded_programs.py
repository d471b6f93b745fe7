"""Programs that another tool recorded compute the right result here: lowered, compiled, found in a log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansor.runtime.build import build
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.state import State
from measure import dump_record_to_string, load_record_from_string
from measure.records.record import MeasureResult, Seconds
from measure.records.settled import program_of
from search import SearchTask
from tests.program_laws import Case, lowered
from tests.sketches_cases import oracle_lines, oracle_workload


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    """The unscheduled computation of every workload, with inputs and outputs."""
    names = {entry["workload"] for entry in oracle_lines("state", "llvm")}
    return {name: Case.of(State.initial(ComputeDAG(oracle_workload(name)))) for name in sorted(names)}


def programs(cases: dict[str, Case]) -> Iterator[tuple[dict[str, Any], Case]]:
    """Every recorded CPU program, with its line."""
    for entry in oracle_lines("state", "llvm"):
        case = cases[entry["workload"]]
        yield entry, replace(case, state=State.replay(case.state.dag, entry["record"]["i"][1][1]))


def test_every_recorded_program_computes_the_right_result(cases: dict[str, Case]) -> None:
    """All 139 recorded CPU programs, 128 of which differ: the nest interpreted, and compiled."""
    recorded = list(programs(cases))
    different = {(entry["workload"], str(case.state.steps)): case for entry, case in recorded}
    assert (len(recorded), len(different)) == (139, 128)
    for case in different.values():
        nest = lowered(case.state, simple_mode=False)
        case.check_interpreted(nest)
        case.check_compiled(nest)


def test_recorded_programs_are_found_in_a_log_and_compute_the_right_result(
    cases: dict[str, Case], tmp_path: Path
) -> None:
    """Of each workload the program that was given the shortest time, by way of `apply_best`.

    Some programs are recorded twice; of a program's results the first counts.
    """
    log = tmp_path / "recorded.json"
    keys, wanted, count = {}, {}, dict.fromkeys(cases, 0)
    seen: set[str] = set()
    with log.open("w") as file:
        for entry, case in programs(cases):
            name = entry["workload"]
            inp, _ = load_record_from_string(json.dumps(entry["record"]))
            if program_of(inp) in seen:
                continue
            seen.add(program_of(inp))
            count[name] += 1
            seconds = 1e-6 * abs(count[name] - 4) + 1e-6  # The fourth of each is the fastest.
            print(dump_record_to_string(inp, MeasureResult((Seconds(seconds),))), file=file)
            if count[name] == 4:
                keys[name], wanted[name] = inp.task.workload_key, case

    assert wanted.keys() == cases.keys()
    for name, case in wanted.items():
        task = SearchTask(compute_dag=case.state.dag, workload_key=keys[name], target="llvm -mcpu=core-avx2")
        schedule, tensors = task.apply_best(log)
        assert schedule.state.steps == case.state.steps
        arrays = case.arrays()
        build(schedule, tensors, target="llvm")(*arrays)
        case.check(arrays)
