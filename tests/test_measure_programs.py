"""Real programs: right ones pass whatever their schedule, every mutation of their loop nest is caught."""

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import ansor
from ansor import te
from ansor.alignment import CALLERS
from ansor.codegen.llvm import emit_llvm
from ansor.codegen.machine import Machine
from ansor.errors import DefinitionError, LoweringError, MeasureTimeoutError, RunError
from ansor.ir.nest import For, If, LoopNest, Seq, Stmt, Store, sub_statements, walk_statements
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.lowering import lower
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.task.inputs import register_task_input_buffer
from ansor.task.task import Task
from ansor.te import Tensor
from ansor.te.interp import evaluate_points
from ansor.workloads import alternatives_of
from measure import LocalBuilder, LocalRunner, MeasureErrorNo, MeasureInput, MeasureResult, WorkerPool
from measure.correctness.plain import iteration_points, trivial_state
from measure.correctness.reference import INTERPRETED_POINTS, ReferenceStore
from measure.emit import ENTRY, EmittedProgram
from measure.records.log import dump_record_to_string, load_record_from_string
from measure.scratch import ScratchFolder
from measure.workers.jobs import compile_program
from tests.forks import in_a_fork

ROOT = Path(__file__).parent.parent


def matmul(n: int, m: int, length: int, dtype: str = "float32") -> ComputeDAG:
    a = te.placeholder((n, length), dtype, name="A")
    b = te.placeholder((length, m), dtype, name="B")
    k = te.reduce_axis((0, length), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=[k]), name="C")
    d = te.compute((n, m), lambda i, j: te.maximum(c[i, j], te.const(0, dtype)), name="D")
    return ComputeDAG([a, b, d])


def make_task(dag: ComputeDAG, name: str) -> Task:
    return Task.create(dag, f'["{name}"]', "llvm")


def tiled(dag: ComputeDAG) -> State:
    """Tile the matmul by lengths that do not divide, accumulate in a tile, vectorise and parallelise."""
    state = State.initial(dag)
    c = state.stage_id("C")
    state = state.split(c, 0, [4]).split(c, 2, [16]).split(c, 4, [8]).reorder(c, [0, 2, 4, 1, 5, 3])
    d = state.stage_id("D")
    state = state.split(d, 0, [4]).split(d, 2, [16]).reorder(d, [0, 2, 1, 3])
    state = state.annotate(state.stage_id("D"), 3, Annotation.VECTORIZE)
    state = state.annotate(state.stage_id("D"), 0, Annotation.PARALLEL)
    return state.annotate(state.stage_id("C"), 5, Annotation.VECTORIZE)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "float16"])
def test_right_programs_pass(builder: LocalBuilder, runner: LocalRunner, dtype: str) -> None:
    dag = matmul(13, 37, 29, dtype)
    task = make_task(dag, f"matmul {dtype}")
    inputs = [MeasureInput(task, state) for state in (State.initial(dag), trivial_state(dag), tiled(dag))]
    results = runner.run(inputs, builder.build(inputs))
    assert [result.error_msg for result in results] == ["", "", ""]
    assert all(0 < result.mean_cost < 1 for result in results)


def test_filters_one_after_another_have_a_reference(builder: LocalBuilder, runner: LocalRunner) -> None:
    """Inlined, as what reads in order may be, 12 filters of 5 taps would be one of 244 million."""
    rows = te.placeholder((256, 1024), name="X")
    last: te.Tensor = rows
    for level in range(12):
        width = 1024 - 4 * (level + 1)
        last = te.compute((256, width), lambda i, j, last=last: sum(last[i, j + k] * 0.2 for k in range(5)))
    dag = ComputeDAG([rows, last])
    assert iteration_points(dag) > INTERPRETED_POINTS
    inp = MeasureInput(make_task(dag, "filters"), State.initial(dag))
    (result,) = runner.run([inp], builder.build([inp]))
    assert result.ok, result


def test_logged_program_is_rebuilt(builder: LocalBuilder, runner: LocalRunner) -> None:
    dag = matmul(13, 37, 29)
    task = make_task(dag, "matmul float32")
    record = dump_record_to_string(MeasureInput(task, tiled(dag)), MeasureResult((), timestamp=1))
    inp, _ = load_record_from_string(record)
    known = MeasureInput(task, inp.state)
    (result,) = runner.run([known], builder.build([known]))
    assert result.ok, result


