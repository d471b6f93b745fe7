"""Products by tensor cores: what a thread does of them means what it says, and warps do it together."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.codegen.c import CUDA, OPENCL, emit_c, split_kernels
from ansor.codegen.c.compile import compile_cuda, compile_ptx, disassemble
from ansor.codegen.c.cuda_compilers import CudaCompiler
from ansor.errors import DefinitionError, ScheduleError
from ansor.intrinsics import get_warp_intrinsic, warp_intrinsics
from ansor.ir.nest import LoopNest
from ansor.schedule.bounds import infer_bounds
from ansor.schedule.kernel_usage import kernel_usages
from ansor.schedule.source import schedule_code
from tests.cuda_on_host import run_cuda_on_host
from tests.gpu_schedules import ahead, check_schedule, kernels, text_of
from tests.opencl_helper import run_opencl
from tests.program_laws import Case, check_printed_code, check_replay
from tests.tensor_core_schedules import half_product, tensor_cores

MMA = "cuda.mma.m16n8k16.bfloat16"
ROUNDING = "cuda.mma.m16n8k8.tfloat32"


def run(s: Any) -> str:
    """Run a schedule's kernels, as devices with the instructions and older ones do it; gives their text."""
    case, nest = Case.of(s.state), kernels(s.state, shuffles=True)
    halves = "float16" in {tensor.dtype for tensor in s.state.dag.inputs}
    for arch in ("sm_90", *(("sm_75",) if halves else ()), "sm_70"):
        arrays = case.arrays()
        text = run_cuda_on_host(nest, *arrays, arch=arch)
        case.check(arrays)
    return text


def calls(text: str) -> list[str]:
    """The functions of warps that kernels call, in the order of the text."""
    return re.findall(r"^ +ansor_(mma_\w+|rows_\d|columns_\d)\(&", text, re.MULTILINE)


# -- what a thread does --------------------------------------------------------------------------------------


def test_a_thread_holds_four_sums_of_a_tile() -> None:
    s = tensor_cores(half_product(16, 8, 32))
    text = text_of(check_schedule(s))
    assert "allocate C.local[1, 1, 1, 1, 2, 2] float32 local" in text
    assert "allocate A.shared[16, 16] bfloat16 shared" in text
    assert "allocate B.shared[16, 8] bfloat16 shared" in text
    assert re.search(
        r"tensorize i_c_1_1 in 0..2:\n +tensorize j_c_2_1 in 0..2:\n +tensorize k.1 in 0..16:", text
    )


def test_regions_are_those_of_tiles() -> None:
    """What a thread has, and what a block shares, is no more than its tiles."""
    s = tensor_cores(half_product(128, 64, 64), warps=(2, 2), tiles=(2, 4), steps=2)
    (usage,) = kernel_usages(infer_bounds(s.state))
    assert usage.local_bytes == 2 * 4 * 4 * 4
    assert usage.shared_bytes == 2 * (64 * 32 + 32 * 64)
    assert (usage.threads, usage.blocks) == (128, 2)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"warps": (2, 1), "tiles": (1, 2), "steps": 2},
        {"warps": (2, 2), "tiles": (2, 1), "by_index": True},
        {"warps": (1, 2), "tiles": (1, 3), "vthreads": 2},
        {"warps": (2, 1), "tiles": (1, 2), "pad": 8},
        {"shared": "A"},
        {"shared": ""},
    ],
    ids=str,
)
def test_warps_multiply(dtype: str, options: dict[str, Any]) -> None:
    """All that a block shares is loaded at least twice."""
    depth = 32 * options.get("steps", 1)
    s = tensor_cores(half_product(64, 48, depth, dtype), **options)
    check_schedule(s)
    names = calls(run(s))
    assert f"mma_{dtype}" in names
    loaded = {"A": "rows_4", "B": "columns_4" if options.get("tiles", (1, 1))[1] % 2 == 0 else "columns_2"}
    assert set(names) == {f"mma_{dtype}", *(loaded[name] for name in options.get("shared", "AB"))}


@pytest.mark.parametrize("transposed", ["", "A", "B"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"warps": (2, 1), "tiles": (1, 2), "steps": 2, "pad": 4},
        {"warps": (2, 2), "tiles": (2, 1), "steps": 4, "by_index": True},
        {"shared": ""},
    ],
    ids=str,
)
def test_operands_of_32_bits_are_matrices_along_the_products(
    transposed: str, options: dict[str, Any]
) -> None:
    """Others are read by element."""
    s = tensor_cores(half_product(64, 48, 32, "float32", transposed), **options)
    check_schedule(s)
    shared = options.get("shared", "AB")
    loaded = {"rows_4"} if "A" in shared and transposed != "A" else set()
    if "B" in shared and transposed == "B":
        loaded.add("rows_4" if options.get("tiles", (1, 1))[1] % 2 == 0 else "rows_2")
    assert set(calls(run(s))) == {"mma_float32", *loaded}


