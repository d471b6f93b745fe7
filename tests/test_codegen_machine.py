"""Machines, compiling, and code for another architecture."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.codegen import probes
from ansor.codegen.compile import assembly, compile_ir
from ansor.codegen.llvm import emit_llvm
from ansor.codegen.machine import Machine
from ansor.errors import BuildError, TargetError
from ansor.ir.interp import run_nest
from ansor.ir.nest import Buffer, For, LoopKind, LoopNest, Store, seq
from ansor.te.expr import BinaryOp, Load, Var, binary, call, cast, const, select

X86 = "x86_64-unknown-linux-gnu"
ARM = "aarch64-linux-gnu"


@pytest.mark.parametrize(
    ("triple", "cpu", "features", "bits", "registers", "fma", "masks", "f16"),
    [
        (X86, "x86-64", "", 128, 16, False, False, False),
        (X86, "haswell", "", 256, 16, True, True, True),
        (X86, "haswell", "-fma", 256, 16, False, True, True),
        (X86, "x86-64-v4", "", 512, 32, True, True, True),
        (X86, "sapphirerapids", "", 512, 32, True, True, True),
        (ARM, "generic", "", 128, 32, True, False, True),
    ],
)
def test_facts_follow_cpu_and_features(
    triple: str, cpu: str, features: str, bits: int, registers: int, fma: bool, masks: bool, f16: bool
) -> None:
    m = Machine.of(triple, cpu, features)
    found = (m.vector_bits, m.num_registers, m.has_fma, m.has_masks, m.has_f16_conversion)
    assert found == (bits, registers, fma, masks, f16)
    assert Machine.from_json(json.loads(json.dumps(m.to_json()))) == m


def test_llvm_is_asked_once_for_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine.for_target("llvm -num-cores=3")

    def asked() -> str:
        raise AssertionError("asked again")

    monkeypatch.setattr("ansor.codegen.machine.host_cpu_name", asked)
    assert Machine.for_target("llvm -num-cores=3") is machine


def test_targets_name_machines() -> None:
    host = Machine.host()
    assert Machine.for_target(None) == host
    assert Machine.for_target("llvm") == host
    assert Machine.for_target("llvm -mcpu=native") == host
    arm = Machine.for_target("llvm -mtriple=aarch64-linux-gnu")
    assert (arm.arch, arm.cpu) == ("aarch64", "generic")
    assert Machine.for_target("llvm -mtriple=aarch64-linux-gnu -mattr=+fullfp16").has_f16_arithmetic
    if host.arch == "x86_64":
        assert Machine.for_target("llvm -mcpu=haswell").vector_bits == 256
        assert not Machine.for_target("llvm -mattr=-avx512f,-avx2,-avx,-fma").has_fma
    with pytest.raises(TargetError, match="not a CPU"):
        Machine.for_target("cuda")
    with pytest.raises(TargetError, match="no target for the triple"):
        Machine.of("nonsense-none-none", "generic")
    for _ in range(2):
        with pytest.raises(TargetError, match=r"zen99.*not a recognized processor"):
            Machine.of(X86, "zen99")
    with pytest.raises(TargetError, match="not a recognized feature"):
        Machine.of(X86, "haswell", "+warp")


@pytest.mark.parametrize(
    ("options", "calls", "flags"),
    [
        ("", False, 0x5),
        ("-mattr=+zba", False, 0x5),
        ("-mattr=-d,-f", True, 0x1),
        ("-mcpu=generic-rv64", True, 0x0),
    ],
)
def test_riscv64_computes_with_floats_unless_told_otherwise(options: str, calls: bool, flags: int) -> None:
    """`flags` are those of the object file: 1 for compressed instructions, 4 for doubles in registers."""
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] * 3.0, name="B")
    module = ansor.build(te.create_schedule(b), [a, b], target=f"llvm -mtriple=riscv64-linux-gnu {options}")
    assert ("__mulsf3" in module.get_source("asm")) == calls
    assert int.from_bytes(module.object_bytes[48:52], "little") == flags


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("arch", ["powerpc64le", "s390x", "loongarch64", "mips64"])
def test_there_is_code_for_architectures_that_nothing_is_known_of(arch: str, dtype: str) -> None:
    a = te.placeholder((64,), dtype, name="A")
    b = te.compute((64,), lambda i: a[i] * te.const(3.0, dtype), name="B")
    module = ansor.build(te.create_schedule(b), [a, b], target=f"llvm -mtriple={arch}-linux-gnu", name="f")
    assert "f:" in module.get_source("asm")


def test_invalid_ir_is_reported_with_its_lines() -> None:
    text = "define void @f() {\n  %x = add i32 1, 2.5\n  ret void\n}\n"
    with pytest.raises(BuildError, match=r">     2 \|   %x = add i32 1, 2.5"):
        compile_ir(text, Machine.host())
    unverifiable = "define void @f() {\na:\n  %y = add i32 %x, 1\n  %x = add i32 1, 1\n  ret void\n}\n"
    with pytest.raises(BuildError, match="dominate"):
        assembly(unverifiable, Machine.host())


def sample() -> LoopNest:
    """Vectors, masks, a choice, mathematics, integer division, a 16-bit float, a parallel loop."""
    n = 100
    x, h = Buffer("x", "float32", (n,)), Buffer("h", "float16", (n,))
    out, ints = Buffer("out", "float32", (n,)), Buffer("ints", "int32", (n,))
    p, j = Var("p"), Var("j")
    i = p * 25 + j
    odd = binary(BinaryOp.EQ, binary(BinaryOp.FLOORMOD, i, 2), 1)
    shifted = select(
        binary(BinaryOp.GE, i, 3), Load(x, (i - 3,), "float32"), const(0.5, "float32"), lazy=True
    )
    half = Load(h, (i,), "float16")
    halves = cast(call("tanh", half) * half + call("floor", half), "float32")
    value = select(odd, call("exp", Load(x, (i,), "float32")), shifted * halves)
    number = binary(BinaryOp.FLOORDIV, i * 7 - 300, 9)
    body = seq(Store(out, (i,), value), Store(ints, (i,), number))
    nest = For(p, 4, LoopKind.PARALLEL, For(j, 25, LoopKind.VECTORIZED, body))
    return LoopNest("sample", (x, h, out, ints), (), nest, (2, 3))


@pytest.mark.parametrize(
    ("wanted", "other", "lacking"),
    [
        ("haswell", "skylake", ""),
        ("skylake", "znver3", ""),
        ("skylake", "haswell", ""),
        ("znver4", "znver3", "znver4 has vectors of 512 bits, this CPU of 256"),
        (
            "sapphirerapids",
            "znver4",
            "sapphirerapids has instructions for f16 arithmetic, tdpbf16ps, tdpbusd, tdpbssd, "
            "tdpbuud, this CPU has not",
        ),
        ("znver4", "skylake-avx512", "znver4 has instructions for vpdpbusd, vdpbf16ps, this CPU has not"),
        ("x86-64", "znver4", ""),
    ],
)
def test_what_one_cpu_has_and_another_has_not(wanted: str, other: str, lacking: str) -> None:
    assert Machine.of(X86, wanted, "").beyond(Machine.of(X86, other, "")) == lacking


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs the system's list of open files")
def test_threads_that_ask_for_machines_leave_standard_error_as_it_is() -> None:
    """LLVM's complaints are read there, by one thread at a time."""
    before = os.readlink("/proc/self/fd/2")
    with ThreadPoolExecutor(8) as executor:
        names = [*("haswell", "znver3", "skylake", "x86-64-v4"), "znver4", "x86-64"] * 4
        list(executor.map(lambda name: probes.compiled_probes(X86, name, ""), names))
    assert os.readlink("/proc/self/fd/2") == before


