"""Gate: the records of another auto-scheduler replay here to the same loops (CPU and GPU targets)."""

import importlib.util
import json
import re
import types
from functools import cache
from pathlib import Path

import pytest

from ansor import te
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.lowering import lower
from ansor.schedule.source import schedule_code
from ansor.schedule.state import State
from ansor.schedule.steps import step_from_json

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
pytestmark = pytest.mark.skipif(
    not (DATA / "tvm16_states.jsonl").exists(), reason="the oracle data (shared/data) is not on this machine"
)

TIGHTER: dict[int, str] = {}
"""Records (by line) where our proven bound is tighter than the recorded one, with the proof. None so far."""


@cache
def rows():
    return [json.loads(line) for line in (DATA / "tvm16_states.jsonl").read_text().splitlines()]


@cache
def dag(workload):
    spec = importlib.util.spec_from_file_location("te_workloads", DATA / "te_workloads.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    names = {name: getattr(te, name) for name in te.__all__}
    return ComputeDAG(getattr(module, workload)(types.SimpleNamespace(**names, max2=te.maximum)))


def states(target):
    return [r for r in rows() if r["kind"] == "state" and r["target"].startswith(target)]


def steps(row):
    return row["record"]["i"][1][1]


def without_minimums(loops):
    return re.sub(r"\(.*?,(\d+)\)$", r"(\1)", loops, flags=re.MULTILINE).strip()


@pytest.mark.parametrize("target", ["llvm", "cuda"])
def test_every_record_replays_to_the_same_loops(target):
    """Stage nesting, iterator names, annotations and extents equal those recorded."""
    for line, row in enumerate(states(target)):
        if line in TIGHTER:
            continue
        found = State.replay(dag(row["workload"]), steps(row)).with_bounds()

        assert without_minimums(row["loops"]) == without_minimums(str(found)), steps(row)
    assert len(states(target)) == {"llvm": 139, "cuda": 135}[target]


def test_every_step_has_the_recorded_json_form():
    for row in states("llvm") + states("cuda"):
        for item in steps(row):
            assert item == step_from_json(item).to_json()


def test_printed_programs_rebuild_the_same_lowered_nest():
    """The code of each recorded state, executed, gives the same loops and the same lowered text."""
    for row in states("llvm"):
        state = State.replay(dag(row["workload"]), steps(row))
        namespace = {}
        exec(schedule_code(state), namespace)
        rebuilt = namespace["s"]

        assert str(lower(state)) == str(lower(rebuilt, namespace["tensors"]))
        assert state.dag.structure_hash == rebuilt.dag.structure_hash


def test_printed_gpu_programs_rebuild_the_same_loops():
    for row in states("cuda")[::5]:
        state = State.replay(dag(row["workload"]), steps(row))
        namespace = {}
        exec(schedule_code(state), namespace)

        assert str(state.with_bounds()) == str(namespace["s"].state.with_bounds())
