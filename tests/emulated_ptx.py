"""Instructions of PTX in kernels, as calls of what does the same on the host (`emulated_cuda.h`).

An instruction stands in the text as `asm("name operands;" : results : inputs)`. What it does is said once
more, after the PTX ISA: which lane has which element of a matrix is not taken from the code that is tested.
"""

from __future__ import annotations

import re

_ASM = re.compile(r'asm(?: volatile)?\("([^"]*)"\s*(?:"([^"]*)"\s*)?:([^;]*)\);')
_OPERAND = re.compile(r'"[=+]?[rfhl]"(?=\()')
_SCALARS = {
    "cvt.f32.f16 %0, %1;": "{0} = (float)bits<_Float16>({1});",
    "cvt.rn.f16.f32 %0, %1;": "{0} = bits<unsigned short>((_Float16)({1}));",
    "cvt.rn.bf16.f32 %0, %1;": "{0} = ptx_bf16({1});",
    "cvt.rna.tf32.f32 %0, %1;": "{0} = ptx_tf32({1});",
}
_MMA = re.compile(r"mma\.sync\.aligned\.m16n8k(\d+)\.row\.col\.f32\.(\w+)\.\2\.f32 (.*);")
_LDMATRIX = re.compile(r"ldmatrix\.sync\.aligned\.m8n8\.x([24])(\.trans)?\.shared\.b16 (.*);")


def on_host(text: str) -> str:
    """The text of kernels without instructions of PTX."""
    return _ASM.sub(lambda found: _called((found[1] + (found[2] or "")).strip(), _operands(found[3])), text)


def defined(arch: str) -> str:
    """The option of a compiler by which the text is that for an architecture."""
    return f"-D__CUDA_ARCH__={arch.removeprefix('sm_').rstrip('af')}0"


def _called(instruction: str, operands: list[str]) -> str:
    if instruction in _SCALARS:
        return _SCALARS[instruction].format(*operands)
    if found := _MMA.fullmatch(instruction):
        sums, first, second, added = _places(found[3], operands)
        assert sums == added, "the sums that are given are those that are changed"
        words = f"{{{', '.join(first + second)}}}"
        given = f"{found[1]}, ptx_{found[2]}, ptx_sums, ptx_words"
        return (
            f"do {{ float* const ptx_sums[] = {{{', '.join(f'&{one}' for one in sums)}}}; "
            f"const unsigned ptx_words[] = {words}; "
            f"ptx_mma<{len(first)}, {len(second)}>({given}); }} while (0);"
        )
    if found := _LDMATRIX.fullmatch(instruction):
        (words,) = _places(found[3], operands)
        place = re.fullmatch(r".*__cvta_generic_to_shared\((\w+)\)", operands[-1])
        assert place is not None, operands[-1]
        return (
            f"do {{ unsigned* const ptx_words[] = {{{', '.join(f'&{one}' for one in words)}}}; "
            f"ptx_ldmatrix({found[1]}, {int(bool(found[2]))}, ptx_words, {place[1]}); }} while (0);"
        )
    raise AssertionError(f"an instruction that is not emulated: {instruction}")


def _places(text: str, operands: list[str]) -> list[list[str]]:
    """Lists of operands, `{%0, %1}`, as the expressions that they stand for."""
    lists = re.findall(r"\{([^}]*)\}", text)
    return [[operands[int(place.strip().removeprefix("%"))] for place in one.split(",")] for one in lists]


def _operands(text: str) -> list[str]:
    """The expressions in the brackets behind constraints, in order."""
    found: list[str] = []
    for constraint in _OPERAND.finditer(text):
        start = at = constraint.end() + 1
        depth = 1
        while depth:
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        found.append(text[start : at - 1])
    return found