def test_standard_error_has_what_is_no_complaint_of_llvm(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What another thread writes while LLVM is asked; its complaints are in the error alone."""
    ask = probes.new_target_machine

    def meanwhile(triple: str, cpu: str, features: str) -> object:
        os.write(2, b"one thing\n")
        made = ask(triple, cpu, features)
        os.write(2, b"another")
        return made

    monkeypatch.setattr(probes, "new_target_machine", meanwhile)
    probes.compiled_probes(X86, "haswell", "")
    assert capfd.readouterr().err == "one thing\nanother"
    with pytest.raises(TargetError, match="'no-such-cpu' is not a recognized processor"):
        probes.compiled_probes(X86, "no-such-cpu", "")
    assert capfd.readouterr().err == "one thing\nanother"


def test_threads_compile_for_several_machines_at_a_time() -> None:
    machines = [Machine.of(X86, cpu) for cpu in ("x86-64", "haswell", "x86-64-v4")]
    texts = [emit_llvm(sample(), machine) for machine in machines]
    first = [compile_ir(*pair) for pair in zip(texts, machines, strict=True)]
    assert len(set(first)) == len(machines)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(compile_ir, 8 * texts, 8 * machines)) == 8 * first


DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
void sample(void *x, void *h, void *out, void *ints);
void ansor_parallel_for(void (*body)(void *, int, int), void *data, int most) {
  for (int t = 0; t < 3; t++) body(data, t, 3);
}
void *ansor_alloc(long n) { return aligned_alloc(64, (n + 63) / 64 * 64); }
void ansor_free(void *p) { free(p); }
int main(void) {
  char x[400], h[200], out[400], ints[400];
  if (fread(x, 1, 400, stdin) != 400 || fread(h, 1, 200, stdin) != 200) return 1;
  sample(x, h, out, ints);
  fwrite(out, 1, 400, stdout);
  fwrite(ints, 1, 400, stdout);
  return 0;
}
"""


@pytest.mark.parametrize("features", ["", "+fullfp16"])
def test_code_for_aarch64_runs_under_qemu(features: str, tmp_path: Path) -> None:
    gcc, qemu = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
    if gcc is None or qemu is None:
        pytest.skip("needs gcc-aarch64-linux-gnu and qemu-user")
    nest, machine = sample(), Machine.of(ARM, "generic", features)
    (tmp_path / "k.o").write_bytes(compile_ir(emit_llvm(nest, machine), machine))
    (tmp_path / "main.c").write_text(DRIVER)
    program = tmp_path / "main"
    subprocess.run([gcc, "-static", "-o", program, tmp_path / "main.c", tmp_path / "k.o", "-lm"], check=True)
    rng = np.random.default_rng(0)
    x, h = rng.normal(size=100).astype(np.float32), rng.normal(size=100).astype(np.float16)
    done = subprocess.run([qemu, program], input=x.tobytes() + h.tobytes(), capture_output=True, check=True)
    out, ints = np.frombuffer(done.stdout[:400], np.float32), np.frombuffer(done.stdout[400:], np.int32)
    expected, numbers = np.zeros(100, np.float32), np.zeros(100, np.int32)
    run_nest(nest, [x, h, expected, numbers])
    # Native half arithmetic may fuse the multiplication and the addition.
    np.testing.assert_allclose(out, expected, rtol=1e-2 if features else 2e-7, atol=1e-3 if features else 0)
    np.testing.assert_array_equal(ints, numbers)


@pytest.mark.parametrize(
    ("triple", "cpu", "features", "unit"),
    [
        (X86, "sapphirerapids", "", {"tdpbf16ps", "tdpbusd", "tdpbssd", "tdpbuud"}),
        (X86, "x86-64-v4", "+amx-tile,+amx-bf16", {"tdpbf16ps"}),
        (X86, "emeraldrapids", "-amx-int8", {"tdpbf16ps"}),
        (X86, "graniterapids", "-amx-tile", set()),
        (X86, "znver5", "", set()),
        ("x86_64-unknown-freebsd", "sapphirerapids", "", set()),
    ],
)
def test_matrix_units_are_those_of_a_name_or_of_features(
    triple: str, cpu: str, features: str, unit: set[str]
) -> None:
    """Where the system is known to let processes use them."""
    assert Machine.of(triple, cpu, features).matrix_unit == unit