@pytest.mark.parametrize(("dtype", "depth"), [("bfloat16", 16), ("float16", 16), ("float32", 8)])
def test_one_instruction_may_have_all_products(dtype: str, depth: int) -> None:
    s = tensor_cores(half_product(32, 32, depth, dtype), warps=(1, 2), tiles=(2, 2))
    check_schedule(s)
    assert f"mma_{dtype}" in calls(run(s))


@pytest.mark.parametrize("transposed", ["A", "B", "AB"])
def test_operands_lie_either_way(transposed: str) -> None:
    s = tensor_cores(half_product(32, 32, 32, transposed=transposed), tiles=(2, 2))
    names = calls(run(s))
    assert set(names) == {
        "mma_bfloat16",
        "columns_4" if "A" in transposed else "rows_4",
        "rows_4" if "B" in transposed else "columns_4",
    }


@pytest.mark.parametrize("pad", [2, 4])
def test_rows_that_no_matrix_begins_with_are_read_by_element(pad: int) -> None:
    s = tensor_cores(half_product(32, 16, 32), tiles=(2, 2), pad=pad, vector=pad)
    assert set(calls(run(s))) == {"mma_bfloat16"}


def test_tiles_are_filled_ahead() -> None:
    s = tensor_cores(half_product(32, 32, 64), tiles=(2, 2), pad=8)
    text = run(ahead(s))
    assert "ansor_copy_16(&" in text
    assert set(calls(text)) == {"mma_bfloat16", "rows_4", "columns_4"}


def test_consumers_take_the_sums_where_they_lie() -> None:
    a, b, c = half_product(32, 32, 32)
    d = te.compute((32, 32), lambda i, j: te.cast(te.maximum(c[i, j], te.const(0, "float32")), "bfloat16"))
    s = tensor_cores((a, b, c, d), tiles=(2, 2))
    check_schedule(s)
    text = run(s)
    assert "mma_bfloat16" in calls(text)
    assert "ushort2" in text


def test_operands_that_are_computed() -> None:
    """What is read is chosen element by element: the padding of a convolution, say."""
    a, b = te.placeholder((30, 32), "float16", name="A"), te.placeholder((32, 16), "float16", name="B")
    k = te.reduce_axis((0, 32), name="k")
    zero = te.const(0, "float16")
    p = te.compute(
        (32, 32), lambda i, r: te.if_then_else(te.all(i >= 1, i < 31), a[i - 1, r], zero), name="P"
    )
    c = te.compute(
        (32, 16),
        lambda i, j: te.sum(te.cast(p[i, k], "float32") * te.cast(b[k, j], "float32"), axis=k),
        name="C",
    )
    s = tensor_cores((p, b, c), shared="B")
    s[p].compute_inline()
    check_schedule(s)
    assert set(calls(run(s))) == {"mma_float16", "columns_2"}


@pytest.mark.parametrize(("private", "found"), [("A", True), ("B", False), ("AB", False)])
def test_what_a_thread_has_to_itself_no_other_one_reads(private: str, found: bool) -> None:
    """A warp shares the reading of columns, which is of no use where each thread has a copy of its own."""
    s = tensor_cores(half_product(32, 16, 32), tiles=(2, 1), shared="", private=private)
    check_schedule(s)
    assert ("mma_bfloat16" in calls(run(s))) == found


def test_threads_that_lie_otherwise_do_it_alone() -> None:
    """Lanes whose number is another one: loops, and right."""
    *_, c = half_product(16, 16, 32)
    s = te.create_schedule(c)
    local = s.cache_write(c, "local")
    tile = s.rewrite_layout(local, [(0, 1, 16), (1, 2, 8), (0, 8, 1), (1, 4, 2), (0, 2, 8), (1, 2, 1)])
    i0, j0, row, column, i, j = s[tile].op.axis
    k0, k1 = s[tile].split(s[tile].op.reduce_axis[0], factor=16)
    s[tile].reorder(row, column, k0, i0, j0, i, j, k1)
    s[tile].tensorize(i, MMA)
    hi, ri = s[c].split(c.op.axis[0], factor=8)
    tj, cj, hj = s[c].split(c.op.axis[1], factors=[4, 2])
    s[c].reorder(cj, ri, hi, tj, hj)
    thread = s[c].fuse(cj, ri)
    s[c].bind(thread, te.thread_axis("threadIdx.x"))
    s[tile].compute_at(s[c], thread)
    check_schedule(s)
    assert calls(run(s)) == []


