"""CUDA text to machine code, by whichever compilers are installed; no GPU is needed."""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ansor.codegen.c.cuda_compilers as compilers
from ansor.codegen.c import CUDA, emit_c, split_kernels
from ansor.codegen.c.compile import (
    Resources,
    checked_arch,
    compile_cubin,
    compile_cuda,
    compile_ptx,
    disassemble,
)
from ansor.codegen.c.cuda_compilers import CudaCompiler, Nvcc, Nvrtc, find_compiler, find_nvcc, find_nvrtc
from ansor.dtypes import DTYPES
from ansor.errors import BuildError, TargetError
from ansor.runtime.device.build import build_device
from ansor.task.target import Target
from tests.breadth_expressions import operators
from tests.device_laws import SEEDS, case_of_seed, products_of_seed
from tests.device_nests import gelu, matmul, oddly_named, together, vector_add
from tests.gpu_schedules import kernels
from tests.test_device_operators import elementwise
from tests.test_device_source import NESTS

PRODUCTS = 8
"""Seeds of what tensor cores multiply: one of each product there is."""
COMPILERS: dict[str, Callable[[], CudaCompiler | None]] = {"nvcc": find_nvcc, "nvrtc": find_nvrtc}


@pytest.fixture(params=COMPILERS)
def compiler(request: pytest.FixtureRequest) -> CudaCompiler:
    found = COMPILERS[request.param]()
    if found is None:
        pytest.skip(f"{request.param} is not installed")
    return found


@pytest.fixture(scope="module")
def every_operator_and_program() -> tuple[str, set[str]]:
    """CUDA text, and the names of its kernels."""
    nests = [elementwise(dtype, operators(dtype)) for dtype in DTYPES] + [nest() for nest in NESTS.values()]
    program = split_kernels(together(nests))
    return emit_c(program, CUDA), {kernel.name for kernel in program.kernels}


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_every_operator_and_program_compiles_without_a_warning(
    compiler: CudaCompiler, arch: str, every_operator_and_program: tuple[str, set[str]]
) -> None:
    text, names = every_operator_and_program
    done = compile_cuda(text, arch, compiler)
    assert done.warnings == ""
    assert {one.kernel for one in done.resources} == names
    assert done.data[:4] == b"\x7fELF"


@pytest.mark.slow
def test_every_sketch_of_the_catalogue_compiles_without_a_warning() -> None:
    """A program of each, of random sizes, drawn for CUDA: with copies ahead, and tensor cores.

    For the least architecture that has both: the text is the same for later ones.
    """
    arch, compiler = "sm_80", find_nvrtc() or find_nvcc()
    if compiler is None:
        pytest.skip("neither nvcc nor NVRTC is installed")
    cases = [case_of_seed(seed, f"cuda -arch={arch}") for seed in SEEDS]
    cases += [products_of_seed(seed) for seed in range(PRODUCTS)]
    drawn = [list(case.programs(space, 1)) for case in cases for space in case.spaces]
    assert all(drawn)
    program = split_kernels(together([kernels(state, shuffles=True) for (state,) in drawn]))
    text = emit_c(program, CUDA)
    assert all(
        text.count(used) > 1
        for used in ("ansor_commit_copies()", "ansor_mma_float32(", "ansor_mma_bfloat16(")
    )
    done = compile_cuda(text, arch, compiler)
    assert done.warnings == ""
    assert {one.kernel for one in done.resources} == {kernel.name for kernel in program.kernels}


def test_resources(compiler: CudaCompiler) -> None:
    done = compile_cuda(emit_c(split_kernels(matmul()), CUDA), "sm_90", compiler)
    (found,) = done.resources
    assert found.kernel == "matmul_kernel0"
    assert found.shared_bytes == 2 * 128 * 4
    assert 0 < found.registers <= 255
    assert (found.stack_bytes, found.spill_store_bytes, found.spill_load_bytes) == (0, 0, 0)


def test_any_name_compiles(compiler: CudaCompiler) -> None:
    assert compile_cuda(emit_c(split_kernels(oddly_named()), CUDA), "sm_90", compiler).warnings == ""


@pytest.mark.usefixtures("compiler")
def test_a_module_for_opencl_shows_ptx() -> None:
    nest = vector_add()
    module = build_device(nest, Target("opencl"), nest.name)
    assert ".visible .entry vector_add_kernel0" in module.get_source("ptx")


def test_ptx(compiler: CudaCompiler) -> None:
    text = compile_ptx(emit_c(split_kernels(vector_add()), CUDA), "sm_90", compiler)
    assert re.search(r"\.visible \.entry vector_add_kernel0\(", text)
    assert ".target sm_90" in text
    assert "\0" not in text


def test_a_vector_is_one_instruction(compiler: CudaCompiler) -> None:
    text = compile_ptx(emit_c(split_kernels(NESTS["relu"]()), CUDA), "sm_90", compiler)
    assert re.search(r"ld\.global\.nc\.v4\.[fbu]32", text)
    assert re.search(r"st\.global\.v4\.[fbu]32", text)


def test_sass() -> None:
    if not any(COMPILERS[name]() for name in COMPILERS):
        pytest.skip("neither nvcc nor NVRTC is installed")
    cubin = compile_cubin(emit_c(split_kernels(vector_add()), CUDA), "sm_90")
    if not any(compilers.tool_path(name) for name in ("nvdisasm", "cuobjdump")):
        pytest.skip("neither nvdisasm nor cuobjdump is installed")
    assert "FADD" in disassemble(cubin)


# -- what is refused ---------------------------------------------------------------------------------


