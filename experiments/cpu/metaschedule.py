"""TVM's MetaSchedule on the operations of `bench_cpu`, in processes of an environment of its own.

TVM and ansor bring an LLVM and a thread pool each, so they never share a process, and TVM's Python may be
another one: this module imports nothing but the standard library unless it runs as TVM's side.

The computation travels as the Python code of its `te` definitions, which TVM's `te` executes too. On TVM's
side there are three commands:

- `check`: imports all that is needed and tells the versions;
- `tune FOLDER TRIALS THREADS`: reads `te.py` in FOLDER, tunes, and leaves `best.so` and `tuned.json` with the
  seconds it took. The layout of weights is left alone: MetaSchedule would rewrite it in every call;
- `serve FOLDER`: loads `best.so` and answers lines on its standard input: `load` reads the arrays `0.npy`,
  `1.npy`, ..., `run` writes the output, and a number times as many calls in a compiled loop. Files have no
  bfloat16; its bits travel as those of integers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

NAME: Final = "MetaSchedule"
VARIABLE: Final = "ANSOR_TVM_PYTHON"
"""Environment variable with the Python that has TVM, if no option tells it."""
_PARTS: Final = 64
"""Trials per round: the default of `tune_tir`."""
_BUILD_SECONDS: Final = 120.0
_IMPORT_SECONDS: Final = 120.0
_NEEDED: Final = ("tvm.s_tir.meta_schedule", "tvm.tirx", "xgboost", "psutil", "cloudpickle", "ml_dtypes")
"""What TVM's side imports, some of it only once it tunes."""
_INSTALL: Final = "apache-tvm==0.27.0 apache-tvm-ffi==0.1.14.post1 xgboost psutil cloudpickle ml_dtypes"


class MissingError(RuntimeError):
    """A Python that cannot tune with TVM; the text says why, and what to do."""


# -- our side --------------------------------------------------------------------------------------------


def default_python() -> str | None:
    """The Python that has TVM, if the environment names one."""
    return os.environ.get(VARIABLE)


