"""Hardware facts: the record's eight numbers, caches, and the number of cores a process may use."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansor.errors import DefinitionError, TargetError
from ansor.runtime import multiply_adds
from ansor.task import hardware, host, isa
from ansor.task.hardware import HardwareParams
from ansor.task.host import cgroup_quota, host_cache_line, host_caches
from ansor.task.isa import fma_ports, host_cpu_name, vector_bytes
from ansor.task.target import Target
from ansor.task.task import LayoutRewriteOption, Task
from measure.records.record import task_from_json, task_to_json


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
        (
            "opencl -device=mali -max_threads_per_block=64 -max_shared_memory_per_block=4096",
            [-1, 16, 64, 4096, 2147483647, 64, 1, 1],
        ),
        ("opencl -keys=mali -max_num_threads=64", [-1, 16, 64, 32768, 2147483647, 64, 1, 1]),
        (
            "opencl -device=adreno -max_local_memory_per_block=512 -thread_warp_size=64",
            [-1, 16, 64, 32768, 512, 256, 16, 64],
        ),
        ("metal -max_threads_per_block=512", [-1, 16, 64, 32768, 2147483647, 512, 2, 8]),
        ("llvm -num-cores=20 -mcpu=core-avx2", [20, 32, 64, 0, 0, 0, 0, 0]),
    ],
)
def test_parameters_of_targets(target: str, expected: list[int]) -> None:
    params = HardwareParams.for_target(Target(target))
    assert params.to_json() == expected
    assert HardwareParams.from_json(expected, Target(target)) == params


def test_a_limit_that_is_stated_counts_though_it_is_the_default_of_its_kind() -> None:
    bare, said = Target("metal"), Target("metal -max_num_threads=256")
    assert said == bare
    assert HardwareParams.for_target(bare).max_threads_per_block == 1024
    assert HardwareParams.for_target(said).max_threads_per_block == 256
    assert HardwareParams.for_target(Target(str(said))).max_threads_per_block == 1024


def test_parameters_of_this_machine() -> None:
    params = HardwareParams.for_target(Target("llvm"))
    assert params.num_cores >= 1
    assert params.vector_unit_bytes in (16, 32, 64)
    assert params.vector_registers in (16, 32)
    assert params == replace(params, **host_caches())


def test_malformed_parameters() -> None:
    with pytest.raises(TargetError, match="8 integers, found"):
        HardwareParams.from_json([1, 2], Target("llvm"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"l1_bytes": 32},
            r"HardwareParams\(l1_bytes=32\): caches are given in bytes, such as 32 << 10 for 32",
        ),
        ({"l3_bytes": 1.5}, r"HardwareParams\(l3_bytes\) must be an integer of at least -1, found 1.5"),
        ({"l2_bytes": -2}, r"HardwareParams\(l2_bytes\) must be an integer of at least -1, found -2"),
        ({"fma_ports": "two"}, r"HardwareParams\(fma_ports\) must be an integer of at least -1, found 'two'"),
        *(
            ({name: value}, rf"Params\({name}={value}\): must be a power of two of at least 4 bytes; 0")
            for name in ("vector_unit_bytes", "cache_line_bytes")
            for value in (1, 2, 7, 48)
        ),
        ({"vector_registers": 0}, r"\(vector_registers=0\): a core holds at least 2 vectors; leave them out"),
        ({"vector_registers": 1}, r"\(vector_registers=1\): a core holds at least 2 vectors"),
        (
            {"l1_bytes": 4096, "l2_bytes": 2048},
            r"\(l1_bytes=4096, l2_bytes=2048\): a cache must be at least as large as the one before it; 0",
        ),
        ({"l1_bytes": 4096, "l2_bytes": 0, "l3_bytes": 2048}, r"\(l1_bytes=4096, l3_bytes=2048\): a cache"),
        ({"l2_bytes": 4096, "l3_bytes": 2048}, r"\(l2_bytes=4096, l3_bytes=2048\): a cache"),
        ({"warp_size": -1}, r"HardwareParams\(warp_size\) must be an integer of at least 0, found -1"),
    ],
)
def test_numbers_out_of_range_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        HardwareParams(2, **fields)


def test_what_is_not_known_is_allowed() -> None:
    params = HardwareParams(2, 0, 0, l1_bytes=0, l1_ways=0, l2_bytes=0, l3_bytes=0, fma_ports=0)
    assert params.limits.vector_unit_bytes == 1 << 30
    assert params.cache_bytes == (0, 0, 0)
    assert HardwareParams(2, l1_bytes=4096, l2_bytes=4096, l3_bytes=0).cache_bytes == (4096, 4096, 4096)


def test_a_target_may_be_a_text() -> None:
    for text in ("llvm -num-cores=3", "cuda -arch=sm_80"):
        assert HardwareParams.for_target(text) == HardwareParams.for_target(Target(text))
    with pytest.raises(TargetError, match="unknown kind 'lvm'"):
        HardwareParams.for_target("lvm")


def test_records_of_odd_widths_are_read_and_kept_as_they_are() -> None:
    target = "llvm -mtriple=aarch64-linux-gnu"
    items = task_to_json(Task.create(None, '["f", 1]', target))
    items[2] = [3, 48, 100, 0, 0, 0, 0, 0]
    read = task_from_json(items)
    assert task_to_json(read) == items
    assert read.to_task().hardware_params == replace(HardwareParams.for_target(target), num_cores=3)


def test_what_is_not_said_is_that_of_the_target() -> None:
    target = Target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1")
    told = HardwareParams(3, l2_bytes=512 << 10, l3_bytes=0)
    known = HardwareParams.for_target(target)
    completed = told.completed(target)
    assert completed == replace(known, num_cores=3, l2_bytes=512 << 10, l3_bytes=0)
    assert completed.completed(target) == completed
    assert completed.cache_bytes == (known.l1_bytes, 512 << 10, 512 << 10)
    assert Task.create(None, "[]", target, hardware_params=told).hardware_params == completed


def test_code_has_the_registers_of_its_target() -> None:
    target = "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell"
    assert Task.create(None, "[]", target, hardware_params=HardwareParams(2, vector_registers=16))
    message = "HardwareParams.vector_registers=32.: code for `llvm .*-mcpu=haswell.*` has 16; leave them out"
    with pytest.raises(DefinitionError, match=message):
        Task.create(None, "[]", target, hardware_params=HardwareParams(2, vector_registers=32))


@pytest.mark.parametrize("target", ["llvm", "llvm -mtriple=aarch64-linux-gnu", "cuda -arch=sm_80", "opencl"])
def test_a_task_is_read_back_from_a_record_with_the_same_hardware(target: str) -> None:
    task = Task.create(None, '["f", 1]', target)
    read = task_from_json(json.loads(json.dumps(task_to_json(task))))
    assert read.hardware_params == task.hardware_params
    assert read.to_task().hardware_params == task.hardware_params
    assert hash(read.hardware_params) == hash(task.hardware_params)


def test_records_carry_the_eight_numbers_of_the_reference() -> None:
    """Other tools read them; so a record says nothing of caches, and whoever reads it has its target's."""
    told = HardwareParams(4, 64, 64, l2_bytes=4 << 20)
    task = Task.create(None, '["f", 1]', "llvm", hardware_params=told)
    items = task_to_json(task)
    assert items[2] == [4, 64, 64, 0, 0, 0, 0, 0]
    read = task_from_json(items).to_task().hardware_params
    assert read == HardwareParams(4, 64, 64).completed(Target("llvm"))


