"""How the host calls the kernels of a program: plain data that travels with the compiled text.

The host allocates the scratch memory, and launches the kernels in order, each with its arguments: arrays by
their address, sizes by value. Grids are dimensions (`ansor.ir.dims`), computed from the sizes of the call;
where one of them is not positive there is nothing to launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ansor.codegen.c.counting import counts
from ansor.codegen.c.program import Block, DeviceProgram, Kernel
from ansor.dtypes import int_range
from ansor.errors import BuildError, RunError
from ansor.ir.dims import Dim, dim_from_json, dim_of, dim_to_json, evaluate
from ansor.te.expr import INDEX_DTYPE, Var

PARAM: Final = "param"
"""An array that the caller passes, by its position among the nest's parameters."""
SCRATCH: Final = "scratch"
"""An array of the program's scratch memory, by its position in `scratch_shapes`."""
SIZE: Final = "size"
"""A symbolic size as an int32, by its position among the nest's sizes."""
SIZE64: Final = "size64"
"""The same as an int64."""
KINDS: Final = (PARAM, SCRATCH, SIZE, SIZE64)

Grid = tuple[Dim, Dim, Dim]


class Sizes(Protocol):
    """What names the symbolic sizes of a nest, in order, as a signature does."""

    @property
    def sizes(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Launch:
    """One call of a kernel: its symbol, arguments as (kind, position), blocks, and threads of a block.

    `counts` are what its index arithmetic does not exceed, where the sizes of a call decide that.
    """

    kernel: str
    arguments: tuple[tuple[str, int], ...]
    grid: Grid
    block: Block
    counts: tuple[Dim, ...] = ()

    def blocks(self, sizes: Mapping[str, int]) -> tuple[int, int, int]:
        """Compute the grid for the sizes of a call, by name; a negative extent is one of no blocks.

        Raises
        ------
        RunError
            If there are more blocks in a row, or more iterations or elements, than kernels can count.
        """
        most = int_range(INDEX_DTYPE)[1]
        grid = []
        for axis, dim in zip("xyz", self.grid, strict=True):
            blocks = evaluate(dim, sizes)
            assert blocks is not None, (self.kernel, sizes)
            grid.append(max(blocks, 0))
            if blocks > most:
                raise RunError(
                    f"{self.kernel} takes {blocks} blocks along {axis}, and kernels count to {most}; use "
                    "smaller arrays"
                )
        for dim in self.counts if all(grid) else ():
            count = evaluate(dim, sizes)
            if count is None or count > most:
                raise RunError(
                    f"{self.kernel} counts iterations or elements up to {count}, and kernels count to "
                    f"{most}; use smaller arrays, or fuse fewer loops"
                )
        x, y, z = grid
        return x, y, z

    def to_json(self) -> dict[str, Any]:
        """Describe it in JSON's types."""
        return {
            "kernel": self.kernel,
            "arguments": [list(argument) for argument in self.arguments],
            "grid": [dim_to_json(dim) for dim in self.grid],
            "block": list(self.block),
            "counts": [dim_to_json(dim) for dim in self.counts],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Launch:
        """Read what `to_json` wrote.

        Raises
        ------
        BuildError
            If a field is missing or malformed.
        """
        try:
            arguments = tuple((str(kind), int(position)) for kind, position in fields["arguments"])
            grid_x, grid_y, grid_z = (dim_from_json(dim) for dim in fields["grid"])
            block_x, block_y, block_z = (int(extent) for extent in fields["block"])
            counted = tuple(map(dim_from_json, fields.get("counts", ())))
            kernel = str(fields["kernel"])
        except (KeyError, TypeError, ValueError) as error:
            raise BuildError(f"the description of a launch is malformed: {error!r}") from None
        if any(kind not in KINDS for kind, _ in arguments):
            raise BuildError(f"the description of a launch is malformed: its arguments are {arguments}")
        return cls(kernel, arguments, (grid_x, grid_y, grid_z), (block_x, block_y, block_z), counted)


def launches(program: DeviceProgram, signature: Sizes) -> list[Launch]:
    """Describe the launches of a program, in order.

    Parameters
    ----------
    program
        The kernels.
    signature
        Names the nest's sizes, for the dimensions of the grids.

    Raises
    ------
    BuildError
        If a grid is not made of the nest's sizes.
    """
    names = _names(program, signature)
    return [_launch(program, kernel, names) for kernel in program.kernels]


def scratch_shapes(program: DeviceProgram, signature: Sizes) -> list[tuple[str, tuple[Dim, ...]]]:
    """Describe the scratch memory of a program: a dtype and a shape for each array."""
    names = _names(program, signature)
    found: list[tuple[str, tuple[Dim, ...]]] = []
    for buffer in program.scratch:
        if buffer.strides is None:
            what = f"the shape of the scratch memory {buffer.name!r}"
            shape = tuple(dim_of(extent, names, what) for extent in buffer.shape)
        else:
            shape = (buffer.elements,)
        found.append((buffer.dtype, shape))
    return found


def _names(program: DeviceProgram, signature: Sizes) -> dict[Var, str]:
    return dict(zip(program.nest.sizes, signature.sizes, strict=True))


def _launch(program: DeviceProgram, kernel: Kernel, names: Mapping[Var, str]) -> Launch:
    params, sizes = program.nest.params, program.nest.sizes
    arguments = [
        (PARAM, params.index(buffer)) if buffer in params else (SCRATCH, program.scratch.index(buffer))
        for buffer in kernel.buffers
    ]
    arguments += [
        (SIZE64 if size.dtype == "int64" else SIZE, _position(sizes, size)) for size in kernel.sizes
    ]
    x, y, z = (dim_of(extent, names, f"the grid of {kernel.name}") for extent in kernel.grid)
    return Launch(kernel.name, tuple(arguments), (x, y, z), kernel.block, counts(kernel, names))


def _position(sizes: tuple[Var, ...], size: Var) -> int:
    return next(position for position, one in enumerate(sizes) if one is size)
