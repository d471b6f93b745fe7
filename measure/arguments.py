"""The arguments of a task's programs: what they are (`ArgumentSpec`), and their memory in a worker.

Input data and expected outputs live in files that the parent wrote and workers map read-only, so that neither
crosses a pipe and a faulty program cannot change them. A worker copies the inputs once into guarded memory
and keeps them there from trial to trial; they are verified after every program. An input that a program wants
in another layout is brought into it by the worker, before and outside of what is timed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ansor.dtypes import to_numpy
from ansor.errors import WrongAnswerError
from ansor.schedule.layout import Layout
from measure.arena import GuardedArray, poison
from measure.check import Tolerance, mismatch

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class ArgumentSpec:
    """One argument; its data, or expected data if it is an output, are raw elements in the file `path`.

    `shape` is that of the file. With `digits` (`Layout.to_json`) the program takes the input in that layout.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    output: bool
    path: str
    tolerance: Tolerance
    digits: tuple[tuple[int, int, int], ...] | None = None

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
    def size_bytes(self) -> int:
        """Size of the file."""
        return int(np.prod(self.shape, dtype=np.int64)) * to_numpy(self.dtype).itemsize

    def data(self) -> Array:
        """What the program takes, or is expected to give: the file's data, in the program's layout."""
        mapped = self.map()
        return mapped if self.digits is None else Layout.of(self.shape, self.digits).transform(mapped)

    def map(self, writable: bool = False) -> Array:
        """Map the file; with `writable` what is written to the array goes to the file."""
        if self.size_bytes == 0:
            return np.empty(self.shape, to_numpy(self.dtype))
        raw = np.memmap(self.path, np.uint8, "r+" if writable else "r", shape=(self.size_bytes,))
        return raw.view(np.ndarray).view(to_numpy(self.dtype)).reshape(self.shape)


class ArgumentSet:
    """Guarded memory for all arguments of one task, for one program after another."""

    def __init__(self, specs: Sequence[ArgumentSpec]) -> None:
        self.specs = tuple(specs)
        self._wanted = [spec.data() for spec in specs]
        self._memory = [
            GuardedArray(wanted.shape, spec.dtype) for spec, wanted in zip(specs, self._wanted, strict=True)
        ]
        self._intact = False

    @property
    def addresses(self) -> tuple[int, ...]:
        return tuple(memory.address for memory in self._memory)

    def prepare(self) -> None:
        """Poison the outputs, and restore the inputs if the last program did not leave them as they were."""
        for spec, memory, wanted in zip(self.specs, self._memory, self._wanted, strict=True):
            if spec.output:
                poison(memory.array, spec.dtype, wanted)
            elif not self._intact:
                memory.array[...] = wanted
            if not self._intact:
                memory.restore_canaries()
        self._intact = False

    def verify(self) -> None:
        """Check what a program left behind.

        Raises
        ------
        WrongAnswerError
            If an element of an output is wrong, an input was changed, or memory around an argument was
            written to.
        """
        for spec, memory, wanted in zip(self.specs, self._memory, self._wanted, strict=True):
            damage = memory.damage()
            if damage is not None:
                raise WrongAnswerError(f"the program wrote outside argument {spec.name!r}: {damage}")
            if not spec.output and not np.array_equal(memory.bytes, wanted.reshape(-1).view(np.uint8)):
                raise WrongAnswerError(_changed(spec, memory.array, wanted))
        for spec, memory, wanted in zip(self.specs, self._memory, self._wanted, strict=True):
            if spec.output:
                wrong = mismatch(memory.array, wanted, spec.dtype, spec.tolerance)
                if wrong is not None:
                    raise WrongAnswerError(f"output {spec.name!r}: {wrong}")
        self._intact = True


def _changed(spec: ArgumentSpec, found: Array, wanted: Array) -> str:
    """Describe how an input differs from what it was."""
    size = to_numpy(spec.dtype).itemsize
    one, other = (
        np.ascontiguousarray(a).reshape(-1).view(np.uint8).reshape(-1, size) for a in (found, wanted)
    )
    first = int(np.argmax((one != other).any(axis=1)))
    place = [int(i) for i in np.unravel_index(first, wanted.shape)]
    return (
        f"the program changed its input {spec.name!r}: element {place} "
        f"was {wanted.reshape(-1)[first]} and is {found.reshape(-1)[first]}"
    )
