"""Identifiers of C: what a variable, an argument or a function of any name may be called there."""

from __future__ import annotations

import re
from typing import Final

# fmt: off
C_WORDS: Final = frozenset((
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
"""Words that no C or C++ program can use as a name."""

_MACROS: Final = frozenset((
    "I", "NULL", "NAN", "INFINITY", "MAXFLOAT", "EOF", "BUFSIZ", "TRUE", "FALSE", "complex", "imaginary",
    "errno", "stdin", "stdout", "stderr", "math_errhandling",
))
_MACRO: Final = re.compile(
    r"[A-Z][A-Z0-9]+(_[A-Z][A-Z0-9]*)+"  # as most macros are called
    r"|(M|FLT|DBL|LDBL|INT|UINT|CHAR|UCHAR|SCHAR|SHRT|USHRT|LONG|ULONG|LLONG|ULLONG|FP)_\w*"
    r"|(E|SIG)[A-Z0-9][A-Z]\w*|(PRI|SCN)[diouxX]\w*"  # of errors, signals, formats
    r"|[FLORSWX]_[A-Z]{2}\w*"  # of files
)
"""Words that a program cannot use as a name once it has included headers of C, and what others are like."""
# fmt: on


def c_name(name: str) -> str:
    """Make a C identifier of any name; those of two names may be equal."""
    made = re.sub(r"\W", "_", name, flags=re.ASCII)
    if made in C_WORDS or made in _MACROS or _MACRO.fullmatch(made):
        return f"{made}_"
    return f"_{made}" if made[:1].isdigit() or not made else made