def test_opencl_and_cpus_unroll() -> None:
    s = tensor_cores(half_product(32, 16, 32), tiles=(2, 2))
    case = Case.of(s.state)
    arrays = case.arrays()
    assert calls(run_opencl(kernels(s.state, shuffles=True), *arrays)) == []
    case.check(arrays)
    assert emit_c(split_kernels(kernels(s.state)), OPENCL).count("#pragma unroll") >= 3


@pytest.mark.parametrize(("loaders", "found"), [(64, True), (48, False)])
def test_all_threads_of_a_warp_come_by(loaders: int, found: bool) -> None:
    """Of more threads, which load as well, only whole warps are left out."""
    s = tensor_cores(half_product(16, 8, 32), loaders=loaders)
    check_schedule(s)
    assert ("mma_bfloat16" in calls(run(s))) == found


# -- the step ------------------------------------------------------------------------------------------------


def test_the_step_is_printed_recorded_and_replayed() -> None:
    s = tensor_cores(half_product(64, 32, 32), warps=(2, 1), tiles=(2, 2))
    (step,) = (step for step in s.state.steps if step.code == "TI")
    assert step.to_json()[-1] == MMA
    assert f", {MMA!r})" in schedule_code(s.state)
    check_replay(s.state)
    check_printed_code(s.state)


def refusal(made: tuple[Any, ...], factors: tuple[int, int, int] = (2, 2, 16), name: str = MMA) -> str:
    c = made[-1]
    s = te.create_schedule(c)
    i0, i1 = s[c].split(c.op.axis[0], factor=factors[0])
    j0, j1 = s[c].split(c.op.axis[1], factor=factors[1])
    k0, k1 = s[c].split(c.op.reduce_axis[0], factor=factors[2])
    s[c].reorder(i0, j0, k0, i1, j1, k1)
    with pytest.raises(ScheduleError) as caught:
        s[c].tensorize(i1, name)
    return str(caught.value)


def test_what_is_no_such_product_is_refused() -> None:
    assert "has the extent 4" in refusal(half_product(16, 16, 32), (4, 2, 16))
    assert "16 products, which must divide 'k' with its 40 iterations" in refusal(half_product(16, 16, 40))
    assert f"not the form of {get_warp_intrinsic(MMA)}" in refusal(half_product(16, 16, 32, "float16"))
    s = te.create_schedule(half_product(16, 16, 32)[-1])
    (c,) = s.state.dag.outputs
    with pytest.raises(ScheduleError, match="the three innermost loops"):
        s[c].tensorize(c.op.axis[1], MMA)