@pytest.mark.parametrize(
    ("target", "width", "registers"),
    [
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4", 64, 32),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver3", 32, 16),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512", 64, 32),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake", 32, 16),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=pantherlake", 32, 16),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=novalake", 64, 32),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64", 16, 16),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64 -mattr=+avx2", 32, 16),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -mattr=-avx512f", 32, 16),
        ("llvm -mtriple=aarch64-linux-gnu", 16, 32),
        ("llvm -mtriple=riscv64-linux-gnu", 16, 32),
    ],
)
def test_vector_registers(target: str, width: int, registers: int) -> None:
    params = HardwareParams.for_target(Target(target))
    assert (params.vector_unit_bytes, params.vector_registers) == (width, registers)
    assert vector_bytes(Target(target)) == width


@pytest.mark.parametrize(
    ("target", "ports"),
    [
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver5", 2),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4", 1),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -mattr=-avx512f", 2),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver1", 1),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=icelake-server", 2),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512", 0),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake", 0),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake", 2),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", 2),
        ("llvm -mtriple=aarch64-linux-gnu", 0),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3", 0),
    ],
)
def test_multiply_adds_per_cycle(target: str, ports: int) -> None:
    assert HardwareParams.for_target(Target(target)).fma_ports == ports


def test_this_machines_multiply_adds_are_those_of_its_name_or_measured() -> None:
    here, width = HardwareParams.for_target(Target("llvm")), vector_bytes(Target("llvm"))
    assert here.fma_ports == fma_ports(host_cpu_name(), width)
    assert known_ports("llvm") == (here.fma_ports or multiply_adds.measured_fma_ports(width))


