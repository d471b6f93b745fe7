"""Hardware facts: the record's eight numbers, caches, and the number of cores a process may use."""

from pathlib import Path

import llvmlite.binding
import pytest

from ansor.errors import DefinitionError, TargetError
from ansor.runtime import multiply_adds
from ansor.task import hardware
from ansor.task.hardware import (
    HardwareParams,
    MachineModel,
    cgroup_quota,
    fma_ports,
    host_cache_line,
    host_caches,
    vector_bytes,
)
from ansor.task.target import Target
from ansor.task.task import LayoutRewriteOption, Task


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("cuda", [-1, 16, 64, 49152, 2147483647, 1024, 8, 32]),
        ("cuda -arch=sm_61", [-1, 16, 64, 48 * 1024, 2147483647, 1024, 8, 32]),
        ("cuda -arch=sm_75", [-1, 16, 64, 64 * 1024, 2147483647, 1024, 8, 32]),
        ("cuda -arch=sm_80", [-1, 16, 64, 163 * 1024, 2147483647, 1024, 8, 32]),
        ("cuda -arch=sm_86", [-1, 16, 64, 99 * 1024, 2147483647, 1024, 8, 32]),
        ("cuda -arch=sm_90a", [-1, 16, 64, 227 * 1024, 2147483647, 1024, 8, 32]),
        ("cuda -arch=sm_90 -max_shared_memory_per_block=9", [-1, 16, 64, 9, 2147483647, 1024, 8, 32]),
        (
            "cuda -max_shared_memory_per_block=99 -max_threads_per_block=512",
            [-1, 16, 64, 99, 2147483647, 512, 8, 32],
        ),
        ("metal", [-1, 16, 64, 32768, 2147483647, 1024, 2, 8]),
        ("opencl -device=mali", [-1, 16, 64, 32768, 2147483647, 256, 1, 1]),
        ("opencl -device=adreno", [-1, 16, 64, 32768, 32768, 256, 1, 1]),
        ("llvm -num-cores=20 -mcpu=core-avx2", [20, 32, 64, 0, 0, 0, 0, 0]),
    ],
)
def test_parameters_of_targets(target: str, expected: list[int]) -> None:
    params = HardwareParams.for_target(Target(target))
    assert params.to_json() == expected
    assert HardwareParams.from_json(expected) == params


def test_parameters_of_this_machine() -> None:
    params = HardwareParams.for_target(Target("llvm"))
    assert params.num_cores >= 1
    assert params.vector_unit_bytes in (16, 32, 64)


def test_malformed_parameters() -> None:
    with pytest.raises(TargetError, match="8 integers, found"):
        HardwareParams.from_json([1, 2])


@pytest.mark.parametrize(
    ("target", "width", "registers"),
    [
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4", 64, 32),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver3", 32, 16),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512", 64, 32),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake", 32, 16),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64", 16, 16),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64 -mattr=+avx2", 32, 16),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -mattr=-avx512f", 32, 16),
        ("llvm -mtriple=aarch64-linux-gnu", 16, 32),
        ("llvm -mtriple=riscv64-linux-gnu", 16, 32),
    ],
)
def test_vector_registers(target: str, width: int, registers: int) -> None:
    model = MachineModel.for_target(Target(target))
    assert (model.vector_bytes, model.vector_registers) == (width, registers)
    assert vector_bytes(Target(target)) == width


@pytest.mark.parametrize(
    ("target", "ports"),
    [
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver5", 2),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4", 1),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -mattr=-avx512f", 2),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver1", 1),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512", 2),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=icelake-server", 2),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", 2),
        ("llvm -mtriple=aarch64-linux-gnu", 0),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3", 0),
    ],
)
def test_multiply_adds_per_cycle(target: str, ports: int) -> None:
    assert MachineModel.for_target(Target(target)).fma_ports == ports


def test_this_machines_multiply_adds_are_those_of_its_name_or_measured() -> None:
    here = MachineModel.for_target(Target("llvm"))
    assert here.fma_ports == fma_ports(llvmlite.binding.get_host_cpu_name(), here.vector_bytes)
    known = multiply_adds.core_model(Target("llvm")).fma_ports
    assert known == (here.fma_ports or multiply_adds.measured_fma_ports(here.vector_bytes))


def test_multiply_adds_of_an_unknown_cpu_are_measured_if_it_is_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def measured(vector_bytes: int) -> int:
        asked.append(vector_bytes)
        return 3

    monkeypatch.setattr(multiply_adds, "measured_fma_ports", measured)
    monkeypatch.setattr(llvmlite.binding, "get_host_cpu_name", lambda: "generic")
    here = multiply_adds.core_model(Target("llvm"))
    assert here.fma_ports == 3
    assert asked == [here.vector_bytes]
    assert multiply_adds.core_model(Target("llvm -mcpu=x86-64-v3")).fma_ports == 2
    assert multiply_adds.core_model(Target("llvm -mtriple=riscv64-linux-gnu")).fma_ports == 2
    assert len(asked) == 1


