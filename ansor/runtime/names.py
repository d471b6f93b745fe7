"""Names in C: what a header calls arguments and sizes, and what a function may be called.

Arguments may have any name, and get one in C that is like it. A function's name is its symbol, which other
programs link by: it is taken as it is, or refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ansor.errors import BuildError
from ansor.runtime.pool_ir import pool_functions

DEFAULT_NAME: Final = "main"

# fmt: off
_WORDS: Final = frozenset((
    # C
    "_Alignas", "_Alignof", "_Atomic", "_BitInt", "_Bool", "_Complex", "_Generic", "_Imaginary", "_Noreturn",
    "_Static_assert", "_Thread_local", "asm", "auto", "break", "case", "char", "const", "continue", "default",
    "do", "double", "else", "enum", "extern", "float", "for", "goto", "if", "inline", "int", "long",
    "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef",
    "typeof", "typeof_unqual", "union", "unsigned", "void", "volatile", "while",
    # C++, and C23
    "alignas", "alignof", "and", "and_eq", "bitand", "bitor", "bool", "catch", "char16_t", "char32_t",
    "char8_t", "class", "co_await", "co_return", "co_yield", "compl", "concept", "const_cast", "consteval",
    "constexpr", "constinit", "decltype", "delete", "dynamic_cast", "explicit", "export", "false", "friend",
    "mutable", "namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or", "or_eq",
    "private", "protected", "public", "reinterpret_cast", "requires", "static_assert", "static_cast",
    "template", "this", "thread_local", "throw", "true", "try", "typeid", "typename", "using", "virtual",
    "wchar_t", "xor", "xor_eq",
    # what headers write types with, and macros of compilers for systems
    "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "linux", "unix",
))
_CALLED: Final = frozenset((
    # by generated code, or by what LLVM makes of it
    "ceil", "copysign", "erf", "exp", "fabs", "floor", "fma", "fmod", "log", "pow", "rint", "round",
    "roundeven", "sqrt", "tanh", "trunc",
    "ceilf", "copysignf", "erff", "expf", "fabsf", "floorf", "fmaf", "fmodf", "logf", "powf", "rintf",
    "roundf", "roundevenf", "sqrtf", "tanhf", "truncf",
    "memcpy", "memmove", "memset",
))
# fmt: on


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Make names unique by numbering the later ones of equal names."""
    taken: set[str] = set()
    result = []
    for name in names:
        candidate, number = name, 1
        while candidate in taken:
            candidate, number = f"{name}_{number}", number + 1
        taken.add(candidate)
        result.append(candidate)
    return tuple(result)


def c_name(name: str) -> str:
    """Make a C identifier of any name; those of two names may be equal."""
    made = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"{made}_" if made in _WORDS else f"_{made}" if made[:1].isdigit() or not made else made


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
    if name in _WORDS:
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
