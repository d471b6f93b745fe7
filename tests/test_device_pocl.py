"""PoCL 3.0 on CPUs that it does not know is given a name that it knows; nobody else is."""

from __future__ import annotations

import ctypes
import types
from pathlib import Path

import pytest

from ansor.errors import TargetError
from ansor.knobs import POCL_CPU
from ansor.runtime.device import pocl
from ansor.runtime.device.pocl import cpu_flags, known_name, name_cpu

HASWELL = {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm"}
needs_memory = pytest.mark.skipif(
    not Path("/proc/self/mem").exists(), reason="only Linux shows a process its memory"
)


class FakeDevice:
    """A description in memory as PoCL 3.0's, and what OpenCL tells of it."""

    max_work_group_size = 4096
    global_mem_size = 1 << 33
    local_mem_size = 1 << 20
    vendor = "a vendor"

    def __init__(
        self,
        cpu: str = "generic",
        platform: str = pocl.PLATFORM,
        target: str = "x86_64-unknown-linux-gnu",
        release: str = "3.0",
    ) -> None:
        self.words = (ctypes.c_uint64 * (pocl.DESCRIPTION_BYTES // 8))()
        self.texts = [
            ctypes.create_string_buffer(text.encode()) for text in (release, target, cpu, self.vendor)
        ]
        self.words[pocl.MAX_WORK_GROUP_SIZE // 8] = self.max_work_group_size
        self.words[pocl.GLOBAL_MEM_SIZE // 8] = self.global_mem_size
        self.words[pocl.LOCAL_MEM_SIZE // 8] = self.local_mem_size
        places = (pocl.DRIVER_VERSION, pocl.TRIPLE, pocl.CPU, pocl.VENDOR)
        for offset, text in zip(places, self.texts, strict=True):
            self.words[offset // 8] = ctypes.addressof(text)
        self.int_ptr = ctypes.addressof(self.words)
        self.platform = types.SimpleNamespace(name=platform)
        self.name = "pthread-fake"
        self.driver_version = release
        self.version = f"OpenCL 3.0 PoCL HSTR: pthread-{target}-{cpu}"

    @property
    def cpu(self) -> bytes | None:
        return ctypes.cast(self.words[pocl.CPU // 8], ctypes.c_char_p).value


@pytest.fixture(autouse=True)
def _flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pocl.platform, "system", lambda: "Linux")
    monkeypatch.setattr(pocl, "cpu_flags", lambda: HASWELL)
    monkeypatch.delenv(POCL_CPU, raising=False)


@needs_memory
def test_an_unknown_cpu_is_given_the_name_of_one_with_its_instructions() -> None:
    device = FakeDevice()
    name_cpu(device)
    assert device.cpu == b"haswell"
    assert device.texts[2].value == b"generic"
    name_cpu(device)
    assert device.cpu == b"haswell"


@needs_memory
def test_a_variable_chooses_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(POCL_CPU, "x86-64")
    device = FakeDevice()
    name_cpu(device)
    assert device.cpu == b"x86-64"


@pytest.mark.parametrize(
    "device",
    [
        FakeDevice("znver3"),
        FakeDevice(platform="NVIDIA CUDA"),
        FakeDevice(target="aarch64-unknown-linux-gnu"),
        FakeDevice(release="3.1"),
        FakeDevice(release="3.0.1"),
    ],
    ids=["known", "another platform", "another architecture", "a later version", "a patched version"],
)
def test_others_stay_as_they_are(monkeypatch: pytest.MonkeyPatch, device: FakeDevice) -> None:
    before = device.cpu
    name_cpu(device)
    assert device.cpu == before
    monkeypatch.setenv(POCL_CPU, "haswell")
    name_cpu(device)
    assert device.cpu == before


@needs_memory
@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (pocl.LOCAL_MEM_SIZE, 1, "at 416 is 1, not 1048576"),
        (pocl.VENDOR, 1, "at 560 is the text None, not .a vendor"),
        (pocl.MAX_WORK_GROUP_SIZE, 8192, "at 144 is 8192, not 4096"),
        (pocl.GLOBAL_MEM_SIZE, 0, "at 376 is 0"),
        (pocl.DRIVER_VERSION, 0, "at 568 is the text None, not '3.0'"),
        (pocl.TRIPLE, 2**62, "at 632 is the text None"),
        (pocl.CPU, 0, "at 640 is the text None, not 'generic'"),
        (pocl.CPU, 2**64 - 8, "at 640 is the text None, not 'generic'"),
    ],
)
def test_a_description_that_looks_otherwise_is_not_touched(offset: int, value: int, message: str) -> None:
    device = FakeDevice()
    device.words[offset // 8] = value
    before = list(device.words)
    with pytest.raises(TargetError, match=f"not as expected: {message}"):
        name_cpu(device)
    assert list(device.words) == before


@needs_memory
def test_what_cannot_be_read_or_is_no_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice()
    device.int_ptr = 4096
    with pytest.raises(TargetError, match="the system does not show its memory"):
        name_cpu(device)
    for name in ("has well", "-o", "a/../b"):
        monkeypatch.setenv(POCL_CPU, name)
        with pytest.raises(TargetError, match=r"is no name of a CPU; use e\.g\. haswell"):
            name_cpu(FakeDevice())


def test_names_go_by_instructions(tmp_path: Path) -> None:
    assert known_name(set()) == "x86-64"
    assert known_name({"avx2", "fma"}) == "x86-64"
    zen = HASWELL | {"avx512f", "avx512bw", "avx512cd", "avx512dq"}
    assert known_name(zen) == "haswell"
    assert known_name(zen | {"avx512vl", "clwb", "pku", "adx"}) == "skylake-avx512"
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nflags\t\t: fpu avx2 fma\nbugs\t\t:\n")
    assert cpu_flags(tmp_path / "cpuinfo") == {"fpu", "avx2", "fma"}
    assert cpu_flags(tmp_path / "none") == set()