def test_text_that_is_not_cuda(compiler: CudaCompiler) -> None:
    with pytest.raises(BuildError) as refused:
        compile_cubin("__device__ float f(int x) {\n  return y;\n}\n", "sm_90", compiler)
    lines = str(refused.value).splitlines()
    assert lines[0] == f"{compiler.name} refuses the generated code for sm_90:"
    assert lines[1].startswith('kernels.cu(2): error: identifier "y" is undefined')


def test_an_architecture_that_the_compiler_does_not_know(compiler: CudaCompiler) -> None:
    with pytest.raises(BuildError, match="compiles nothing for sm_20; let -arch of the target name"):
        compile_cubin("", "sm_20", compiler)


def test_names_of_architectures() -> None:
    assert checked_arch("sm_90a") == "sm_90a"
    with pytest.raises(TargetError, match="'turing' is no CUDA architecture; use"):
        checked_arch("turing")
    with pytest.raises(TargetError, match="no CUDA architecture"):
        compile_cuda("", "-o /etc/passwd")


def test_without_any_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    monkeypatch.setattr(compilers, "_in_wheels", lambda pattern: [])
    monkeypatch.setattr(compilers, "_TOOLKIT", tmp_path)
    find_nvcc.cache_clear()
    find_nvrtc.cache_clear()
    try:
        with pytest.raises(BuildError, match=r"pip install nvidia-cuda-nvrtc\) or NVIDIA's CUDA toolkit"):
            find_compiler()
        with pytest.raises(BuildError, match="install the wheel nvidia-cuda-nvdisasm"):
            disassemble(b"")
    finally:
        find_nvcc.cache_clear()
        find_nvrtc.cache_clear()


def test_what_nvrtc_opens_later_is_loaded_before_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In the wheel of CUDA 13.0 it lies beside NVRTC, which looks for it elsewhere only."""
    folder = tmp_path / "cu13" / "lib"
    folder.mkdir(parents=True)
    for name in ("nvrtc", "nvrtc-builtins", "nvrtc.alt", "nvrtc-builtins.alt"):
        (folder / f"lib{name}.so.13").touch()
    loaded: list[str] = []
    monkeypatch.setattr(compilers, "_in_wheels", lambda pattern: sorted(tmp_path.glob(pattern)))
    monkeypatch.setattr(ctypes, "CDLL", lambda path: loaded.append(Path(path).name))
    find_nvrtc.cache_clear()
    try:
        assert isinstance(find_nvrtc(), Nvrtc)
    finally:
        find_nvrtc.cache_clear()
    assert loaded == ["libnvrtc-builtins.so.13", "libnvrtc.so.13"]


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_compiler_that_does_not_end_is_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compilers, "TIMEOUT", 0.2)
    with pytest.raises(BuildError, match=r"nvcc took more than 0.2 s"):
        compile_cubin("", "sm_90", Nvcc(script(tmp_path / "nvcc", "exec sleep 60")))


def test_compilers_tell_their_version(compiler: CudaCompiler) -> None:
    assert isinstance(compiler, Nvcc | Nvrtc)
    assert compiler.release >= 11


def test_what_is_compiled_again_is_told_of_again(compiler: CudaCompiler) -> None:
    """Drivers keep what NVRTC compiled, so that this shows something where there is a driver."""
    text = emit_c(split_kernels(vector_add()), CUDA)
    first, again = (compile_cuda(text, "sm_90", compiler) for _ in range(2))
    assert [one.kernel for one in first.resources] == ["vector_add_kernel0"]
    assert first == again


@pytest.mark.parametrize(("version", "asked"), [((12, 8), False), ((12, 9), True), ((13, 0), True)])
def test_nvrtc_that_knows_of_a_cache_leaves_it_alone(version: tuple[int, int], asked: bool) -> None:
    """An older one would refuse the option."""
    found: list[bytes] = []

    class Library:
        def nvrtcVersion(self, major: Any, minor: Any) -> int:
            major._obj.value, minor._obj.value = version
            return 0

        def nvrtcCompileProgram(self, program: object, count: int, options: Any) -> int:
            found.extend(options[:count])
            return 0

        def __getattr__(self, name: str) -> Callable[..., int]:
            return lambda *arguments: 0

    Nvrtc("", Library()).compile("", "sm_90", "cubin")
    assert (b"--no-cache" in found) is asked


def test_the_version_of_nvcc_is_read(tmp_path: Path) -> None:
    said = "Cuda compilation tools, release 12.8, V12.8.93"
    assert Nvcc(script(tmp_path / "nvcc", f"echo '{said}'")).release == 12
    assert Nvcc(script(tmp_path / "other", "echo nothing")).release == 0


def test_the_report_of_several_kernels() -> None:
    """As older and newer compilers write it."""

    class Quoting:
        name = "quoting"

        def compile(self, text: str, arch: str, form: str) -> tuple[bytes, str]:
            return b"", text

    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Function properties for first
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 4096 bytes smem, 380 bytes cmem[0]
ptxas info    : Compile time = 5.000 ms
kernels.cu(3): warning #177-D: variable "x" was declared but never referenced
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 6 registers, 344 bytes cmem[0]
"""
    done = compile_cuda(log, "sm_90", Quoting())
    assert done.resources == (Resources("first", 32, 4096, 8, 4, 12), Resources("second", 6))
    assert done.warnings == 'kernels.cu(3): warning #177-D: variable "x" was declared but never referenced'


def test_halves_are_converted_by_instructions(compiler: CudaCompiler) -> None:
    for dtype, old, new in (("float16", "sm_80", "sm_90"), ("bfloat16", "sm_90", "sm_80")):
        for arch in (old, new):
            text = compile_ptx(emit_c(split_kernels(gelu(dtype)), CUDA), arch, compiler)
            assert f"cvt.rn.{'f16' if dtype == 'float16' else 'bf16'}.f32" in text
