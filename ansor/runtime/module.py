"""`Module`: a compiled function that is called on arrays, timed, looked at and exported.

A module is a signature and code: an object file in memory, or a shared library on disk. The code is loaded
at the first call, so a module for another architecture can be made and exported here, and says so only when
it is called.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ansor.codegen.compile import assembly
from ansor.codegen.machine import Machine
from ansor.errors import BuildError, DefinitionError, RunError, TargetError
from ansor.locks import fork_safe_lock
from ansor.runtime.arguments import BoundCall, bind, refuse_keywords, returned
from ansor.runtime.interference import watch_kernel
from ansor.runtime.jit import load_object
from ansor.runtime.plain_call import PlainCall
from ansor.runtime.pool import adopt_library, kernel_imports, threads_in_force
from ansor.runtime.signature import Signature
from ansor.runtime.timer import compiled_timer
from ansor.runtime.timing import TimeResult, time_calls

if TYPE_CHECKING:
    from ansor.ir.nest import LoopNest


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Where a module's code came from: its loop nest, its LLVM IR and the machine it was compiled for."""

    nest: LoopNest | None
    ll: str
    machine: Machine


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    """A function in this process; `keep` holds its code in memory."""

    address: int
    call: Callable[..., None]
    keep: object


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library as it was read: where, and its bytes."""

    path: Path
    data: bytes

    def open(self) -> ctypes.CDLL:
        """
        Load the library; what was loaded before is given again.

        It is a copy that is loaded: the system tells libraries apart by their paths, and of one that was
        written anew it would give the code of before, which is for arrays of other shapes.

        Raises
        ------
        BuildError
            If it cannot be loaded.
        """
        digest = sha256(self.data).digest()
        if digest in _opened:
            return _opened[digest]
        with tempfile.TemporaryDirectory(prefix="ansor-library-", ignore_cleanup_errors=True) as folder:
            copy = Path(folder) / self.path.name
            copy.write_bytes(self.data)
            try:
                return _opened.setdefault(digest, ctypes.CDLL(str(copy)))
            except OSError as error:
                raise BuildError(
                    f"the library {self.path} cannot be loaded from a copy: {error}; if temporary files may "
                    "not be executed, let TMPDIR name a folder whose files may"
                ) from None


_LOADING: Final = fork_safe_lock()
"""Held while a module is loaded: of one that is loaded already nobody waits for it."""
_opened: Final[dict[bytes, ctypes.CDLL]] = {}
"""Libraries of this process by the digests of their contents; none is ever closed."""


class Module:
    """A compiled function.

    Calling it with all its arrays writes the outputs in place and returns None; calling it with the inputs
    alone allocates the outputs and returns the array, or a tuple of them. Nothing is copied. Calls release
    the interpreter lock, and one module may be called from several threads at a time.

    Parameters
    ----------
    signature
        What the function takes.
    object_bytes
        Its object file, or None for a shared library.
    library
        The shared library that holds it.
    source
        What `get_source` shows; None for a loaded module.
    """

    def __init__(
        self,
        signature: Signature,
        *,
        object_bytes: bytes | None = None,
        library: Library | None = None,
        source: Source | None = None,
    ) -> None:
        if (object_bytes is None) == (library is None):
            raise BuildError("a module is made of either an object file or a shared library")
        self._signature = signature
        self._plain = PlainCall.of(signature)
        self._object = object_bytes
        self._library = library
        self._source = source
        self._loaded: _Entry | None = None

    @property
    def signature(self) -> Signature:
        return self._signature

    @property
    def entry_name(self) -> str:
        """The function's name, as given to `build`."""
        return self._signature.name

    @property
    def source(self) -> Source | None:
        """What the module was compiled from; None if it was loaded from a file."""
        return self._source

    @property
    def object_bytes(self) -> bytes:
        """The object file: of the function alone, unless it was loaded from a saved one.

        Raises
        ------
        BuildError
            If the module was loaded from a shared library.
        """
        if self._object is None:
            assert self._library is not None
            raise BuildError(f"{self._library.path} is linked; its object file is gone, load the .o instead")
        return self._object

    def __call__(self, *arrays: object, sizes: Mapping[str, int] | None = None, **named: object) -> Any:
        """Run the function.

        Parameters
        ----------
        arrays
            All arguments, or the inputs only.
        sizes
            Symbolic sizes that the shapes do not tell; usually none.
        named
            Refused: arrays are passed by position.

        Raises
        ------
        ArgumentError
            If an argument does not fit, or is passed by name.
        RunError
            If the code is for another machine.
        """
        refuse_keywords(self._signature, named)
        plain = self._plain.bind(arrays) if self._plain is not None and sizes is None else None
        if plain is not None:
            addresses, outputs = plain
            self._entry().call(*addresses)
            return returned(outputs)
        bound = bind(self._signature, arrays, sizes)
        self._entry().call(*bound.addresses, *bound.sizes)
        return returned(bound.outputs)

    def time_evaluator(
        self,
        func_name: str | None = None,
        device: object = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        before_repeat: Callable[[], object] | None = None,
    ) -> Callable[..., TimeResult]:
        """Make a function that times calls on the arrays it is given.

        Parameters
        ----------
        func_name
            Must be `entry_name` if given.
        device
            Ignored; the CPU is the only device of a module.
        number, repeat, min_repeat_ms, before_repeat
            See `ansor.runtime.timing.time_calls`. Repeats that another load on the machine disturbed are
            done again, at most `repeat` times in all; the result tells how many. With more threads than
            cores none count as disturbed.
        """
        if func_name not in (None, self.entry_name):
            raise DefinitionError(
                f"the module has one function, {self.entry_name!r}; there is no {func_name!r}"
            )

        def evaluate(*arrays: object, sizes: Mapping[str, int] | None = None) -> TimeResult:
            bound = bind(self._signature, arrays, sizes)
            timed = self.timer(bound)
            return time_calls(
                timed,
                number=number,
                repeat=repeat,
                min_repeat_ms=min_repeat_ms,
                before_repeat=before_repeat,
                watch=watch_kernel(threads_in_force(self._signature.threads), self._object is not None),
            )

        return evaluate

    def timer(self, bound: BoundCall) -> Callable[[int], float]:
        """Give the function that runs the call n times and returns the seconds it took."""
        entry = self._entry()
        timed = compiled_timer(entry.address, bound.addresses, bound.sizes)

        def run(number: int, _keep: object = (entry, bound)) -> float:
            return timed(number)

        return run

    def get_source(self, kind: str = "ll") -> str:
        """Show the code as LLVM IR ("ll"), assembly ("asm") or loop nest ("nest").

        Raises
        ------
        BuildError
            If the module was loaded from a file, which holds no sources.
        DefinitionError
            If the kind is none of these.
        """
        if kind not in ("ll", "asm", "nest"):
            raise DefinitionError(f"a source is 'll', 'asm' or 'nest', found {kind!r}")
        if self._source is None or (kind == "nest" and self._source.nest is None):
            raise BuildError(
                f"{self.entry_name} was loaded from its object code, which keeps no {kind!r} source"
            )
        if kind == "nest":
            return str(self._source.nest)
        return self._source.ll if kind == "ll" else assembly(self._source.ll, self._source.machine)

    def save(self, path: str | Path) -> Path:
        """Write the object file, which `ansor.load_module` loads again, and its C header beside it.

        The object is all that a C program needs: `cc main.c kernel.o -lm -lpthread`. Several may be linked
        together; they share one pool of threads.

        Raises
        ------
        BuildError
            If the suffix is not .o (or .obj), the module came from a shared library, or the files cannot be
            written.
        """
        from ansor.runtime.export import save

        return save(self, Path(path))

    def export_library(self, path: str | Path, cc: str | None = None) -> Path:
        """Link a shared library that needs no Python, and write its C header beside it.

        Parameters
        ----------
        path
            Ends in .so (.dylib, .dll); the header has the same name with .h.
        cc
            C compiler that links; found by the target if not given.

        Raises
        ------
        BuildError
            If there is no such compiler, or it fails.
        """
        from ansor.runtime.export import export_library

        return export_library(self, Path(path), cc)

    def _entry(self) -> _Entry:
        loaded = self._loaded
        if loaded is not None:
            return loaded
        with _LOADING:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    def _load(self) -> _Entry:
        signature = self._signature
        host = Machine.host()
        if _platform(signature.triple) != _platform(host.triple):
            raise RunError(
                f"{signature.name} is compiled for {signature.triple} and this machine is {host.triple}; "
                "export it and run it there, or build it for this machine"
            )
        lacking = _lacking(signature, host)
        if lacking:
            raise RunError(
                f"{signature.name} is compiled for {signature.cpu} and cannot run here: {lacking}; "
                "run it there, or build it for this machine"
            )
        count = len(signature.arguments)
        prototype = ctypes.CFUNCTYPE(
            None, *[ctypes.c_void_p] * count, *[ctypes.c_int64] * len(signature.sizes)
        )
        if self._object is not None:
            code = load_object(self._object, (signature.symbol,), kernel_imports(signature.threads))
            return _Entry(code[signature.symbol], prototype(code[signature.symbol]), code)
        assert self._library is not None
        library = self._library.open()
        adopt_library(getattr(library, f"{signature.symbol}_set_num_threads"))
        function = getattr(library, signature.symbol)
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None
        return _Entry(address, prototype(address), library)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be pickled or copied: it is machine code in this process; write it with "
            "export_library(path) or save(path) and read it there with ansor.load_module(path)"
        )

    def __repr__(self) -> str:
        return f"<Module {self._signature}>"


def _lacking(signature: Signature, host: Machine) -> str:
    """What this machine lacks of the one that code is for; empty if nothing that is known of."""
    features = signature.features
    if signature.cpu == host.cpu and features in (None, host.features):
        return ""
    has_not = {name[1:] for name in host.features.split(",") if name.startswith("-")}
    uses = {name[1:] for name in (features or "").split(",") if name.startswith("+")}
    if uses & has_not:
        return f"{signature.cpu} has {', '.join(sorted(uses & has_not))}, this CPU has not"
    try:
        wanted = Machine.of(signature.triple, signature.cpu, features or "")
    except TargetError:  # a CPU that this LLVM does not know
        return ""
    return wanted.beyond(host)


def _platform(triple: str) -> tuple[str, str]:
    """Architecture and system of a triple, as far as they decide whether code can run."""
    arch, _, rest = triple.partition("-")
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(arch, arch)
    system = next((name for name in ("linux", "darwin", "macos", "windows") if name in rest), rest)
    return arch, "darwin" if system == "macos" else system