@pytest.mark.parametrize(
    ("model", "matrix_unit", "name"),
    [
        ("rocketlake", True, "sapphirerapids"),
        ("graniterapids", True, "graniterapids"),
        ("rocketlake", False, "rocketlake"),
    ],
)
def test_a_cpu_whose_model_number_is_an_older_ones_is_named_after_its_instructions(
    model: str, matrix_unit: bool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: model)
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: {"amx-tile": matrix_unit})
    assert host_cpu_name.__wrapped__() == name


def known_ports(target: str) -> int:
    return multiply_adds.known_fma_ports(HardwareParams.for_target(Target(target)), Target(target))


def test_a_machine_that_says_nonsense_of_its_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"l1_bytes": 64 << 10, "l2_bytes": 32 << 10, "l3_bytes": 48 << 10}
    monkeypatch.setattr(hardware, "host_caches", lambda: told)
    hardware._known.cache_clear()
    assert HardwareParams.for_target("llvm").cache_bytes == (64 << 10, 64 << 10, 64 << 10)
    hardware._known.cache_clear()


def test_caches_that_nobody_tells_are_said_to_be_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hardware, "host_caches", dict)
    hardware._known.cache_clear()
    hardware._warn_of_no_caches.cache_clear()
    for target in ("llvm", "llvm -num-cores=3"):
        assert HardwareParams.for_target(target).cache_bytes == (32 << 10, 1 << 20, 8 << 20)
    (warning,) = caplog.messages
    assert "l1_bytes=32768, l2_bytes=1048576, l3_bytes=8388608 are taken" in warning
    hardware._known.cache_clear()


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose CPU LLVM does not know."""
    monkeypatch.setattr(isa, "host_cpu_name", lambda: "generic")
    hardware._known.cache_clear()
    yield
    hardware._known.cache_clear()


def test_multiply_adds_of_an_unknown_cpu_are_measured_if_it_is_this_one(
    monkeypatch: pytest.MonkeyPatch, nameless: None
) -> None:
    asked: list[int] = []

    def measured(vector_bytes: int) -> int:
        asked.append(vector_bytes)
        return 3

    monkeypatch.setattr(multiply_adds, "measured_fma_ports", measured)
    assert known_ports("llvm") == 3
    assert asked == [vector_bytes(Target("llvm"))]
    assert known_ports("llvm -mcpu=x86-64-v3") == 2
    assert known_ports("llvm -mtriple=riscv64-linux-gnu") == 2
    told = HardwareParams(1, fma_ports=4).completed(Target("llvm"))
    assert multiply_adds.known_fma_ports(told, Target("llvm")) == 4
    assert len(asked) == 1


def test_measured_multiply_adds_are_those_of_the_name() -> None:
    """Whatever else runs makes a measurement too low or, of the clock, too high: one of many is right."""
    widest = vector_bytes(Target("llvm"))
    for width in {16, widest // 2, widest} - {8}:
        named = fma_ports(host_cpu_name(), width)
        if not named:  # the name does not tell
            continue
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
    (tmp_path / "cpu0/cache/index0/coherency_line_size").write_text("0\n")
    assert host_cache_line(tmp_path) == 64


def test_the_variable_sets_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSOR_NUM_THREADS", "7")
    assert HardwareParams.for_target(Target("llvm")).num_cores == 7
    assert HardwareParams.for_target(Target("llvm -num-cores=3")).num_cores == 3
    monkeypatch.setenv("ANSOR_NUM_THREADS", "-1")
    with pytest.raises(TargetError, match="ANSOR_NUM_THREADS must be an integer from 1 to 1024, found '-1'"):
        host.default_num_threads()
    monkeypatch.delenv("ANSOR_NUM_THREADS")
    assert host.default_num_threads() == host.available_cores() >= 1


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
        (1, "Data", "48K", 12),
        (1, "Instruction", "32K", 8),
        (2, "Unified", "2048K", 16),
        (3, "Unified", "30M", 12),
    ]
    for number, (level, kind, size, ways) in enumerate(facts):
        folder = tmp_path / "cpu0" / "cache" / f"index{number}"
        folder.mkdir(parents=True)
        entries = {
            "level": level,
            "type": kind,
            "size": size,
            "ways_of_associativity": ways,
        }
        for name, value in entries.items():
            (folder / name).write_text(f"{value}\n")
    assert host_caches(tmp_path) == {
        "l1_bytes": 48 << 10,
        "l1_ways": 12,
        "l2_bytes": 2 << 20,
        "l3_bytes": 30 << 20,
    }
    assert host_caches(tmp_path / "none") == {}
    few = tmp_path / "few" / "cpu0" / "cache" / "index0"
    few.mkdir(parents=True)
    for name, text in (("level", "1"), ("type", "Data"), ("size", "64K")):
        (few / name).write_text(f"{text}\n")
    assert host_caches(tmp_path / "few") == {"l1_bytes": 64 << 10, "l3_bytes": 0}


@pytest.mark.parametrize(
    "odd",
    [
        *({"level": level} for level in ("0", "-1", "4", "")),
        *({"size": size} for size in ("512", "-32K", "0K", "K", "")),
        {"type": b"\xff"},
        {"size": b"\xff"},
    ],
)
def test_a_cache_of_which_nonsense_is_said_is_none(odd: dict[str, str | bytes], tmp_path: Path) -> None:
    folder = tmp_path / "cpu0" / "cache" / "index0"
    folder.mkdir(parents=True)
    usual = {"level": "1", "type": "Data", "size": "32K", "ways_of_associativity": "8"}
    for name, content in {**usual, **odd}.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert host_caches(tmp_path) == {}


@pytest.mark.parametrize("ways", ["-8", "many", b"\xff"])
def test_ways_of_which_nonsense_is_said_are_not_known(ways: str | bytes, tmp_path: Path) -> None:
    folder = tmp_path / "cpu0" / "cache" / "index0"
    folder.mkdir(parents=True)
    for name, content in (("level", "1"), ("type", "Data"), ("size", "32K"), ("ways_of_associativity", ways)):
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert host_caches(tmp_path) == {"l1_bytes": 32 << 10, "l3_bytes": 0}


@pytest.mark.parametrize("limit", ["50000 0", "50000 -1", "-1 -1", "50000", "-1 100000", "x y", b"\xff \xff"])
def test_a_quota_of_which_nonsense_is_said_is_none(limit: str | bytes, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_bytes(limit if isinstance(limit, bytes) else limit.encode())
    assert cgroup_quota("0::/", tmp_path) is None


@pytest.mark.skipif(sys.platform != "linux", reason="file names are texts elsewhere, and there are no groups")
def test_control_groups_may_have_any_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = os.fsdecode(b"caf\xe9")
    (tmp_path / name).mkdir()
    (tmp_path / name / "cpu.max").write_text("150000 100000")
    (tmp_path / "cgroup").write_bytes(b"0::/caf\xe9\n")
    monkeypatch.setattr(host, "_OWN_GROUPS", tmp_path / "cgroup")
    assert cgroup_quota(root=tmp_path) == 1.5


def test_tasks() -> None:
    task = Task.create(None, '["f", 1]', "llvm -num-cores=2", target_host="llvm", desc="f")
    assert task.target == Target("llvm -num-cores=2")
    assert task.hardware_params.num_cores == 2
    assert task.layout_rewrite_option is LayoutRewriteOption.NO_REWRITE
    assert task.key == ('["f", 1]', "llvm -keys=cpu -num-cores=2", 0)
    with pytest.raises(DefinitionError, match="was read from a log and has no definition here"):
        _ = task.compute_dag
