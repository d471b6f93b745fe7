"""What the search is judged on: tasks, the library call that does the same, and recorded figures of peers.

A library is always measured in the same run as our program: PyTorch where it can be imported, else numpy. The
recorded figures are ratios to that same library on the machine where they were taken, so that only ratios are
compared, never milliseconds of two machines. A convolution has no numpy program that everyone would write,
so without PyTorch its ratio is shown beside nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

import ansor
from ansor import te, workloads
from experiments.cpu import pytorch
from experiments.harness import ROOT

Array = npt.NDArray[Any]
Form = Literal["torch-nchw", "torch-nhwc"]
FORMS: Final[Mapping[Form, pytorch.Form]] = {"torch-nchw": "nchw", "torch-nhwc": "nhwc"}

PEERS_FILE: Final = "peer_results.json"
PEERS_FOLDERS: Final = (ROOT / "tests" / "data", ROOT.parent / "shared" / "data")
PEER_NAMES: Final = {"ansor-tvm16": "TVM's auto_scheduler", "metaschedule": "MetaSchedule"}


def tanh_matmul(n: int, m: int, k: int) -> list[te.Tensor]:
    """Product whose left operand is a dear function of an input: C[n, m] = tanh(A[n, k]) B[k, m]."""
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), "k")
    activated = te.compute((n, k), lambda i, j: te.tanh(a[i, j]), name="Activated")
    c = te.compute((n, m), lambda i, j: te.sum(activated[i, r] * b[r, j], axis=r), name="C")
    return [a, b, c]


def _tanh_matmul(arrays: Sequence[Array], args: Mapping[str, Any]) -> Array:
    a, b = arrays
    return np.asarray(np.tanh(a) @ b)


def mlp(n: int, m: int, k: int) -> list[te.Tensor]:
    """Two products with a ReLU between them: Out[n, m] = max(X[n, m] V[m, k], 0) W[k, m]."""
    x, v, w = (te.placeholder(s, name=c) for s, c in (((n, m), "X"), ((m, k), "V"), ((k, m), "W")))
    r, q = te.reduce_axis((0, m), "r"), te.reduce_axis((0, k), "q")
    hidden = te.compute((n, k), lambda i, j: te.sum(x[i, r] * v[r, j], axis=r), name="Hidden")
    relu = te.compute((n, k), lambda i, j: te.max(hidden[i, j], 0.0), name="ReLU")
    out = te.compute((n, m), lambda i, j: te.sum(relu[i, q] * w[q, j], axis=q), name="Out")
    return [x, v, w, out]


def _mlp(arrays: Sequence[Array], args: Mapping[str, Any]) -> Array:
    x, v, w = arrays
    return np.asarray(np.maximum(x @ v, 0) @ w)


def two_filters(n: int, m: int, taps: int) -> list[te.Tensor]:
    """Means over squares of an image, along its rows and then its columns, without margins."""
    image = te.placeholder((n + taps - 1, m + taps - 1), name="Image")
    rows = te.compute(
        (n + taps - 1, m),
        lambda y, x: sum(image[y, x + tap] for tap in range(taps)) * (1.0 / taps),
        name="Rows",
    )
    both = te.compute(
        (n, m), lambda y, x: sum(rows[y + tap, x] for tap in range(taps)) * (1.0 / taps), name="Both"
    )
    return [image, both]


def _two_filters(arrays: Sequence[Array], args: Mapping[str, Any]) -> Array:
    (image,), taps = arrays, args["taps"]
    height, width = (extent - taps + 1 for extent in image.shape)
    rows = np.asarray(sum(image[:, tap : tap + width] for tap in range(taps))) / np.float32(taps)
    return np.asarray(sum(rows[tap : tap + height] for tap in range(taps))) / np.float32(taps)


def biased_transpose(n: int, m: int) -> list[te.Tensor]:
    """Transpose, in a stage of its own, and a bias for each column: Out[m, n] = X[n, m]^T + B[n]."""
    x, b = te.placeholder((n, m), name="X"), te.placeholder((n,), name="B")
    turned = te.compute((m, n), lambda i, j: x[j, i], name="Turned")
    return [x, b, te.compute((m, n), lambda i, j: turned[i, j] + b[j], name="Out")]


def _biased_transpose(arrays: Sequence[Array], args: Mapping[str, Any]) -> Array:
    x, b = arrays
    return np.asarray(x.T + b)


def column_sums(n: int, m: int) -> list[te.Tensor]:
    """Sums of the columns of a matrix, as a batch norm and the gradient of a bias take them."""
    x, k = te.placeholder((n, m), name="X"), te.reduce_axis((0, n), "k")
    return [x, te.compute((m,), lambda j: te.sum(x[k, j], axis=k), name="Sums")]


def _column_sums(arrays: Sequence[Array], args: Mapping[str, Any]) -> Array:
    (x,) = arrays
    return np.asarray(x.sum(axis=0))


def quantised_product(n: int, m: int, k: int) -> list[te.Tensor]:
    """Product of bytes less their zero points: C[n, m] = (A[n, k] - 128) (B[k, m] - 3), in int32."""
    a, b, r = (
        te.placeholder((n, k), "uint8", "A"),
        te.placeholder((k, m), "int8", "B"),
        te.reduce_axis((0, k), "k"),
    )

    def element(i: te.Expr, j: te.Expr) -> te.Expr:
        return te.sum((te.cast(a[i, r], "int32") - 128) * (te.cast(b[r, j], "int32") - 3), axis=r)

    return [a, b, te.compute((n, m), element, name="C")]


def _quantised_product(arrays: Sequence[Array], args: Mapping[str, Any]) -> Array:
    a, b = (array.astype(np.int32) for array in arrays)
    return np.asarray((a - 128) @ (b - 3))


ansor.register_workload("biased_transpose", biased_transpose)
ansor.register_workload("column_sums", column_sums)
ansor.register_workload("mlp", mlp)
ansor.register_workload("quantised_product", quantised_product)
ansor.register_workload("tanh_matmul", tanh_matmul)
ansor.register_workload("two_filters", two_filters)
OWN: Final = {
    "biased_transpose": workloads.Workload(
        "biased_transpose", biased_transpose, _biased_transpose, (), (), ("float32",)
    ),
    "column_sums": workloads.Workload("column_sums", column_sums, _column_sums, (), (), ("float32",)),
    "mlp": workloads.Workload("mlp", mlp, _mlp, (), (), ("float32",)),
    "quantised_product": workloads.Workload(
        "quantised_product", quantised_product, _quantised_product, (), (), ("int32",)
    ),
    "tanh_matmul": workloads.Workload("tanh_matmul", tanh_matmul, _tanh_matmul, (), (), ("float32",)),
    "two_filters": workloads.Workload("two_filters", two_filters, _two_filters, (), (), ("float32",)),
}
"""Workloads that the catalogue does not have."""


def random_inputs(shapes: Sequence[tuple[str, tuple[int, ...], str]], seed: int) -> list[Array]:
    """Fill arrays, aligned to lines, with random numbers: integers of the whole range, or from -1 to 1."""
    rng = np.random.default_rng(seed)
    arrays = []
    for _, shape, dtype in shapes:
        array = ansor.aligned_empty(shape, dtype)
        if array.dtype.kind in "iu":
            known = np.iinfo(array.dtype)
            array[...] = rng.integers(known.min, known.max, shape, array.dtype, endpoint=True)
        else:
            array[...] = rng.random(shape, dtype=np.float32) * 2 - 1
        arrays.append(array)
    return arrays


@dataclass(frozen=True, slots=True)
class Case:
    """
    One task.

    Parameters
    ----------
    workload, args
        As in the catalogue, or in `OWN`.
    recorded
        Its name among the recorded figures, if it is there.
    form
        The order of an image's axes in PyTorch: the faster of both where the figures were recorded.
    """

    workload: str
    args: tuple[int | str, ...]
    recorded: str = ""
    form: Form = "torch-nchw"

    @property
    def numpy_is_comparable(self) -> bool:
        """Whether numpy has the operation itself, so that everyone's numpy program is the same."""
        return "matmul" in self.workload

    def task(self) -> ansor.SearchTask:
        """Make the task anew."""
        own = self.workload in OWN
        return ansor.SearchTask(self.workload if own else self.entry.registered_name, self.args)

    @property
    def entry(self) -> workloads.Workload:
        """What the task computes."""
        return OWN.get(self.workload) or workloads.get_workload(self.workload)

    def inputs(self, seed: int = 0) -> list[Array]:
        """Random inputs of the task, for everyone on cache lines of their own."""
        return random_inputs(self.entry.input_shapes(self.args), seed)

    def numpy_call(self, inputs: Sequence[Array]) -> Callable[[], Array]:
        """The program that a numpy user would write, who has no 16-bit products."""
        entry, named = self.entry, self.entry.bind(self.args)
        wide = [array.astype(np.float32) if array.dtype.itemsize == 2 else array for array in inputs]
        return lambda: entry.reference(wide, named)


