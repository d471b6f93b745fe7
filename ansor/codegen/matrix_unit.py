"""What LLVM IR needs of the matrix unit of x86 besides its instructions: leave to use it, and configurations.

Linux lets a process use the unit that has asked for it once, which code does before it does so first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

ALLOW: Final = "@ansor.allow_tiles"
"""The function that asks for the unit, once."""
_ASKED: Final = "@ansor.tiles_asked"
ALLOW_IR: Final = f"""{_ASKED} = internal global i8 0
define internal void {ALLOW}() noinline {{
  %known = load i8, ptr {_ASKED}
  %asked = icmp ne i8 %known, 0
  br i1 %asked, label %done, label %ask
ask:
  %denied = call i64 asm sideeffect "syscall", \
"={{rax}},{{rax}},{{rdi}},{{rsi}},~{{rcx}},~{{r11}},~{{memory}},~{{dirflag}},~{{fpsr}},~{{flags}}"\
(i64 158, i64 4131, i64 18)
  store i8 1, ptr {_ASKED}
  br label %done
done:
  ret void
}}"""
"""By arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)."""


def configuration_ir(shapes: Sequence[tuple[int, int]]) -> str:
    """The constant that gives registers so many rows, and bytes in each."""
    data = bytearray(64)
    data[0] = 1  # the palette
    for tile, (rows, row_bytes) in enumerate(shapes):
        data[16 + 2 * tile], data[48 + tile] = row_bytes, rows
    return f"internal constant [64 x i8] [{', '.join(f'i8 {byte}' for byte in data)}], align 64"