def test_measured_multiply_adds_are_those_of_the_name() -> None:
    """Whatever else runs makes a measurement too low or, of the clock, too high: one of many is right."""
    widest = MachineModel.for_target(Target("llvm")).vector_bytes
    for width in {16, widest // 2, widest} - {8}:
        named = fma_ports(llvmlite.binding.get_host_cpu_name(), width)
        if not named:
            pytest.skip("the CPU's name is not known")
        found = (round(multiply_adds.multiply_adds_per_cycle(width)) for _ in range(20))
        assert any(count == named for count in found), width


@pytest.mark.parametrize("rate", [0.3, 0.49, 1.2])
def test_a_machine_starts_at_least_one_multiply_add(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiply_adds, "multiply_adds_per_cycle", lambda width: rate)
    assert multiply_adds.measured_fma_ports.__wrapped__(32) == 1


def test_cache_line(tmp_path: Path) -> None:
    assert host_cache_line(tmp_path) == 64
    (tmp_path / "cpu0/cache/index0").mkdir(parents=True)
    (tmp_path / "cpu0/cache/index0/coherency_line_size").write_text("128\n")
    assert host_cache_line(tmp_path) == 128


def test_the_variable_sets_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSOR_NUM_THREADS", "7")
    assert HardwareParams.for_target(Target("llvm")).num_cores == 7
    assert HardwareParams.for_target(Target("llvm -num-cores=3")).num_cores == 3
    monkeypatch.setenv("ANSOR_NUM_THREADS", "-1")
    with pytest.raises(TargetError, match="ANSOR_NUM_THREADS must be a positive integer, found '-1'"):
        hardware.default_num_threads()
    monkeypatch.delenv("ANSOR_NUM_THREADS")
    assert hardware.default_num_threads() == hardware.available_cores() >= 1


def test_quota_of_control_groups(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000\n")
    assert cgroup_quota("0::/a/b", tmp_path) is None
    (tmp_path / "a" / "cpu.max").write_text("250000 100000\n")
    assert cgroup_quota("0::/a/b", tmp_path) == 2.5
    (inner / "cpu.max").write_text("50000 100000\n")
    assert cgroup_quota("0::/a/b", tmp_path) == 0.5
    old = tmp_path / "cpu,cpuacct" / "x"
    old.mkdir(parents=True)
    (old / "cpu.cfs_quota_us").write_text("-1\n")
    (old / "cpu.cfs_period_us").write_text("100000\n")
    text = "3:memory:/x\n2:cpu,cpuacct:/x\n"
    assert cgroup_quota(text, tmp_path) is None
    (old / "cpu.cfs_quota_us").write_text("150000\n")
    assert cgroup_quota(text, tmp_path) == 1.5
    assert cgroup_quota("", tmp_path) is None


def test_caches(tmp_path: Path) -> None:
    facts = [
        (1, "Data", "48K", 12, "0"),
        (1, "Instruction", "32K", 8, "0"),
        (2, "Unified", "2048K", 16, "0"),
        (3, "Unified", "30M", 12, "0-3,8,10-11"),
    ]
    for number, (level, kind, size, ways, shared) in enumerate(facts):
        folder = tmp_path / "cpu0" / "cache" / f"index{number}"
        folder.mkdir(parents=True)
        entries = {
            "level": level,
            "type": kind,
            "size": size,
            "ways_of_associativity": ways,
            "shared_cpu_list": shared,
        }
        for name, value in entries.items():
            (folder / name).write_text(f"{value}\n")
    model = MachineModel(**host_caches(tmp_path))
    assert (model.l1_bytes, model.l1_ways, model.l2_bytes) == (48 << 10, 12, 2 << 20)
    assert (model.l3_bytes, model.l3_ways, model.l3_sharers) == (30 << 20, 12, 7)
    assert host_caches(tmp_path / "none") == {}


def test_tasks() -> None:
    task = Task.create(None, '["f", 1]', "llvm -num-cores=2", target_host="llvm", desc="f")
    assert task.target == Target("llvm -num-cores=2")
    assert task.hardware_params.num_cores == 2
    assert task.layout_rewrite_option is LayoutRewriteOption.NO_REWRITE
    assert task.key == ('["f", 1]', "llvm -keys=cpu -num-cores=2", 0)
    with pytest.raises(DefinitionError, match="was read from a log and has no definition here"):
        _ = task.compute_dag
