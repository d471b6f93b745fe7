"""The arguments of a task's programs: what they are (`ArgumentSpec`), and their memory in a worker.

Input data and expected outputs live in files that the parent wrote and workers map read-only, so that neither
crosses a pipe and a faulty program cannot change them. A worker copies the inputs once into guarded memory,
its own or a device's, and keeps them there from trial to trial; they are verified after every program. An
input that a program wants in another layout is brought into it by the worker, before and outside of what is
timed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ansor.alignment import CALLERS, bytes_of
from ansor.dtypes import to_numpy
from ansor.errors import WrongAnswerError
from ansor.schedule.layout import Layout
from measure.workers.check import Tolerance, mismatch

Array = npt.NDArray[Any]
_BLOCK: Final = 1 << 16
"""Bytes that are compared at once."""


@dataclass(frozen=True, slots=True)
class ArgumentSpec:
    """One argument; its data, or expected data if it is an output, are raw elements in the file `path`.

    `shape` is that of the file. With `digits` (`Layout.to_json`) the program takes the input in that layout.
    `aligned`: the input begins on a cache line, because it is made from the caller's array
    (`ansor.te.preparation`) or because callers' arrays do. What an output's sums come to in another order is
    in the file `other` (`measure.correctness.sums`), and what rounding makes of its elements, in float32, in
    the file `errors` (`measure.correctness.rounding`), if that makes a difference.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    output: bool
    path: str
    tolerance: Tolerance
    digits: tuple[tuple[int, int, int], ...] | None = None
    aligned: bool = False
    other: str | None = None
    errors: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> ArgumentSpec:
        digits = fields.get("digits")
        return cls(
            **{
                **fields,
                "shape": tuple(fields["shape"]),
                "tolerance": Tolerance(**fields["tolerance"]),
                "digits": None if digits is None else tuple((d, e, s) for d, e, s in digits),
            }
        )

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(path for path in (self.path, self.other, self.errors) if path is not None)

    @property
    def size_bytes(self) -> int:
        """Size of each file."""
        return int(np.prod(self.shape, dtype=np.int64)) * to_numpy(self.dtype).itemsize

    @property
    def behind_line(self) -> int:
        """Bytes between the beginning of a cache line and the array's, as calls usually find it."""
        return 0 if self.output or self.aligned or self.digits is not None else CALLERS

    def data(self) -> Array:
        """What the program takes, or is expected to give: the file's data, in the program's layout."""
        mapped = self.map()
        return mapped if self.digits is None else Layout.of(self.shape, self.digits).transform(mapped)

    def other_data(self) -> Array | None:
        """The other end of what an output may be; None if there is but one."""
        return None if self.other is None else replace(self, path=self.other).map()

    def errors_data(self) -> Array | None:
        """What one rounding of each operation makes of an output's elements; None if that is little."""
        return None if self.errors is None else replace(self, path=self.errors, dtype="float32").map()

    def map(self, writable: bool = False) -> Array:
        """Map the file; with `writable` what is written to the array goes to the file."""
        if self.size_bytes == 0:
            return np.empty(self.shape, to_numpy(self.dtype))
        raw = np.memmap(self.path, np.uint8, "r+" if writable else "r", shape=(self.size_bytes,))
        return raw.view(np.ndarray).view(to_numpy(self.dtype)).reshape(self.shape)


class ArgumentMemory(Protocol):
    """Guarded memory of one argument, of this process or of a device.

    It is uninitialised at first; a `RunError` says that there is no such memory.
    """

    def write(self, values: Array) -> None:
        """Store these values."""

    def poison(self, expected: Array) -> None:
        """Store what is wrong everywhere, where this is expected (`arena.poison`)."""

    def read(self) -> Array:
        """What it holds, until it is read again or written to."""

    def restore_canaries(self) -> None:
        """Mark the surroundings anew."""

    def damage(self) -> str | None:
        """Where the surroundings of the data were written to, None if they are intact."""


Memory = TypeVar("Memory", bound=ArgumentMemory)
MakeMemory = Callable[[tuple[int, ...], str, int, Sequence[Memory]], Memory]


