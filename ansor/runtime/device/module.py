"""`DeviceModule`: a program for a GPU that is called on arrays as a `Module` is.

numpy arrays are copied to the device for the call, and outputs back. Arrays that are on the device already
(`DeviceArray`, on CUDA also those of other libraries) are used where they lie; a call that is given any
returns its outputs there, without waiting for them: whoever reads an output waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Union

import numpy.typing as npt

from ansor.errors import BuildError, DefinitionError, RunError
from ansor.runtime.arguments import (
    allocate_host,
    check_form,
    host_array,
    refuse,
    refuse_keywords,
    refuse_overlap,
    returned,
    take_arguments,
)
from ansor.runtime.device.arrays import DeviceArray, adopt, empty_on
from ansor.runtime.device.door import SUFFIX, Device, Memory, open_device
from ansor.runtime.device.package import DevicePackage
from ansor.runtime.device.program import LoadedProgram
from ansor.runtime.signature import Argument, Signature
from ansor.runtime.timing import TimeResult, time_calls
from ansor.task.target import Target

if TYPE_CHECKING:
    from ansor.ir.nest import LoopNest
    from ansor.runtime.device.resources import KernelResources

AnyArray = Union[npt.NDArray[Any], DeviceArray]

_SOURCES: Final = {"opencl": "opencl", "cuda": "cuda", "ptx": "cuda", "sass": "cuda"}
"""The forms of code that `get_source` shows, and the language that each is written in or compiled from."""


class DeviceModule:
    """A program of kernels for an OpenCL or CUDA device.

    Calling it with all its arrays writes the outputs in place and returns None; calling it with the inputs
    alone allocates the outputs and returns the array, or a tuple of them: numpy arrays if all inputs are,
    else `DeviceArray`. It is loaded at the first call, on the device of its kind
    (`ansor.runtime.device.door.open_device`), and may be called from several threads.

    Parameters
    ----------
    package
        The program.
    nest
        The loop nest that it was made of; None if it was loaded from a file.
    """

    def __init__(self, package: DevicePackage, nest: LoopNest | None = None) -> None:
        self._package = package
        self._nest = nest
        self._program: LoadedProgram | None = None
        self._loading = threading.Lock()
        self._launching = threading.Lock()

    @property
    def signature(self) -> Signature:
        return self._package.signature

    @property
    def entry_name(self) -> str:
        """The function's name, as given to `build`."""
        return self._package.signature.name

    @property
    def package(self) -> DevicePackage:
        """Source, launches, and the binary once it is compiled."""
        return self._package

    @property
    def device(self) -> Device:
        """The device that it runs on, open.

        Raises
        ------
        TargetError
            If there is none; the message says what to install.
        """
        return open_device(self._package.kind)

    @property
    def object_bytes(self) -> bytes:
        """What `save` writes."""
        return self._package.to_bytes()

    def __call__(self, *arrays: object, sizes: Mapping[str, int] | None = None, **named: object) -> Any:
        """Run the program.

        Parameters
        ----------
        arrays
            All arguments, or the inputs only: numpy arrays, or arrays on the device.
        sizes
            Symbolic sizes that the shapes do not tell; usually none.
        named
            Refused: arrays are passed by position.

        Raises
        ------
        ArgumentError
            If an argument does not fit, or is passed by name.
        TargetError
            If there is no device for it.
        BuildError
            If it cannot be compiled or loaded, or the device does not allow its launches.
        RunError
            If it fails on the device; the failure of an earlier call may show here.
        """
        refuse_keywords(self.signature, named)
        staged = self._stage(arrays, sizes)
        with self._launching:  # The kernels of one call must not come between those of another.
            self._loaded().launches(staged.memories, staged.sizes).enqueue()
        staged.settle()
        staged.fetch()
        return returned(staged.outputs)

    def time_evaluator(
        self,
        func_name: str | None = None,
        device: object = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        before_repeat: Callable[[], object] | None = None,
    ) -> Callable[..., TimeResult]:
        """Make a function that times calls on the arrays it is given, by the device's clock.

        Copies between host and device are not in the time.

        Parameters
        ----------
        func_name
            Must be `entry_name` if given.
        device
            Ignored; a module runs on one device.
        number, repeat, min_repeat_ms, before_repeat
            See `ansor.runtime.timing.time_calls`. With ``before_repeat=module.device.flush_caches`` and
            ``number=1`` each call begins with empty caches.
        """
        if func_name not in (None, self.entry_name):
            raise DefinitionError(
                f"the module has one function, {self.entry_name!r}; there is no {func_name!r}"
            )

        def evaluate(*arrays: object, sizes: Mapping[str, int] | None = None) -> TimeResult:
            staged = self._stage(arrays, sizes)
            result = time_calls(
                self._timer(staged),
                number=number,
                repeat=repeat,
                min_repeat_ms=min_repeat_ms,
                before_repeat=before_repeat,
            )
            staged.fetch()
            return result

        return evaluate

    def timer(self, *arrays: object, sizes: Mapping[str, int] | None = None) -> Callable[[int], float]:
        """Make a function that calls the program so many times and gives the seconds that the device took.

        It is what `time_evaluator` repeats, for who compares programs by turns. Outputs among `arrays` that
        are numpy arrays are not written.

        Parameters
        ----------
        arrays, sizes
            As of a call.
        """
        return self._timer(self._stage(arrays, sizes))

    def get_source(self, kind: str | None = None) -> str:
        """Show the code.

        Parameters
        ----------
        kind
            "opencl" or "cuda": the source of its kernels, as it is (the default) or of the same nest in the
            other language; "nest": its loop nest; "ptx" and "sass": virtual and machine code by CUDA's
            compiler.

        Raises
        ------
        BuildError
            If the module was loaded from a file and what is asked for is made of its nest, or a compiler or
            disassembler that is needed is not there. Also if the nest was lowered for CUDA with shuffles,
            which OpenCL lacks: ``build(..., target="opencl")`` lowers the schedule without, as
            `SearchTask.print_best` does for the language that it is asked for.
        DefinitionError
            If there is no such source of it.
        """
        kind = self._package.kind if kind is None else kind
        if kind == "nest":
            return str(self._kept_nest(kind))
        if kind not in _SOURCES:
            known = ", ".join(map(repr, ("nest", *_SOURCES)))
            raise DefinitionError(f"a source of a module for {self._package.kind} is {known}, found {kind!r}")
        package = self._written_for(kind)
        if kind == package.kind:
            return package.source
        from ansor.codegen.c.compile import compile_ptx, disassemble
        from ansor.runtime.device.build import compiled

        if kind == "ptx":
            return compile_ptx(package.source, package.arch)
        binary = compiled(package).binary
        assert binary is not None
        return disassemble(binary)

    def resources(self, arch: str | None = None) -> tuple[KernelResources, ...]:
        """Tell what each kernel takes: registers, shared memory, spills, and the occupancy that these allow.

        It is compiled for that; a GPU is not needed.

        Parameters
        ----------
        arch
            What to compile it for ("sm_90"); default: what it was built for.

        Raises
        ------
        DefinitionError
            If it is for OpenCL, whose drivers do not tell.
        BuildError
            If there is no compiler for CUDA.
        """
        from ansor.runtime.device.resources import resources_of

        return resources_of(self._package, arch)

    def save(self, path: str | Path) -> Path:
        """Write a file that `ansor.load_module` loads again: a zip archive of source, launches and binary.

        Raises
        ------
        BuildError
            If the suffix is not .ansor, or the file cannot be written.
        """
        path = Path(path)
        if path.suffix != SUFFIX:
            raise BuildError(f"programs for devices are saved in files {SUFFIX}, found {path.name!r}")
        try:
            path.write_bytes(self.object_bytes)
        except OSError as error:
            raise BuildError(f"{path} cannot be written: {error}") from None
        return path

    def export_library(self, path: str | Path, cc: str | None = None) -> Path:
        """Compile a shared library that needs no Python, and write its C header beside it.

        It runs the program by the driver of the device that it finds, and `ansor.load_module` loads it.

        Parameters
        ----------
        path
            Ends in .so (.dylib); the header has the same name with .h.
        cc
            C compiler; found if not given.

        Raises
        ------
        BuildError
            If there is no C compiler, or for a program for CUDA none for that, or one of them fails.
        """
        from ansor.runtime.device.library import export_library

        path = Path(path)
        self._package = export_library(self._package, path, cc)
        return path

    def _timer(self, staged: _Staged) -> Callable[[int], float]:
        """As `timer`; between two calls of the function other launches may be made."""
        with self._launching:
            launches = self._loaded().launches(staged.memories, staged.sizes)

        def timed(number: int, _keep: object = staged) -> float:
            with self._launching:
                return launches.seconds(number)

        return timed

    def _kept_nest(self, source: str) -> LoopNest:
        """The nest that a source is made of."""
        if self._nest is None:
            raise BuildError(f"{self.entry_name} was loaded from a file, which keeps no {source!r} source")
        return self._nest

    def _written_for(self, source: str) -> DevicePackage:
        """The program in the language of a source."""
        language = _SOURCES[source]
        if language == self._package.kind:
            return self._package
        from ansor.runtime.device.build import package_nest

        return package_nest(self._kept_nest(source), Target(language), self.entry_name)

    def _loaded(self) -> LoadedProgram:
        with self._loading:
            if self._program is None:
                from ansor.runtime.device.build import compiled

                device = self.device
                self._package = compiled(self._package, device.info.arch)
                self._program = LoadedProgram(device, self._package)
            return self._program

    def _stage(self, values: Sequence[object], sizes: Mapping[str, int] | None) -> _Staged:
        """Check the arguments of a call and bring them to the device."""
        device, signature = self.device, self.signature
        resident = False

        def check(signature: Signature, argument: Argument, value: object) -> AnyArray:
            nonlocal resident
            array = adopt(device, value)
            if array is None:
                return host_array(signature, argument, value)
            resident = True
            check_form(signature, argument, array)
            if argument.output and not array.writable:
                refuse(signature, argument, "is read-only, and it is an output", "pass a writable array")
            return array

        def allocate(
            signature: Signature, argument: Argument, shape: tuple[int, ...], _: Sequence[AnyArray]
        ) -> AnyArray:
            if not resident:
                return allocate_host(signature, argument, shape)
            return empty_on(device, shape, argument.dtype)

        taken = take_arguments(signature, values, sizes, check, allocate)
        if taken.complete:
            refuse_overlap(signature, [_span(array) for array in taken.arrays])
        memories = []
        for argument, array in zip(signature.arguments, taken.arrays, strict=True):
            if isinstance(array, DeviceArray):
                memories.append(array.memory)
                continue
            memories.append(device.allocate(array.nbytes))
            if not argument.output:
                device.upload(array, memories[-1])
        return _Staged(device, signature, taken.arrays, tuple(memories), taken.sizes, taken.outputs)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be pickled or copied: it may be loaded on a device; write it with save(path) "
            "and read it there with ansor.load_module(path)"
        )

    def __repr__(self) -> str:
        return f"<DeviceModule {self.signature} for {self._package.kind}>"