def test_any_executor_may_compile(runner: LocalRunner) -> None:
    dag = matmul(13, 37, 29)
    inputs = [MeasureInput(make_task(dag, "matmul float32"), tiled(dag))]
    with ThreadPoolExecutor(1) as threads, LocalBuilder(executor=threads) as builder:
        (result,) = runner.run(inputs, builder.build(inputs))
        assert threads.submit(int, "3").result() == 3  # The builder did not close what is not its own.
    assert result.ok, result


def test_what_was_closed_says_so() -> None:
    dag = matmul(13, 37, 29)
    task = make_task(dag, "matmul float32")
    inputs = [MeasureInput(task, tiled(dag))]
    with LocalBuilder(n_parallel=1) as builder, LocalRunner() as runner:
        builds = builder.build(inputs)
    advice = "was closed, .*; use it inside of that block, or make another"
    with pytest.raises(DefinitionError, match=f"this LocalBuilder {advice} LocalBuilder"):
        builder.build(inputs)
    with pytest.raises(DefinitionError, match=f"this LocalRunner {advice} LocalRunner"):
        runner.run(inputs, builds)


def test_unfinished_builds_are_dropped_with_their_iterator(builder: LocalBuilder) -> None:
    dag = matmul(13, 37, 29)
    inputs = [MeasureInput(make_task(dag, "matmul float32"), tiled(dag)) for _ in range(6)]
    results = builder.build_each(inputs)
    assert next(results).object_bytes
    results.close()  # type: ignore[attr-defined]
    assert all(result.object_bytes for result in builder.build(inputs))


# -- mutations of the loop nest ------------------------------------------------------------------------


def rebuild(stmt: Stmt, change: Callable[[Stmt], Stmt | None]) -> Stmt:
    """Apply a change at the first statement, outermost first, where it gives something."""
    done = False

    def visit(node: Stmt) -> Stmt:
        nonlocal done
        if not done:
            changed = change(node)
            if changed is not None:
                done = True
                return changed
        match node:
            case Seq(stmts=stmts):
                return Seq(tuple(visit(inner) for inner in stmts))
            case If(cond=cond, then=then, other=other):
                return If(cond, visit(then), None if other is None else visit(other))
            case Store():
                return node
            case _ if sub_statements(node):
                return replace(node, body=visit(sub_statements(node)[0]))  # type: ignore[type-var,call-arg]
            case _:
                return node

    result = visit(stmt)
    assert done, "the mutation does not apply"
    return result


def stores_to(stmt: Stmt, name: str) -> bool:
    return any(isinstance(node, Store) and node.buffer.name == name for node in walk_statements(stmt))


def skip_a_store(node: Stmt) -> Stmt | None:
    """Leave one element of D unwritten."""
    if isinstance(node, Store) and node.buffer.name == "D":
        return If((node.indices[0] != 5) | (node.indices[1] != 7), node)
    return None


def drop_the_tail(node: Stmt) -> Stmt | None:
    """Run the loop over the blocks of D's rows once less."""
    if isinstance(node, For) and stores_to(node, "D") and isinstance(node.extent, int):
        return replace(node, extent=node.extent - 1)
    return None


def drop_a_reduction_step(node: Stmt) -> Stmt | None:
    """Run the outermost reduction loop once less."""
    if isinstance(node, For) and node.var.name.startswith("k") and isinstance(node.extent, int):
        return replace(node, extent=node.extent - 1)
    return None


def swap_indices(node: Stmt) -> Stmt | None:
    """Write the transposed element of D."""
    if isinstance(node, Store) and node.buffer.name == "D":
        return replace(node, indices=(node.indices[1] % 13, node.indices[0]))
    return None


def remove_a_guard(node: Stmt) -> Stmt | None:
    """Store to D unconditionally."""
    if isinstance(node, If) and stores_to(node, "D"):
        return node.then
    return None


def skip_initialisation(node: Stmt) -> Stmt | None:
    """Leave out the loops that set C to zero."""
    if isinstance(node, Seq) and stores_to(node, "C") and not stores_to(node, "D"):
        return Seq(node.stmts[1:])
    return None


def write_an_input(node: Stmt) -> Stmt | None:
    """Also store D's value into A."""
    if isinstance(node, Store) and node.buffer.name == "D":
        return Seq((node, Store(INPUT[0], (node.indices[0], node.indices[1] % 29), node.value)))
    return None


INPUT: list[object] = []
MUTATIONS = [
    skip_a_store,
    drop_the_tail,
    drop_a_reduction_step,
    swap_indices,
    remove_a_guard,
    skip_initialisation,
    write_an_input,
]


