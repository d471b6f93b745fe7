"""PoCL on CPUs that it does not know: which name they are given, and who is left alone."""

from __future__ import annotations

import ctypes
import types
from pathlib import Path

import pytest

from ansor.runtime.device import pocl
from ansor.runtime.device.pocl import cpu_flags, known_name, name_cpu


class FakeDevice:
    """A description in memory that points to a name, as PoCL's does."""

    def __init__(
        self, name: bytes, platform: str = pocl.PLATFORM, target: str = "x86_64-unknown-linux-gnu"
    ) -> None:
        self.text = ctypes.create_string_buffer(name)
        self.words = (ctypes.c_void_p * 300)()
        self.words[40], self.words[41] = 8, 2**62  # no addresses
        self.words[80] = ctypes.addressof(self.text)
        self.int_ptr = ctypes.addressof(self.words)
        self.platform = types.SimpleNamespace(name=platform)
        self.version = f"OpenCL 3.0 PoCL HSTR: pthread-{target}-{name.decode()}"

    @property
    def name(self) -> bytes:
        found = ctypes.cast(self.words[80], ctypes.c_char_p).value
        assert found is not None
        return found


@pytest.fixture(autouse=True)
def _flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pocl.platform, "system", lambda: "Linux")
    monkeypatch.setattr(pocl, "cpu_flags", lambda: {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm"})


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="only Linux shows a process its memory")
def test_an_unknown_cpu_is_given_the_name_of_one_that_it_can_stand_for() -> None:
    device = FakeDevice(b"generic")
    name_cpu(device)
    assert device.name == b"haswell"
    assert device.text.value == b"generic"


@pytest.mark.parametrize(
    "device",
    [
        FakeDevice(b"znver3"),
        FakeDevice(b"generic", platform="NVIDIA CUDA"),
        FakeDevice(b"generic", target="aarch64-unknown-linux-gnu"),
    ],
    ids=["known", "another platform", "another architecture"],
)
def test_others_stay_as_they_are(device: FakeDevice) -> None:
    before = device.name
    name_cpu(device)
    assert device.name == before


def test_names_go_by_instructions(tmp_path: Path) -> None:
    assert known_name(set()) == "x86-64"
    assert known_name({"avx2", "fma"}) == "x86-64"
    zen = {
        "avx2",
        "fma",
        "bmi1",
        "bmi2",
        "f16c",
        "movbe",
        "abm",
        "avx512f",
        "avx512bw",
        "avx512cd",
        "avx512dq",
    }
    assert known_name(zen) == "haswell"
    assert known_name(zen | {"avx512vl", "clwb", "pku", "adx"}) == "skylake-avx512"
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nflags\t\t: fpu avx2 fma\nbugs\t\t:\n")
    assert cpu_flags(tmp_path / "cpuinfo") == {"fpu", "avx2", "fma"}
    assert cpu_flags(tmp_path / "none") == set()
