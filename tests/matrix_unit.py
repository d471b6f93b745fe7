"""A matrix unit for machines without one: its instructions as functions of this process.

The text of a program calls these in place of LLVM's intrinsics; each thread has registers of its own.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import ml_dtypes
import numpy as np

from ansor.codegen.llvm import emit_llvm
from ansor.codegen.machine import Machine
from ansor.intrinsics.matrix import MATRIX_TILES, TILES
from ansor.ir.nest import LoopNest
from ansor.runtime.build import compile_module
from ansor.runtime.module import Module
from ansor.runtime.signature import Signature

INSTRUCTIONS: Final = tuple(MATRIX_TILES.values())
_HALF: Final = np.dtype(ml_dtypes.bfloat16)
_TYPES: Final = {"bfloat16": _HALF, "float32": np.dtype(np.float32)}


@dataclass
class _Registers:
    """Of a thread: the shape of each register, none before they are configured, and what it holds."""

    shapes: list[tuple[int, int]] = field(default_factory=list)
    data: dict[int, np.ndarray] = field(default_factory=dict)


_of_threads: defaultdict[int, _Registers] = defaultdict(_Registers)
"""By the numbers of threads: calls from a thread that is not Python's have nothing else in common."""


def _own() -> _Registers:
    return _of_threads[threading.get_ident()]


multiplied: list[str] = []
"""The instructions that multiplied, in order."""


def _configure(address: int) -> None:
    text = ctypes.string_at(address, 64)
    assert text[0] == 1
    assert not any(text[1:16])
    rows, widths = text[48 : 48 + TILES], np.frombuffer(text[16 : 16 + 2 * TILES], np.uint16)
    assert all(count <= 16 for count in rows)
    assert all(width <= 64 for width in widths)
    own = _own()
    own.shapes, own.data = [(int(count), int(width)) for count, width in zip(rows, widths, strict=True)], {}


def _release() -> None:
    del _of_threads[threading.get_ident()]


def _zero(tile: int) -> None:
    own = _own()
    own.data[tile] = np.zeros(own.shapes[tile], np.uint8)


def _load(tile: int, address: int, stride: int) -> None:
    own = _own()
    rows, width = own.shapes[tile]
    assert rows
    text = b"".join(ctypes.string_at(address + row * stride, width) for row in range(rows))
    own.data[tile] = np.frombuffer(bytearray(text), np.uint8).reshape(rows, width)


def _store(tile: int, address: int, stride: int) -> None:
    for row, data in enumerate(_own().data[tile]):
        ctypes.memmove(address + row * stride, data.tobytes(), len(data))


def _multiplication(first: str, second: str, sums: str, name: str) -> Callable[[int, int, int], None]:
    a_type, b_type, c_type = (_TYPES.get(one, None) or np.dtype(one) for one in (first, second, sums))

    def multiply(c: int, a: int, b: int) -> None:
        multiplied.append(name)
        data, shapes = _own().data, _own().shapes
        count, width = shapes[c]
        words, per_word = shapes[b][0], 4 // a_type.itemsize
        assert shapes[a] == (count, 4 * words)
        assert shapes[b] == (words, width)
        wide = np.float32 if c_type.kind == "f" else np.int64
        left = data[a].view(a_type).astype(wide)
        right = data[b].view(b_type).astype(wide).reshape(words, width // 4, per_word)
        right = right.transpose(0, 2, 1).reshape(words * per_word, width // 4)
        total = data[c].view(c_type).astype(wide) + left @ right
        data[c] = np.ascontiguousarray(total.astype(c_type)).view(np.uint8)

    return multiply


def _functions() -> dict[str, Any]:
    """The functions by the names of intrinsics."""
    byte, pointer, length = ctypes.c_uint8, ctypes.c_void_p, ctypes.c_int64
    nothing, of_memory = ctypes.CFUNCTYPE(None), ctypes.CFUNCTYPE(None, byte, pointer, length)
    of_tiles = ctypes.CFUNCTYPE(None, byte, byte, byte)
    made = {
        "ldtilecfg": ctypes.CFUNCTYPE(None, pointer)(_configure),
        "tilerelease": nothing(_release),
        "tilezero": ctypes.CFUNCTYPE(None, byte)(_zero),
        "tileloadd64": of_memory(_load),
        "tilestored64": of_memory(_store),
    }
    for dtypes, name in MATRIX_TILES.items():
        made[name] = of_tiles(_multiplication(*dtypes, name))
    return made


_known = _functions()


def _calling(name: str) -> str:
    """The definition of an LLVM function that calls the emulated one."""
    kinds = {ctypes.c_uint8: "i8", ctypes.c_void_p: "ptr", ctypes.c_int64: "i64"}
    parameters = ", ".join(f"{kinds[one]} %{number}" for number, one in enumerate(_known[name].argtypes))
    address = ctypes.cast(_known[name], ctypes.c_void_p).value
    return (
        f"define internal void @emulated_{name}({parameters}) {{\n"
        f"  call void inttoptr (i64 {address} to ptr)({parameters})\n  ret void\n}}\n"
    )


def machine_with_unit() -> Machine:
    """This machine, as if it had the unit."""
    host = Machine.host()
    others = tuple(name for name in host.instructions if name not in INSTRUCTIONS)
    return replace(host, instructions=(*others, *INSTRUCTIONS))


def build_emulated(nest: LoopNest) -> Module:
    """A program whose matrix unit is emulated."""
    machine = machine_with_unit()
    signature = Signature.of_nest(
        nest,
        name="kernel",
        symbol="kernel",
        triple=machine.triple,
        cpu=machine.cpu,
        threads=None,
        features=machine.features,
    )
    text = emit_llvm(nest, machine, "kernel")
    text = text.replace("  call void @ansor.allow_tiles()\n", "")
    for name in _known:
        used = re.sub(rf"^declare void @llvm\.x86\.{name}\(.*\n", "", text, flags=re.MULTILINE)
        if used != text:
            text = used.replace(f"@llvm.x86.{name}(", f"@emulated_{name}(") + _calling(name)
    assert "@llvm.x86.t" not in text
    return compile_module(signature, text, Machine.host(), nest)