class ArgumentSet(Generic[Memory]):
    """Guarded memory for all arguments of one program, and after it of another: what both take stays.

    Parameters
    ----------
    make
        Makes memory for a shape and a dtype, so many bytes behind the beginning of a cache line, or apart
        from memories that are read while it is written.
    specs
        The first arguments, as in `take`.
    """

    def __init__(self, make: MakeMemory[Memory], specs: Sequence[ArgumentSpec] = ()) -> None:
        self._make = make
        self._held: list[_Held[Memory]] = []
        self.take(specs)

    def take(self, specs: Sequence[ArgumentSpec]) -> None:
        """Hold these arguments from now on; only those that were not held before are made.

        Raises
        ------
        RunError
            If there is no memory for one.
        """
        kept = {held.spec: held for held in self._held if held.spec in specs}
        self._held = []  # Release the memory of the others before there is more.
        for spec in specs:
            inputs = [held.memory for held in self._held if not held.spec.output] if spec.output else []
            self._held.append(kept.get(spec) or _Held(spec, self._make, inputs))

    @property
    def memories(self) -> tuple[Memory, ...]:
        """Where the arguments are, in order."""
        return tuple(held.memory for held in self._held)

    def prepare(self) -> None:
        """Poison the outputs, and restore the inputs if the last program did not leave them as they were."""
        for held in self._held:
            held.prepare()

    def verify(self) -> None:
        """Check what a program left behind.

        Raises
        ------
        WrongAnswerError
            If an element of an output is wrong, an input was changed, or memory around an argument was
            written to.
        """
        for held in self._held:
            held.verify_intact()
        for held in self._held:
            if held.spec.output:
                held.verify_output()
        for held in self._held:
            held.intact = True


class _Held(Generic[Memory]):
    """One argument in guarded memory; `wanted` is what an input holds, and what an output should.

    It is `intact` if a program was found to have left it as it should.
    """

    __slots__ = ("errors", "intact", "memory", "other", "spec", "wanted")

    def __init__(self, spec: ArgumentSpec, make: MakeMemory[Memory], apart_from: Sequence[Memory]) -> None:
        self.spec = spec
        self.wanted = spec.data()
        self.other = spec.other_data()
        self.errors = spec.errors_data()
        self.memory = make(self.wanted.shape, spec.dtype, spec.behind_line, apart_from)
        self.intact = False

    def prepare(self) -> None:
        if self.spec.output:
            self.memory.poison(self.wanted)
        elif not self.intact:
            self.memory.write(self.wanted)
        if not self.intact:
            self.memory.restore_canaries()
        self.intact = False

    def verify_intact(self) -> None:
        damage = self.memory.damage()
        if damage is not None:
            raise WrongAnswerError(f"the program wrote outside argument {self.spec.name!r}: {damage}")
        if not self.spec.output:
            found = self.memory.read()
            if not _same_bytes(found, self.wanted):
                raise WrongAnswerError(_changed(self.spec, found, self.wanted))

    def verify_output(self) -> None:
        found = self.memory.read()
        spec = self.spec
        wrong = mismatch(found, self.wanted, spec.dtype, spec.tolerance, self.other, self.errors)
        if wrong is not None:
            raise WrongAnswerError(f"output {spec.name!r}: {wrong}")


def _same_bytes(one: Array, other: Array) -> bool:
    """Compare by blocks: fresh memory for a flag of each byte takes far longer to get than to fill."""
    a, b = bytes_of(one), bytes_of(other)
    return all(
        np.array_equal(a[start : start + _BLOCK], b[start : start + _BLOCK])
        for start in range(0, len(a), _BLOCK)
    )


def _changed(spec: ArgumentSpec, found: Array, wanted: Array) -> str:
    """Describe how an input differs from what it was."""
    size = to_numpy(spec.dtype).itemsize
    one, other = (bytes_of(np.ascontiguousarray(a)).reshape(-1, size) for a in (found, wanted))
    first = int(np.argmax((one != other).any(axis=1)))
    place = [int(i) for i in np.unravel_index(first, wanted.shape)]
    return (
        f"the program changed its input {spec.name!r}: element {place} "
        f"was {wanted.reshape(-1)[first]} and is {found.reshape(-1)[first]}"
    )