@dataclass(frozen=True, slots=True, eq=False)
class _Staged:
    """The arguments of a call with their memory on the device."""

    device: Device
    signature: Signature
    arrays: tuple[AnyArray, ...]
    memories: tuple[Memory, ...]
    sizes: tuple[int, ...]
    outputs: tuple[AnyArray, ...]

    def settle(self) -> None:
        """Wait for what was launched, if streams of other libraries use an array, as these do not wait."""
        if any(isinstance(array, DeviceArray) and array.stream is not None for array in self.arrays):
            self.device.synchronize()

    def fetch(self) -> None:
        """Wait for the outputs that are numpy arrays, and copy them from the device."""
        for argument, array, memory in zip(self.signature.arguments, self.arrays, self.memories, strict=True):
            if argument.output and not isinstance(array, DeviceArray):
                try:
                    self.device.download(memory, array)
                except RunError as error:
                    raise RunError(f"{self.signature.name} failed on {self.device.name}: {error}") from None


def _span(array: AnyArray) -> tuple[int, int]:
    """Where an array lies, as far as that tells which overlap; memory of OpenCL has no address."""
    if not isinstance(array, DeviceArray):
        start = int(array.ctypes.data)
        return start, start + array.nbytes
    if array.device.kind == "cuda":
        start = int(array.memory.handle)
        return start, start + array.nbytes
    return id(array.memory), id(array.memory) + 1