def check(python: str) -> str:
    """
    Tell the versions with which a Python would tune.

    Raises
    ------
    MissingError
        If it cannot.
    """
    try:
        done = subprocess.run(
            [python, __file__, "check"], capture_output=True, text=True, timeout=_IMPORT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    else:
        if not done.returncode:
            return done.stdout.strip()
        why = (done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"])[-1]
    raise MissingError(
        f"{NAME} needs a Python that has TVM, which {python} is not ({why}): name one by --tvm-python or the "
        f"variable {VARIABLE}; in a new environment `pip install {_INSTALL}` makes one"
    )


def definition(tensors: Sequence[Any]) -> str:
    """Code that defines a computation when `te` is at hand, and puts its arguments into `tensors`."""
    from ansor.numbered import NumberedNames
    from ansor.schedule.dag import ComputeDAG
    from ansor.te.source import graph_source

    dag = ComputeDAG(list(tensors))
    lines, names = graph_source(dag.ops, NumberedNames())
    arguments = ", ".join(names[tensor] for tensor in dag.tensors)
    return "\n".join([*lines, f"tensors = [{arguments}]", ""])


def tune(python: str, code: str, folder: Path, trials: int, threads: int) -> dict[str, Any]:
    """
    Tune a computation with MetaSchedule from nothing, or find what a whole earlier run of the same left.

    Returns
    -------
    dict
        `seconds`, `trials`, and `command`, which serves the result.

    Raises
    ------
    RuntimeError
        If it fails; the message holds the end of what it said.
    """
    folder.mkdir(parents=True, exist_ok=True)
    left = folder / "tuned.json"
    known = json.loads(left.read_text()) if left.exists() else {}
    wanted = {"trials": trials, "threads": threads, "code": code}
    if any(known.get(name) != value for name, value in wanted.items()) or not (folder / "best.so").exists():
        shutil.rmtree(folder / "work", ignore_errors=True)  # It would go on from what is there.
        (folder / "te.py").write_text(code)
        command = [python, __file__, "tune", str(folder), str(trials), str(threads)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        (folder / "output.txt").write_text(done.stdout + done.stderr)
        if done.returncode:
            raise RuntimeError(f"{NAME} failed: {done.stderr.strip()[-800:]}")
    return {**json.loads(left.read_text()), "command": [python, __file__, "serve", str(folder)]}


class Server:
    """
    A process that runs MetaSchedule's program on given inputs.

    Parameters
    ----------
    command
        As `tune` gives it.
    inputs
        Arrays of the computation's own layout.
    output
        An array of the output's shape and dtype.
    """

    def __init__(self, command: Sequence[str], inputs: Sequence[Any], output: Any) -> None:
        self._command, self._inputs, self._output = list(command), inputs, output

    def __enter__(self) -> Server:
        numpy = import_module("numpy")
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ansor-metaschedule-"))
            self._folder = Path(folder)
            for i, array in enumerate(self._inputs):
                numpy.save(self._folder / f"{i}.npy", _to_file(array))
            # It ends with its standard input, which leaving the context closes.
            self._process = stack.enter_context(
                subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            dtypes = [array.dtype.name for array in (*self._inputs, self._output)]
            self._ask({"load": folder, "dtypes": dtypes, "shape": list(self._output.shape)})
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def answer(self) -> Any:
        """The output."""
        path = self._folder / "answer.npy"
        self._ask({"run": str(path)})
        return _from_file(import_module("numpy").load(path), self._output.dtype)

    def timer(self, number: int) -> float:
        """Run it so many times [s]."""
        return float(self._ask({"time": number}))

    @property
    def process(self) -> int:
        """The number of the process."""
        return self._process.pid

    def _ask(self, question: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{NAME}'s process ended at {question}, with code {self._process.wait()}")
        return json.loads(line)


def _to_file(array: Any) -> Any:
    """The array in a dtype that files have, with the same bits."""
    return array.view("uint16") if array.dtype.name == "bfloat16" else array


def _from_file(array: Any, dtype: Any) -> Any:
    """The array that `_to_file` was given."""
    return array.view(dtype) if getattr(dtype, "name", dtype) == "bfloat16" else array


# -- TVM's side ------------------------------------------------------------------------------------------


def _te(tvm: Any) -> SimpleNamespace:
    """TVM's `te` with the functions that ansor's has beyond it; weights keep their layout."""

    def compute(shape: Any, function: Any, name: str, attrs: object = None) -> Any:
        return tvm.te.compute(shape, function, name=name)

    tir = import_module("tvm.tirx")
    names = {name: getattr(tvm.te, name) for name in dir(tvm.te) if not name.startswith("__")}
    return SimpleNamespace(
        **{
            **names,
            "compute": compute,
            "cast": lambda value, dtype: value.astype(dtype),
            "const": tir.const,
            "maximum": tir.max,
            "minimum": tir.min,
            "select": tir.Select,
            "all": tir.all,
            "any": tir.any,
            "if_then_else": tir.if_then_else,
            "sigmoid": tir.sigmoid,
            "exp": tir.exp,
            "sqrt": tir.sqrt,
            "rsqrt": tir.rsqrt,
        }
    )


def _check() -> None:
    """Import all that is needed, and tell the versions; TVM must have been built with LLVM."""
    for name in _NEEDED:
        import_module(name)
    tvm: Any = import_module("tvm")
    versions = {name: import_module(name).__version__ for name in ("tvm", "tvm_ffi", "xgboost")}
    print(", ".join(f"{name} {version}" for name, version in versions.items()), "for", _cpu(tvm))


def _tune(folder: Path, trials: int, threads: int) -> None:
    tvm: Any = import_module("tvm")
    schedules: Any = import_module("tvm.s_tir.meta_schedule")
    scope: dict[str, Any] = {"te": _te(tvm)}
    code = (folder / "te.py").read_text()
    exec(code, scope)  # written by `tune`
    function = tvm.te.create_prim_func(scope["tensors"])
    target = tvm.target.Target({"kind": "llvm", "mcpu": _cpu(tvm), "num-cores": threads})
    start = time.perf_counter()
    database = schedules.tune_tir(
        tvm.IRModule({"main": function}),
        target,
        work_dir=str(folder / "work"),
        max_trials_global=trials,
        num_trials_per_iter=min(_PARTS, trials),
        builder=schedules.builder.LocalBuilder(max_workers=threads, timeout_sec=_BUILD_SECONDS),
    )
    seconds = time.perf_counter() - start
    schedule = schedules.tir_integration.compile_tir(database, function, target)
    if schedule is None:
        raise SystemExit("no valid program was found")
    tvm.compile(schedule.mod, target).export_library(str(folder / "best.so"))
    done = {"trials": trials, "threads": threads, "code": code, "seconds": seconds, "tvm": tvm.__version__}
    (folder / "tuned.json").write_text(json.dumps(done) + "\n")


def _dtype(name: str) -> Any:
    """The dtype of that name; numpy has all but bfloat16."""
    return import_module("numpy").dtype(import_module("ml_dtypes").bfloat16 if name == "bfloat16" else name)


def _cpu(tvm: Any) -> str:
    find = tvm.get_global_func("target.llvm_get_system_cpu")
    return str(find())


def _serve(folder: Path) -> None:
    tvm: Any = import_module("tvm")
    numpy: Any = import_module("numpy")
    device = tvm.cpu()
    module = tvm.runtime.load_module(str(folder / "best.so"))
    arrays: list[Any] = []
    for line in sys.stdin:
        question = json.loads(line)
        reply: object = None
        if "load" in question:
            where = Path(question["load"])
            *given, made = [_dtype(name) for name in question["dtypes"]]
            loaded = [_from_file(numpy.load(where / f"{i}.npy"), dtype) for i, dtype in enumerate(given)]
            loaded.append(numpy.zeros(question["shape"], made))
            arrays = [tvm.runtime.tensor(array, device) for array in loaded]
        elif "run" in question:
            module["main"](*arrays)
            numpy.save(question["run"], _to_file(arrays[-1].numpy()))
        else:
            number = question["time"]
            evaluate = module.time_evaluator("main", device, number=number, repeat=1)
            reply = evaluate(*arrays).mean * number
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "check":
        _check()
    elif sys.argv[1] == "tune":
        _tune(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        _serve(Path(sys.argv[2]))