def emit_nest(inp: MeasureInput) -> EmittedProgram:
    """Emit a loop nest that stands in the place of a state."""
    nest: LoopNest = inp.state  # type: ignore[assignment]
    machine = Machine.host()
    return EmittedProgram(emit_llvm(nest, machine, ENTRY), ENTRY, machine.to_json())


@pytest.fixture(scope="module")
def nest_builder() -> Iterator[LocalBuilder]:
    with LocalBuilder(n_parallel=1, emit=emit_nest) as made:
        yield made


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("schedule", [tiled, "rows"])
def test_mutation_is_caught(
    nest_builder: LocalBuilder,
    runner: LocalRunner,
    mutation: Callable[[Stmt], Stmt | None],
    schedule: Callable[[ComputeDAG], State] | str,
) -> None:
    dag = matmul(13, 37, 29)
    task = make_task(dag, "matmul float32")
    if schedule == "rows":
        state = State.initial(dag)
        state = state.split(state.stage_id("D"), 0, [4])
    else:
        state = schedule(dag)  # type: ignore[operator]
    nest = lower(state, list(dag.tensors), name=ENTRY)
    INPUT[:] = [nest.params[0]]
    broken = replace(nest, body=rebuild(nest.body, mutation))
    inputs = [MeasureInput(task, program) for program in (broken, nest)]  # type: ignore[arg-type]
    bad, good = runner.run(inputs, nest_builder.build(inputs))
    assert bad.error_no in (MeasureErrorNo.WRONG_ANSWER, MeasureErrorNo.RUNTIME_DEVICE), bad
    assert good.ok, good


# -- references ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(1, timeout=60.0) as made:
        yield made


def test_small_tasks_are_interpreted_and_remembered(pool: WorkerPool) -> None:
    store = ReferenceStore(capacity=900)  # Of three tasks with 296 bytes and more two fit in.
    tasks = [make_task(matmul(4, 5, 6 + extra), f"matmul {extra}") for extra in range(3)]
    first = store.get(tasks[0], pool)
    assert not first.compiled
    a, b, d = (argument.map() for argument in first.arguments)
    assert np.allclose(d, np.maximum(a @ b, 0), atol=1e-5)
    assert store.get(tasks[0], pool) is first
    for task in tasks[1:]:
        store.get(task, pool)
    assert store.get(tasks[0], pool) is not first
    folder = store._folder
    assert folder.exists()
    store.close()
    assert not folder.exists()


def test_many_small_tasks_are_remembered_and_large_ones_make_room() -> None:
    store = ReferenceStore(capacity=100_000)
    small = [make_task(matmul(2, 2, 2 + extra), f"small {extra}") for extra in range(12)]
    first = [store.get(task) for task in small]
    assert all(store.get(task) is known for task, known in zip(small, first, strict=True))
    files = {path.name for path in store._folder.glob("*.bin")}
    large = make_task(matmul(100, 100, 100), "large")  # Alone more than there is room for.
    made = store.get(large)
    assert store.get(large) is made
    kept = {path.name for path in store._folder.glob("*.bin")}
    assert len(kept) == len(made.arguments)
    assert not files & kept


def test_files_of_a_killed_owner_are_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import os, signal\n"
        "from measure.scratch import ScratchFolder\n"
        "print(ScratchFolder().path, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mine = ScratchFolder()
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    left = Path(done.stdout.strip())
    assert left.parent == tmp_path
    assert left.exists()
    other = ScratchFolder()
    assert not left.exists()
    assert mine.path.exists()
    for folder in (mine, other):
        folder.remove()
        folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_forked_copy_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mine = ScratchFolder()
    assert in_a_fork(mine.remove)
    assert mine.path.exists()
    mine.remove()
    assert not mine.path.exists()


