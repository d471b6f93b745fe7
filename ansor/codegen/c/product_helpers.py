"""Functions of CUDA text that the threads of a warp call together, to multiply small matrices.

Of GPUs of compute capability 8.0 and newer they are one instruction each, `mma.sync` and `ldmatrix`. Those of
7.5 have `ldmatrix`, and products of float16 half as deep, of which two do it: the first half of the words
and the second one are the operands of either. On others threads ask each other for what they need by
shuffles; so that part says what the instructions do. A word holds two neighbouring elements of 16 bits, the
first one lower, or one of 32.

Source: PTX ISA, matrix fragments of mma.m16n8k16 and mma.m16n8k8, and ldmatrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ansor.codegen.c.dialect import Dialect
from ansor.dtypes import dtype_info
from ansor.intrinsics import warp_intrinsics

_ALL: Final = "0xffffffffu"
_OLDER: Final = 750
"""The first architecture that loads matrices, and multiplies half as much at once."""
_LANE: Final = "const unsigned int lane = threadIdx.x % 32u;"


def products(dtype: str) -> str:
    """The helper that adds a product of tiles of `dtype` to four float32 of each thread.

    It takes the addresses of these, of four words of the first tile, and of two of the second: 16x16 elements
    and 16x8 of 16 bits, 16x8 and 8x8 of 32.
    """
    return f"ansor_mma_{dtype}"


def matrices(count: int, across: bool) -> str:
    """The helper that loads 2 or 4 matrices of 8 rows of 16 bytes from shared memory.

    It takes the address of the words that it loads, one of each matrix, and that of a row, of matrix
    `lane // 8`; a thread gets word `lane % 4` of row `lane // 4`, or with `across` two
    elements of 16 bits that are neighbours in column `lane // 4`.
    """
    return f"ansor_{'columns' if across else 'rows'}_{count}"


def multiplied(d: Dialect, name: str, dtype: str) -> str:
    """The source of `products`."""
    intrinsic = next(one for one in warp_intrinsics() if one.operand == dtype)
    halves = dtype_info(dtype).bits == 16
    by_shuffles = _shuffled_pairs(dtype) if halves else _shuffled_singles(d)
    used = f"\n  (void)ansor_from_{dtype};  // which is for the others" if halves else ""
    first, second = ("x", "y") if intrinsic.rounded else ("a", "b")
    rows, columns = [f"{first}[{i}]" for i in range(4)], [f"{second}[{i}]" for i in range(2)]
    rounded = _rounded_words(d) if intrinsic.rounded else ""
    older = ""
    if intrinsic.halves:
        parts = (_instruction(intrinsic.halves, rows[2 * i : 2 * i + 2], [columns[i]]) for i in range(2))
        older = "\n".join((f"\n#elif __CUDA_ARCH__ >= {_OLDER}", *parts)) + used
    word = d.values["uint32"]
    return f"""{d.function}void {name}(float* c, const {word}* a, const {word}* b) {{
#if __CUDA_ARCH__ >= 800
{rounded}{_instruction(intrinsic.instruction, rows, columns)}{used}{older}
#else
  {_LANE}
  #pragma unroll
  for (int i = 0; i < 8; ++i) {{
    const int k = i / 4, from = i % 4;
    const int row = lane / 4 * 4 + from, column = lane % 4 * 8 + from;
    const {word} x[2] = {{__shfl_sync({_ALL}, a[2 * k], row), __shfl_sync({_ALL}, a[2 * k + 1], row)}};
    const {word} y[2] = {{__shfl_sync({_ALL}, b[k], column), __shfl_sync({_ALL}, b[k], column + 4)}};
    #pragma unroll
    for (int j = 0; j < 4; ++j) {{
{by_shuffles}
    }}
  }}
#endif
}}"""


def _instruction(text: str, first: Sequence[str], second: Sequence[str]) -> str:
    """One instruction that adds a product to `c`, of these words of either operand."""
    words, count = (*first, *second), len(first)
    places = [f"%{4 + i}" for i in range(len(words))]
    operands = ", ".join(f"{{{', '.join(part)}}}" for part in (places[:count], places[count:]))
    inputs = ", ".join(f'"r"({word})' for word in words)
    sums = "{%0, %1, %2, %3}"
    return f"""  asm volatile("{text} "
               "{sums}, {operands}, {sums};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : {inputs});"""


def _rounded_words(d: Dialect) -> str:
    """Copies `x` and `y` of the words, rounded to nearest; the instruction would cut them off."""
    rounding = 'asm("cvt.rna.tf32.f32 %0, %1;" : "=r"({to}) : "f"({number}({of})));'
    number = d.number["float32"]
    return f"""  {d.values["uint32"]} x[4], y[2];
  #pragma unroll
  for (int i = 0; i < 4; ++i) {rounding.format(to="x[i]", number=number, of="a[i]")}
  #pragma unroll
  for (int i = 0; i < 2; ++i) {rounding.format(to="y[i]", number=number, of="b[i]")}
"""


def _shuffled_pairs(dtype: str) -> str:
    """Adds the products of two words of two elements each."""

    def element(of: str) -> str:
        return f"ansor_from_{dtype}((ansor_{dtype})({of}))"

    lines = (
        f"      c[j] += {element(f'x[j / 2]{end}')} *\n              {element(f'y[j % 2]{end}')};"
        for end in ("", " >> 16")
    )
    return "\n".join(lines)


def _shuffled_singles(d: Dialect) -> str:
    """Adds the product of two words of one element each, which nothing rounds here."""
    number = d.number["float32"]
    return f"      c[j] += {number}(x[j / 2]) * {number}(y[j % 2]);"


def rows_loaded(d: Dialect, name: str, count: str) -> str:
    """The source of `matrices`, by rows."""
    body = f"""  for (int i = 0; i < {count}; ++i) {{
    const {{word}}* matrix = (const {{word}}*)__shfl_sync({_ALL}, row, i * 8 + lane / 4);
    to[i] = matrix[lane % 4];
  }}"""
    return _loaded(d, name, count, "", body)


def columns_loaded(d: Dialect, name: str, count: str) -> str:
    """The source of `matrices`, by columns."""
    half = d.values["uint16"]
    body = f"""  for (int i = 0; i < {count}; ++i) {{
    const {half}* first = (const {half}*)__shfl_sync({_ALL}, row, i * 8 + lane % 4 * 2);
    const {half}* second = (const {half}*)__shfl_sync({_ALL}, row, i * 8 + lane % 4 * 2 + 1);
    to[i] = first[lane / 4] | ({{word}})second[lane / 4] << 16;
  }}"""
    return _loaded(d, name, count, ".trans", body)


def _loaded(d: Dialect, name: str, count: str, order: str, body: str) -> str:
    number, word = int(count), d.values["uint32"]
    places = ", ".join(f"%{i}" for i in range(number))
    words = ", ".join(f'"=r"(to[{i}])' for i in range(number))
    return f"""{d.function}void {name}({word}* to, const void* from) {{
#if __CUDA_ARCH__ >= {_OLDER}
  asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{order}.shared.b16 {{{places}}}, [%{number}];"
               : {words}
               : "r"(({word})__cvta_generic_to_shared(from)) : "memory");
#else
  {_LANE}
  const {d.values["uint64"]} row = ({d.values["uint64"]})from;
  #pragma unroll
{body.replace("{word}", word)}
#endif
}}"""
