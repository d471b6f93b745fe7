"""Loops with barriers and conditions, so that PoCL compiles them rightly.

PoCL runs the threads of a block as loops over the code between two barriers. Before it cuts kernels there, an
optimizer has run, and where that knows a condition from before a barrier (as it depends on nothing but the
indices of the thread and the loops around), it leaves branches directly behind barriers, or threads one
condition through to the next. PoCL then cuts wrongly: the program is wrong, or PoCL aborts. So behind every
barrier the indices, and the variables of the loops that it is in, become values of which the optimizer knows
nothing, by an instruction that does nothing.

Source: PoCL, issue 893 and pull request 2281 (seen in 3.0).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_KERNELS: Final = re.compile(r"(?=^__kernel\b)", re.MULTILINE)
_INDEX: Final = re.compile(r"\bconst ((?:int|long) (\w+) = get_(?:group|local)_id\(\d\);)")
_LOOP: Final = re.compile(r"\s*for \((?:int|long) (\w+) = .*\{$")
_AT_ONCE: Final = 4
_BARRIER: Final = re.compile(r"\bbarrier\([\w |]+\);")


def with_hidden_indices(source: str) -> str:
    """The same program, in the words of clang, which PoCL compiles it by.

    Parameters
    ----------
    source
        OpenCL C, as `ansor.codegen.c` writes it; what is written otherwise stays as it is.
    """
    return "".join(map(_hidden, _KERNELS.split(source)))


def _hidden(kernel: str) -> str:
    indices = [name for _, name in _INDEX.findall(kernel)]
    if not (indices and _BARRIER.search(kernel)):
        return kernel
    lines: list[str] = []
    loops: list[tuple[int, str]] = []  # those around a line: how many blocks are around them, their variables
    depth = 0
    for line in _INDEX.sub(r"\1", kernel).split("\n"):
        if loop := _LOOP.match(line):
            loops.append((depth, loop[1]))
        depth += line.count("{") - line.count("}")
        while loops and loops[-1][0] >= depth:
            loops.pop()
        hidden = _changed([*indices, *(name for _, name in loops)])
        lines.append(_BARRIER.sub(rf"{{ \g<0> {hidden} }}", line))
    return "\n".join(lines)


def _changed(names: Sequence[str]) -> str:
    """Instructions that do nothing to these variables, of few at a time: each is in a register then."""
    parts = [names[start : start + _AT_ONCE] for start in range(0, len(names), _AT_ONCE)]
    operands = (", ".join(f'"+r"({name})' for name in part) for part in parts)
    return " ".join(f'__asm__ volatile("" : {part});' for part in operands)