CASES: Final[Mapping[str, Case]] = {
    "matmul-512": Case("matmul", (512, 512, 512), "GMM.512"),
    "matmul_add-1024": Case("matmul_add", (1024, 1024, 1024), "MMA.1024"),
    "batch_matmul-128": Case("batch_matmul", (16, 128, 128, 128), "GMM.b16.128"),
    "matmul-509": Case("matmul", (509, 509, 509)),
    "conv2d-14": Case("conv2d", (1, 14, 14, 256, 256, 3, 1, 1), "C2D.b1.14x14x256-256.k3s1", "torch-nhwc"),
    "conv2d-7": Case("conv2d", (1, 7, 7, 512, 512, 3, 1, 1), "C2D.b1.7x7x512-512.k3s1"),
    "depthwise-112": Case(
        "depthwise_conv2d", (1, 112, 112, 32, 3, 1, 1), "DEP.b1.112x112x32.k3s1", "torch-nhwc"
    ),
    "softmax-1024": Case("softmax", (1024, 1024), "SMX.1024x1024"),
    "softmax-128": Case("softmax", (1536, 128)),
    "max_pool-112": Case("max_pool2d", (1, 112, 112, 64, 3, 2, 1)),
    "norm-256": Case("norm", (1, 256, 256)),
    "columns-64": Case("column_sums", (100352, 64)),
    "yuv-1080": Case("rgb_to_yuv", (1080, 1920)),
    "matmul-bf16": Case("matmul", (512, 512, 512, "bfloat16", "float32")),
    "conv2d-f16": Case("conv2d", (1, 28, 28, 128, 128, 3, 1, 1, 1, 1, "float16", "float32")),
    "quantised-256": Case("quantised_product", (256, 256, 256)),
    "mlp-64": Case("mlp", (64, 256, 1024)),
    "tanh_matmul-512": Case("tanh_matmul", (512, 512, 512)),
    "filters-3": Case("two_filters", (2048, 2048, 3)),
    "filters-7": Case("two_filters", (2048, 2048, 7)),
    "transpose-1024": Case("biased_transpose", (1024, 1024)),
    "conv2d-nchw-28": Case("conv2d_nchw", (1, 56, 56, 128, 128, 3, 2, 1)),
    "winograd-28": Case("conv2d_winograd", (1, 28, 28, 128, 128)),
    "winograd-56": Case("conv2d_winograd", (1, 56, 56, 64, 64)),
}
TORCH: Final = frozenset({"matmul", "matmul_add", "batch_matmul", "conv2d", "depthwise_conv2d", "softmax"})
"""Workloads whose PyTorch program is here, for float32; the others stand beside numpy."""


