"""What programs may use of the registers of a machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RegisterLimits:
    """What a tile may use of the machine's `num_registers` vector registers, each of `vector_bits`.

    `reserved` of them are for operands.
    `max_instructions` bounds those of one step of the reduction, which are unrolled, and of a loop that a
    pragma unrolls (`ansor.ir.code_size`): LLVM takes the longer for each the more there are in a row.
    With `per_thread` they are those of one thread of a GPU: its lanes are threads, so that nothing is reduced
    in lanes, loops over threads are no loops to it, and private arrays are registers as they are.
    What a `matrix_unit` with some instructions multiplies has its own registers (`ansor.ir.matrix_products`).
    """

    vector_bits: int = 256
    num_registers: int = 16
    reserved: int = 2
    max_instructions: int = 512
    per_thread: bool = False
    matrix_unit: frozenset[str] = frozenset()

    @property
    def room(self) -> int:
        """Registers that are not reserved."""
        return self.num_registers - self.reserved
