"""What a function may be called in C, and names told apart.

Arguments may have any name (`ansor.codegen.names.c_name`). A function's name is its symbol, which other
programs link by: it is taken as it is, or refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ansor.codegen.names import C_WORDS
from ansor.errors import BuildError
from ansor.numbered import NumberedNames
from ansor.runtime.pool_ir import pool_functions

DEFAULT_NAME: Final = "main"

# fmt: off
_CALLED: Final = frozenset((
    # by generated code, or by what LLVM makes of it
    "ceil", "copysign", "cos", "erf", "exp", "fabs", "floor", "fma", "fmod", "log", "pow", "rint", "round",
    "roundeven", "sin", "sincos", "sqrt", "tanh", "trunc",
    "ceilf", "copysignf", "erff", "expf", "fabsf", "floorf", "fmaf", "fmodf", "logf", "powf", "rintf",
    "roundf", "roundevenf", "sqrtf", "tanhf", "truncf",
    "memcpy", "memmove", "memset",
))
# fmt: on


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Make names unique by numbering the later ones of equal names."""
    return tuple(map(NumberedNames().fresh, names))


def symbol_of(name: str) -> str:
    """Give the C symbol of a function.

    Raises
    ------
    BuildError
        If the name is no C identifier, or taken: by the languages C and C++, or by a function that compiled
        code calls, which would call the new one instead.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise BuildError(f"the name {name!r} is no C identifier; use letters, digits and underscores")
    if name in C_WORDS:
        raise BuildError(
            f"the name {name!r} is a word of C or C++, so that no program could call the function; "
            f"use another, such as {name + '_kernel'!r}"
        )
    taken = (_CALLED | pool_functions()) & {name, f"{name}_set_num_threads"}
    if taken:
        called = min(taken)
        raise BuildError(
            f"the name {name!r} would define {called!r}, and compiled code that calls {called!r} would find "
            f"this one; use another, such as {name + '_kernel'!r}"
        )
    return "ansor_main" if name == DEFAULT_NAME else name