def has_torch() -> bool:
    """Whether PyTorch can be imported."""
    return find_spec("torch") is not None


def library_name(case: Case) -> str:
    """Name the library and its form as the recorded figures do."""
    known = case.workload in TORCH and all(isinstance(one, int) for one in case.args)
    return case.form if known and has_torch() else "numpy"


def library_call(case: Case, inputs: Sequence[Array], threads: int) -> Callable[[], Array]:
    """The library's program for the same inputs; its answer has the same shape as ours."""
    if library_name(case) == "numpy":
        return case.numpy_call(inputs)
    torch = import_module("torch")
    torch.set_num_threads(threads)
    named = workloads.get_workload(case.workload).bind(case.args)
    program = pytorch.torch_program(torch, case.workload, named, inputs, FORMS[case.form])

    def run() -> Array:
        with torch.inference_mode():
            found = program.function(*program.tensors)
        return np.asarray(program.back(found).numpy())

    return run


@dataclass(frozen=True, slots=True)
class Peers:
    """Recorded figures of libraries and tuners; empty where there is no file."""

    libraries: Mapping[str, Mapping[str, float]]
    tuners: Sequence[Mapping[str, Any]]

    @classmethod
    def read(cls, path: str | None = None) -> Peers:
        """
        Read the file of that name, or the one that lies where the tests keep their recorded data, if any.

        Raises
        ------
        OSError
            If `path` is given and cannot be read.
        ValueError, KeyError, TypeError
            If the file is of another form.
        """
        places = [Path(path)] if path else [folder / PEERS_FILE for folder in PEERS_FOLDERS]
        for place in places:
            if path or place.exists():
                content = json.loads(place.read_text(encoding="utf-8"))
                return cls(content["libraries"], content["tuners"])
        return cls({}, ())

    def ratios(self, case: Case, library: str) -> dict[str, tuple[float, int]]:
        """
        Look up what the tuners reached.

        Returns
        -------
        dict
            By tuner: the re-measured time of its winner over the library's, and the trials it took. Empty
            where nothing is recorded, or not beside this library.
        """
        known = self.libraries.get(case.recorded, {}).get(library)
        if known is None or (library == "numpy" and not case.numpy_is_comparable):
            return {}
        return {
            str(one["peer"]): (float(one["final_ms"]) / known, int(one["trials"]))
            for one in self.tuners
            if one["workload"] == case.recorded
        }

    def rate(self, case: Case) -> float | None:
        """Candidates that TVM's auto_scheduler scored per second, if recorded."""
        for one in self.tuners:
            if one["workload"] == case.recorded and one.get("candidates_scored_per_second"):
                return float(one["candidates_scored_per_second"])
        return None
