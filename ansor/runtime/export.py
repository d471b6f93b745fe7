"""Writing modules to files, and loading them again.

`save` writes an object file: the function, the thread pool if it needs one, and `NAME_set_num_threads`. It
asks for nothing but libc, libm and threads. The pool is weak and hidden: objects that are linked together
share one. `export_library` links that object into a shared library. Both write a C header, neither needs
Python; threads are as many as the variable `ANSOR_NUM_THREADS` says, else the cores that the process may run
on, until `NAME_set_num_threads` is called.

Every file carries the module's `Signature` as the constant `NAME_ansor_metadata`, so that `load_module`
gives back a callable with all its checks. Programs for devices are in `ansor.runtime.device.library`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ansor.codegen.compile import compile_ir
from ansor.codegen.machine import Machine
from ansor.errors import BuildError
from ansor.runtime.device.door import KINDS
from ansor.runtime.device.door import SUFFIX as DEVICE_SUFFIX
from ansor.runtime.header import header
from ansor.runtime.module import Library, Module
from ansor.runtime.pool import POOL_FUNCTIONS, limited_launch_ir
from ansor.runtime.pool_ir import pool_ir
from ansor.runtime.signature import find_metadata

if TYPE_CHECKING:
    from ansor.runtime.device.module import DeviceModule

LIBRARY_SUFFIXES: Final = (".so", ".dylib", ".dll")
OBJECT_SUFFIXES: Final = (".o", ".obj")


def load_module(path: str | Path) -> Module | DeviceModule:
    """Load a module that `save` or `export_library` of a `Module` or a `DeviceModule` wrote.

    Raises
    ------
    BuildError
        If the file cannot be read, is no ansor module, or its suffix is unknown.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BuildError(f"the module {path} cannot be read: {error}") from None
    if path.suffix == DEVICE_SUFFIX:
        from ansor.runtime.device.module import DeviceModule
        from ansor.runtime.device.package import DevicePackage

        return DeviceModule(DevicePackage.from_bytes(data, str(path)))
    if path.suffix not in (*OBJECT_SUFFIXES, *LIBRARY_SUFFIXES):
        known = ", ".join((*OBJECT_SUFFIXES, *LIBRARY_SUFFIXES, DEVICE_SUFFIX))
        raise BuildError(f"cannot tell what {path} is by its suffix; use one of {known}")
    signature = find_metadata(data, str(path))
    if signature.triple in KINDS:
        from ansor.runtime.device.library import module_in

        return module_in(data, str(path))
    if path.suffix in OBJECT_SUFFIXES:
        return Module(signature, object_bytes=data)
    return Module(signature, library=Library(path.resolve(), data))


def save(module: Module, path: Path) -> Path:
    """See `Module.save`.

    Raises
    ------
    BuildError
        If the suffix is not .o (or .obj), or the file cannot be written.
    """
    if path.suffix not in OBJECT_SUFFIXES:
        raise BuildError(
            f"save writes object files (.o), found {path.name!r}; export_library writes shared libraries"
        )
    write(path, _whole_object(module))
    write(path.with_suffix(".h"), header(module.signature).encode())
    return path


def export_library(module: Module, path: Path, cc: str | None = None) -> Path:
    """See `Module.export_library`."""
    check_path(path)
    signature = module.signature
    compiler = find_linker(signature.triple, cc)
    with tempfile.TemporaryDirectory(prefix="ansor-") as folder:
        kernel = Path(folder, "kernel.o")
        write(kernel, _whole_object(module))
        command = [*compiler, "-shared", "-o", str(path), str(kernel)]
        if "linux" in signature.triple:
            command += ["-pthread", "-lm", "-Wl,-z,defs"]
        link(command, path)
    write(path.with_suffix(".h"), header(signature).encode())
    return path


def check_path(path: Path) -> None:
    """Refuse a file that is called otherwise than a shared library, or whose folder is not there.

    Raises
    ------
    BuildError
        Saying which.
    """
    if path.suffix not in LIBRARY_SUFFIXES:
        raise BuildError(
            f"export_library writes {', '.join(LIBRARY_SUFFIXES)}, found {path.name!r}; "
            "save writes object files"
        )
    if not path.parent.is_dir():
        raise BuildError(f"{path} cannot be written: there is no folder {str(path.parent)!r}; make it first")


def find_linker(triple: str, cc: str | None = None) -> list[str]:
    """Find the command that links for a triple.

    The choice, in order: `cc`; for this machine the variable `CC`, cc, gcc, clang; for another the cross
    compiler named by the triple (`aarch64-linux-gnu-gcc`), then clang with `--target`.

    Raises
    ------
    BuildError
        If none of them is installed.
    """
    host = Machine.host().triple
    arch, *rest = triple.split("-")
    if arch == host.split("-")[0]:
        candidates = [[cc] if cc else os.environ.get("CC", "").split(), ["cc"], ["gcc"], ["clang"]]
    else:
        short = "-".join([arch, *(part for part in rest if part not in ("unknown", "pc", "none"))])
        candidates = [
            [cc] if cc else [],
            [f"{short}-gcc"],
            [f"{triple}-gcc"],
            ["clang", f"--target={triple}"],
        ]
    candidates = candidates[:1] if cc else [candidate for candidate in candidates if candidate]
    for candidate in candidates:
        if shutil.which(candidate[0]):
            return candidate
    tried = ", ".join(candidate[0] for candidate in candidates)
    raise BuildError(
        f"no C compiler that links for {triple} is installed (tried {tried}); install one "
        "(Debian: gcc, or gcc-aarch64-linux-gnu and the like), or use save(), whose .o files need none"
    )


def _whole_object(module: Module) -> bytes:
    """Give the object file with all that the function calls, unless libc and libm have it."""
    source, signature = module.source, module.signature
    if source is None:
        return module.object_bytes
    limit, symbol = signature.threads, signature.symbol
    kernel, runtime = source.ll + signature.metadata_ir(), _setter_ir(symbol, parallel=True)
    if not any(f"@{name}(" in kernel for name in POOL_FUNCTIONS):
        runtime = _setter_ir(symbol, parallel=False)
    elif limit is None:
        runtime += pool_ir(signature.triple, embedded=True)
    else:
        kernel = kernel.replace("@ansor_parallel_for(", f"@{symbol}.launch(")
        runtime += limited_launch_ir(f"{symbol}.launch", limit, "hidden") + pool_ir(
            signature.triple, embedded=True
        )
    return compile_ir(kernel, source.machine, runtime=runtime)


def _setter_ir(symbol: str, parallel: bool) -> str:
    """Write the function that sets the number of threads; without parallel loops it has nothing to do."""
    call = "  call void @ansor_set_num_threads(i32 %n)\n" if parallel else ""
    return f"define void @{symbol}_set_num_threads(i32 %n) {{\n{call}  ret void\n}}\n"


def write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise BuildError(f"{path} cannot be written: {error}") from None


def link(command: list[str], path: Path) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"linking {path} failed: {error}") from None
    if done.returncode != 0:
        raise BuildError(
            f"linking {path} failed, exit status {done.returncode}: {' '.join(command)}\n"
            f"{done.stderr.strip()}"
        )
