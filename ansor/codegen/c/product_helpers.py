"""Functions of CUDA text that the threads of a warp call together, to multiply small matrices.

Of GPUs of compute capability 8.0 and newer they are one instruction each, `mma.sync` and `ldmatrix`. On
others threads ask each other for what they need by shuffles; so that part says what the instructions do. A
word holds two neighbouring elements, the first one lower.

Source: PTX ISA, matrix fragments of mma.m16n8k16, and ldmatrix.
"""

from __future__ import annotations

from typing import Final

from ansor.codegen.c.dialect import Dialect
from ansor.intrinsics import warp_intrinsics

_ALL: Final = "0xffffffffu"
_LANE: Final = "const unsigned int lane = threadIdx.x % 32u;"


def products(dtype: str) -> str:
    """The helper that adds a product of tiles of `dtype`, 16x16 and 16x8, to four float32 of each thread.

    It takes the addresses of these, of four words of the first tile, and of two of the second.
    """
    return f"ansor_mma_{dtype}"


def matrices(count: int, across: bool) -> str:
    """The helper that loads 2 or 4 matrices of 8 rows of 8 elements of 16 bits from shared memory.

    It takes the address of the words that it loads, one of each matrix, and that of a row, of matrix
    `lane // 8`; a thread gets two neighbours of row `lane // 4`, or with `across` of that column.
    """
    return f"ansor_{'columns' if across else 'rows'}_{count}"


def multiplied(d: Dialect, name: str, dtype: str) -> str:
    """The source of `products`."""
    instruction = next(one.instruction for one in warp_intrinsics() if one.operand == dtype)
    sums, first, second = "{%0, %1, %2, %3}", "{%4, %5, %6, %7}", "{%8, %9}"
    word = d.values["uint32"]

    def element(of: str) -> str:
        return f"ansor_from_{dtype}((ansor_{dtype})({of}))"

    def product(end: str = "") -> str:
        return f"{element(f'x[j / 2]{end}')} *\n              {element(f'y[j % 2]{end}')}"

    return f"""{d.function}void {name}(float* c, const {word}* a, const {word}* b) {{
#if __CUDA_ARCH__ >= 800
  asm volatile("{instruction} "
               "{sums}, {first}, {second}, {sums};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  (void)ansor_from_{dtype};  // which is for the others
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
      c[j] += {product()};
      c[j] += {product(" >> 16")};
    }}
  }}
#endif
}}"""


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
#if __CUDA_ARCH__ >= 800
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
