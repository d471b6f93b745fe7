"""What turns CUDA C++ into code, if it is installed: NVRTC or nvcc; and the tools beside them.

NVRTC, a library, is preferred: it takes a fraction of the time. They are looked for in NVIDIA's wheels, on
the search path, and where toolkits are installed.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Protocol

from ansor.errors import BuildError

TIMEOUT: Final = 300.0
"""Seconds that a tool may take for one program."""
_TOOLKIT: Final = Path("/usr/local/cuda/bin")
_UNKNOWN_ARCH: Final = re.compile(r"gpu[- ]architecture")
_LOG_LINES: Final = 30


class CudaCompiler(Protocol):
    """What turns CUDA C++ into code."""

    @property
    def name(self) -> str: ...

    def compile(self, text: str, arch: str, form: str) -> tuple[bytes, str]:
        """Give `text` in a form, "cubin" or "ptx", for an architecture such as "sm_90"; and the log."""
        ...


def find_compiler() -> Nvrtc | Nvcc:
    """Give the compiler that is installed.

    Raises
    ------
    BuildError
        If there is none.
    """
    library = find_nvrtc()
    if library is not None:
        return library
    nvcc = find_nvcc()
    if nvcc is not None:
        return nvcc
    raise BuildError(
        "compiling for CUDA needs NVRTC or nvcc, and neither is installed; install the wheel "
        "nvidia-cuda-nvrtc (pip install nvidia-cuda-nvrtc) or NVIDIA's CUDA toolkit"
    )


@cache
def find_nvcc() -> Nvcc | None:
    """Give the compiler of a CUDA toolkit, if one is installed."""
    path = tool_path("nvcc")
    return None if path is None else Nvcc(path)


@cache
def find_nvrtc() -> Nvrtc | None:
    """Give NVIDIA's compiler library, if its wheel or a toolkit that has it is installed."""
    places = [
        path
        for pattern in ("*/lib/libnvrtc.so*", "*/bin/nvrtc64_*.dll", "*/bin/*/nvrtc64_*.dll")
        for path in _in_wheels(pattern)
        if ".alt." not in path.name
    ]
    found = str(places[0]) if places else ctypes.util.find_library("nvrtc")
    if found is None:
        return None
    try:
        if places:
            _load_builtins(places[0].parent)
        return Nvrtc(found, ctypes.CDLL(found))
    except OSError:
        return None


def _load_builtins(folder: Path) -> None:
    """Load the library that NVRTC opens by its bare name later; that of some wheels would not find it."""
    for pattern in ("libnvrtc-builtins.so*", "nvrtc-builtins64_*.dll"):
        for path in sorted(folder.glob(pattern)):
            ctypes.CDLL(str(path))


def tool_path(name: str) -> str | None:
    """The path of a program of the toolkit: on the search path, in a wheel, or where toolkits install it."""
    places = [path for pattern in (f"*/bin/{name}", f"*/bin/{name}.exe") for path in _in_wheels(pattern)]
    places.append(_TOOLKIT / name)
    return shutil.which(name) or next((str(path) for path in places if path.is_file()), None)


def _in_wheels(pattern: str) -> list[Path]:
    """Files of NVIDIA's wheels, which share one package."""
    spec = importlib.util.find_spec("nvidia")
    places = (spec.submodule_search_locations or []) if spec is not None else []
    return [path for place in places for path in sorted(Path(place).glob(pattern))]