def rounded_product(attrs: dict[str, object]) -> tuple[Any, ...]:
    a, b = te.placeholder((16, 16), name="A"), te.placeholder((16, 8), name="B")
    k = te.reduce_axis((0, 16), name="k")
    return a, b, te.compute((16, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C", attrs=attrs)


def test_operands_are_rounded_where_the_operation_allows_it() -> None:
    found = refusal(rounded_product({}), (2, 2, 8), ROUNDING)
    assert "it has to allow rounding: attrs={'rounded_operands': 'tfloat32'}" in found


@pytest.mark.parametrize("allowed", ["tf32", "bfloat16", "", True, None, ["tfloat32"]])
def test_a_rounding_that_there_is_not_is_refused(allowed: object) -> None:
    with pytest.raises(DefinitionError, match=r"'C' has 'rounded_operands': .* rounded to 'tfloat32'"):
        ansor.ComputeDAG(rounded_product({"rounded_operands": allowed}))


def test_intrinsics_tell_what_they_multiply() -> None:
    assert [str(one) for one in warp_intrinsics()] == [
        "cuda.mma.m16n8k16.bfloat16: float32 += bfloat16 * bfloat16, 16x8x16 by 32 threads",
        "cuda.mma.m16n8k16.float16: float32 += float16 * float16, 16x8x16 by 32 threads",
        "cuda.mma.m16n8k8.tfloat32: float32 += tfloat32 * tfloat32, 16x8x8 by 32 threads",
    ]


# -- machine code --------------------------------------------------------------------------------------------


def big(dtype: str) -> LoopNest:
    s = tensor_cores(half_product(256, 256, 128, dtype), warps=(2, 2), tiles=(4, 8), steps=2, pad=8)
    return kernels(ahead(s).state, shuffles=True)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_tensor_cores_are_in_the_machine_code(compiler: CudaCompiler, arch: str, dtype: str) -> None:
    done = compile_cuda(emit_c(split_kernels(big(dtype)), CUDA), arch, compiler)
    assert done.warnings == ""
    ptx = compile_ptx(emit_c(split_kernels(big(dtype)), CUDA), arch, compiler)
    assert len(re.findall(r"mma\.sync\.aligned\.m16n8k16", ptx)) % (4 * 8) == 0 < ptx.count("mma.sync")
    assert ptx.count("ldmatrix.sync.aligned.m8n8.x4.shared") == ptx.count("x4.trans.shared") > 0
    (found,) = done.resources
    assert found.registers <= 255
    assert (found.stack_bytes, found.spill_store_bytes) == (0, 0)
    try:
        text = disassemble(done.data)
    except Exception as error:
        pytest.skip(str(error))
    copies, left = divmod(len(re.findall(r"\bHMMA\.16816\.F32", text)), 2 * 4 * 8)
    assert (copies > 0, left) == (True, 0)  # of the loop's body, which compilers unroll at will
    assert len(re.findall(r"\bLDSM\.16\.M88\.4 ", text)) == copies * 2 * 4
    assert len(re.findall(r"\bLDSM\.16\.MT88\.4 ", text)) == copies * 2 * 4
    assert "LDGSTS" in text


@pytest.mark.parametrize("transposed", ["", "B"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_rounding_is_in_the_machine_code(compiler: CudaCompiler, arch: str, transposed: str) -> None:
    made = half_product(256, 256, 128, "float32", transposed)
    s = tensor_cores(made, warps=(2, 2), tiles=(4, 8), steps=2, pad=4)
    text = emit_c(split_kernels(kernels(ahead(s).state, shuffles=True)), CUDA)
    done = compile_cuda(text, arch, compiler)
    assert done.warnings == ""
    ptx = compile_ptx(text, arch, compiler)
    assert len(re.findall(r"mma\.sync\.aligned\.m16n8k8\.row\.col\.f32\.tf32\.tf32\.f32", ptx)) % (4 * 8) == 0
    assert ptx.count("mma.sync") > 0
    assert ptx.count("cvt.rna.tf32.f32") > 0
    assert ptx.count("ldmatrix.sync.aligned.m8n8.x4.shared") > 0
    (found,) = done.resources
    assert (found.stack_bytes, found.spill_store_bytes) == (0, 0)


def test_older_devices_do_it_in_halves(compiler: CudaCompiler) -> None:
    """As many products, by twice as many instructions, in the order of the words of one."""
    text = emit_c(split_kernels(big("float16")), CUDA)
    assert compile_cuda(text, "sm_75", compiler).warnings == ""
    found = [compile_ptx(text, arch, compiler) for arch in ("sm_75", "sm_80")]
    halves, whole = (re.findall(r"mma\.sync\.aligned\.(m16n8k\d+)\.row\.col\.f32\.f16", ptx) for ptx in found)
    assert set(halves) == {"m16n8k8"}
    assert set(whole) == {"m16n8k16"}
    assert len(halves) == 2 * len(whole) > 0
    assert found[0].count("ldmatrix.sync") == found[1].count("ldmatrix.sync") > 0


def test_devices_without_the_instruction_do_it_by_shuffles(compiler: CudaCompiler) -> None:
    done = compile_cuda(emit_c(split_kernels(big("bfloat16")), CUDA), "sm_75", compiler)
    assert done.warnings == ""
    s = tensor_cores(half_product(64, 64, 64, "float32"), tiles=(2, 2))
    text = emit_c(split_kernels(kernels(s.state, shuffles=True)), CUDA)
    assert compile_cuda(text, "sm_75", compiler).warnings == ""


def test_sums_are_exact_where_all_sums_are() -> None:
    """Small integers: any order of adding up gives the same, so an element that is out of place shows."""
    s = tensor_cores(half_product(64, 32, 48), warps=(2, 1), tiles=(2, 2))
    rng = np.random.default_rng(1)
    case = Case.of(s.state)
    a, b, c = case.arrays()
    a[...] = rng.integers(-8, 9, a.shape)
    b[...] = rng.integers(-8, 9, b.shape)
    run_cuda_on_host(kernels(s.state, shuffles=True), a, b, c)
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32))