def test_answers_that_are_mostly_infinite_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever program overflows agrees with them."""
    a, k = te.placeholder((4, 1 << 18), name="A"), te.reduce_axis((0, 1 << 18), "k")
    total = te.compute((4,), lambda i: te.sum(a[i, k] * a[i, k], axis=k), name="S")
    half = te.compute((4,), lambda i: te.cast(total[i], "float16"), name="H")
    ReferenceStore().get(ansor.SearchTask(compute_dag=[a, half]))
    assert "100 % of an output" in caplog.text
    caplog.clear()
    ReferenceStore().get(ansor.SearchTask(compute_dag=[a, total]))
    assert not caplog.records


def test_large_tasks_are_compiled_and_right(pool: WorkerPool) -> None:
    dag = matmul(160, 144, 128)
    assert iteration_points(dag) > INTERPRETED_POINTS
    store = ReferenceStore()
    reference = store.get(make_task(dag, "large"), pool)
    assert reference.compiled
    a, b, d = (argument.map() for argument in reference.arguments)
    assert np.allclose(d, np.maximum(a @ b, 0), atol=1e-4)
    assert reference.arguments[2].tolerance.scale == pytest.approx(np.sqrt(np.mean(d.astype(float) ** 2)))
    other = ReferenceStore()
    same = other.get(make_task(dag, "large"))
    assert not same.compiled
    assert np.allclose(same.arguments[2].map(), d, atol=1e-4)


def test_wrong_compiled_reference_is_noticed(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    dag = matmul(160, 144, 128)
    wrong = State.initial(matmul(160, 144, 128))
    monkeypatch.setattr("measure.correctness.plain.trivial_state", lambda _: wrong)
    monkeypatch.setattr("measure.correctness.plain.emit_program", _emit_doubling)
    with pytest.raises(LoweringError, match="contradicts the interpreter"):
        ReferenceStore().get(make_task(dag, "large"), pool)


def _emit_doubling(state: State, tensors: object, target: object) -> EmittedProgram:
    text = f"define void @{ENTRY}(ptr %a, ptr %b, ptr %d) {{\n  ret void\n}}\n"
    return EmittedProgram(text, ENTRY, Machine.host().to_json())


def test_failing_compiled_reference_falls_back(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    def emit_crash(state: State, tensors: object, target: object) -> EmittedProgram:
        text = f"define void @{ENTRY}(ptr %a, ptr %b, ptr %d) {{\n  store i32 1, ptr null\n  ret void\n}}\n"
        return EmittedProgram(text, ENTRY, Machine.host().to_json())

    monkeypatch.setattr("measure.correctness.plain.emit_program", emit_crash)
    store = ReferenceStore()
    reference = store.get(make_task(matmul(160, 144, 128), "large"), pool)
    assert not reference.compiled
    a, b, d = (argument.map() for argument in reference.arguments)
    assert np.allclose(d, np.maximum(a @ b, 0), atol=1e-4)


def test_an_answer_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        def submit_timed(self, timeout: float | None, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            done: Future[Any] = Future()
            if fn is compile_program:
                done.set_result({"object": b""})
            else:
                done.set_exception(MeasureTimeoutError(f"it took {timeout} s"))
            return done

    monkeypatch.setattr("measure.correctness.argument_files.evaluate", None)  # Nobody waits for it.
    with pytest.raises(RunError, match=r"right answer of .*large.* more than 300 s; .* smaller sizes"):
        ReferenceStore().get(make_task(matmul(160, 144, 128), "large"), Slow())


def test_fewer_points_are_checked_where_each_takes_long(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[int] = []

    def count(tensor: Tensor, points: npt.NDArray[Any], data: Any, stepwise: bool) -> Any:
        checked.append(len(points))
        return evaluate_points(tensor, points, data, stepwise=stepwise)

    monkeypatch.setattr("measure.correctness.spot_checks.evaluate_points", count)
    ReferenceStore().get(make_task(matmul(160, 144, 128), "large"), pool)
    assert checked[:2] == [1, 15]
    assert 100 < checked[2] <= 4096
    checked.clear()
    monkeypatch.setattr("measure.correctness.spot_checks.CHECKS", ((1, math.inf), (15, 1e-9)))
    ReferenceStore().get(make_task(matmul(160, 144, 128), "large"), pool)
    assert checked == [1]


def test_inputs_lose_their_sign_where_that_gives_nan() -> None:
    a = te.placeholder((40, 10), name="A")
    b = te.compute((40, 10), lambda i, j: te.sqrt(a[i, j]), name="B")
    store = ReferenceStore()
    reference = store.get(make_task(ComputeDAG([a, b]), "root"))
    inputs, outputs = (argument.map() for argument in reference.arguments)
    assert len(list(store._folder.glob("*.bin"))) == 2
    assert (inputs > 0).all()
    assert np.isfinite(outputs).all()


@pytest.mark.parametrize("reconsidered", [False, True])
def test_prepared_data_goes_with_the_task_that_it_is_of(reconsidered: bool) -> None:
    sizes = (1, 8, 8, 8, 8, 3, 1, 1)
    calls = alternatives_of("ansor.conv2d", sizes, constant=True)
    task = ansor.SearchTask("ansor.conv2d", sizes, layout_rewrite_option=2, alternatives=calls)
    store = ReferenceStore(capacity=1)
    folder = store._folder
    for alternative in (*task.alternatives, task.alternatives[0]):
        store.get(alternative)
        if reconsidered:
            store.reconsider(alternative)
    store.get(make_task(matmul(4, 5, 6), "another"))
    assert not store._alternatives
    files = {path.name for path in folder.glob("*.bin")}
    assert len(files) == 3, files
    again = store.get(task.alternatives[0])
    assert all(Path(spec.path).exists() for spec in again.arguments)
    assert [spec.behind_line for spec in again.arguments] == [
        CALLERS,
        0,
        0,
    ]  # Data, prepared weights, output.


@pytest.mark.parametrize("aligned", [False, True])
def test_inputs_begin_on_lines_where_callers_have_such(aligned: bool) -> None:
    with LocalRunner(aligned_inputs=aligned) as runner:
        known = runner.references.get(make_task(matmul(4, 5, 6), "aligned"))
        behind = 0 if aligned else CALLERS
        assert [spec.behind_line for spec in known.arguments] == [behind, behind, 0]


def test_user_data_reach_the_program(builder: LocalBuilder, runner: LocalRunner) -> None:
    table = te.placeholder((9, 4), name="table")
    where = te.placeholder((6,), "int32", name="where")
    out = te.compute((6, 4), lambda i, j: table[where[i] * 2, j], name="out")
    dag = ComputeDAG([table, where, out])
    task = replace(make_task(dag, "gather computed"), input_names=("where",))
    inputs = [MeasureInput(task, State.initial(dag))]
    builds = builder.build(inputs)
    with pytest.raises(DefinitionError, match="supply its data"):
        runner.run(inputs, builds)
    register_task_input_buffer(task.workload_key, "where", np.array([0, 4, 1, 2, 3, 3], np.int32))
    (result,) = runner.run(inputs, builds)
    assert result.ok, result


def test_data_that_are_replaced_again_and_again_are_told_apart() -> None:
    a = te.placeholder((3,), name="a")
    dag = ComputeDAG([a, te.compute((3,), lambda i: a[i] + te.const(1, "float32"), name="b")])
    task, store = replace(make_task(dag, "replaced"), input_names=("a",)), ReferenceStore()
    for number in range(50):
        register_task_input_buffer(task.workload_key, "a", np.full(3, number, np.float32), overwrite=True)
        given, expected = (argument.map() for argument in store.get(task).arguments)
        assert given.tolist() == [number] * 3
        assert expected.tolist() == [number + 1] * 3


def test_data_are_those_of_the_task_that_names_them() -> None:
    a = te.placeholder((3,), name="a")
    dag = ComputeDAG([a, te.compute((3,), lambda i: a[i] * 2.0, name="b")])
    plain, store = make_task(dag, "named"), ReferenceStore()
    register_task_input_buffer(plain.workload_key, "a", np.full(3, 7, np.float32))
    named = replace(plain, input_names=("a",))
    random, given = (store.get(task).arguments[0].map() for task in (plain, named))
    assert np.all(np.abs(random) <= 1)
    assert given.tolist() == [7] * 3
    of_random, of_given = (
        store.get(replace(task, workload_key='["named otherwise"]', direct=task)).arguments[0].map()
        for task in (plain, named)
    )
    assert np.array_equal(of_random, random)
    assert np.array_equal(of_given, given)


def test_faulty_definition_is_reported_to_its_author(builder: LocalBuilder, runner: LocalRunner) -> None:
    a, x = te.placeholder((8,), name="A"), te.placeholder((8,), name="X")
    b = te.compute((8,), lambda i: te.if_then_else(x[i] < 1e9, a[i + 1], 0.0), name="B")
    dag = ComputeDAG([a, x, b])
    inputs = [MeasureInput(make_task(dag, "beyond"), State.initial(dag))]
    with pytest.raises(RunError, match="A"):
        runner.run(inputs, builder.build(inputs))


def test_multiple_outputs_and_index_results(builder: LocalBuilder, runner: LocalRunner) -> None:
    a = te.placeholder((6, 50), name="A")
    k = te.reduce_axis((0, 50), name="k")
    argmax = te.comm_reducer(
        lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.select(x[1] >= y[1], x[1], y[1])),
        lambda i, v: (te.const(-1, i), te.const(-1e30, v)),
        name="argmax",
    )
    where, value = te.compute((6,), lambda i: argmax((k, a[i, k]), axis=[k]), name="best")
    dag = ComputeDAG([a, where, value])
    inputs = [MeasureInput(make_task(dag, "argmax"), State.initial(dag))]
    (result,) = runner.run(inputs, builder.build(inputs))
    assert result.ok, result