@dataclass(frozen=True, slots=True)
class Nvcc:
    """The compiler driver of the CUDA toolkit."""

    path: str

    @property
    def name(self) -> str:
        return "nvcc"

    @property
    def release(self) -> int:
        """The version of CUDA that it belongs to, before the point; 0 if it does not say."""
        said = run_tool([self.path, "--version"], lambda _: f"{self.name} does not tell its version").stdout
        found = re.search(r"\brelease (\d+)\.", said)
        return int(found.group(1)) if found else 0

    def compile(self, text: str, arch: str, form: str) -> tuple[bytes, str]:
        """See `CudaCompiler`."""
        with tempfile.TemporaryDirectory(prefix="ansor-") as folder:
            (Path(folder) / "kernels.cu").write_text(text)
            options = ["-cubin", "-Xptxas=-v"] if form == "cubin" else [f"-{form}"]
            command = [self.path, *options, f"-arch={arch}", "-o", "kernels.out", "kernels.cu"]
            done = run_tool(command, partial(_refusal, self.name, arch), folder)
            return (Path(folder) / "kernels.out").read_bytes(), done.stdout + done.stderr


_CACHING: Final = (12, 9)
"""From here on NVRTC takes what was compiled before from the driver's cache, without what it said of it."""


@dataclass(frozen=True, slots=True)
class Nvrtc:
    """NVIDIA's compiler library."""

    path: str
    library: Any

    @property
    def name(self) -> str:
        return "NVRTC"

    @property
    def release(self) -> int:
        """The version of CUDA that it belongs to, before the point."""
        return self._version()[0]

    def _version(self) -> tuple[int, int]:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self.library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        return major.value, minor.value

    def compile(self, text: str, arch: str, form: str) -> tuple[bytes, str]:
        """See `CudaCompiler`."""
        wanted = arch if form == "cubin" else arch.replace("sm_", "compute_")
        options = [f"--gpu-architecture={wanted}", "--ptxas-options=-v"]
        if self._version() >= _CACHING:
            options.append("--no-cache")
        program = ctypes.c_void_p()
        source = text.encode()
        self._check(
            self.library.nvrtcCreateProgram(ctypes.byref(program), source, b"kernels.cu", 0, None, None)
        )
        try:
            array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            status = self.library.nvrtcCompileProgram(program, len(options), array)
            log = self._read(program, "ProgramLog").decode(errors="replace").rstrip("\0")
            if status:
                raise BuildError(f"{_refusal(self.name, arch, log)}:\n{_head(log or self._meaning(status))}")
            return self._read(program, "CUBIN" if form == "cubin" else "PTX"), log
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))

    def _read(self, program: ctypes.c_void_p, what: str) -> bytes:
        """A result of a program, whose size the library is asked for first."""
        size = ctypes.c_size_t()
        self._check(getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        data = ctypes.create_string_buffer(size.value)
        self._check(getattr(self.library, f"nvrtcGet{what}")(program, data))
        return data.raw

    def _check(self, status: int) -> None:
        if status:
            raise BuildError(f"{self.name} fails: {self._meaning(status)}")

    def _meaning(self, status: int) -> str:
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p
        text: bytes = self.library.nvrtcGetErrorString(status)
        return text.decode()


def _refusal(compiler: str, arch: str, log: str) -> str:
    """What a compiler that ends with an error and a log does not like."""
    if _UNKNOWN_ARCH.search(log):
        return f"{compiler} compiles nothing for {arch}; let -arch of the target name another architecture"
    return f"{compiler} refuses the generated code for {arch}"


def run_tool(
    command: list[str], failure: Callable[[str], str], folder: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command; `failure` says of its output what it failed to do.

    Raises
    ------
    BuildError
        If it cannot be run, takes longer than `TIMEOUT`, or ends with an error.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=folder, timeout=TIMEOUT
        )
    except OSError as error:
        raise BuildError(f"{failure('')}: {command[0]} cannot be run: {error}") from None
    except subprocess.TimeoutExpired:
        raise BuildError(f"{failure('')}: {command[0]} took more than {TIMEOUT:g} s") from None
    if done.returncode:
        log = done.stdout + done.stderr
        raise BuildError(f"{failure(log)}:\n{_head(log)}")
    return done


def _head(log: str) -> str:
    """The first lines of a log."""
    lines = [line for line in log.splitlines() if line.strip()]
    return "\n".join(lines[:_LOG_LINES] + (["..."] if len(lines) > _LOG_LINES else []))
