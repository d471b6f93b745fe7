"""The matrix unit of x86 (AMX): eight registers of up to 16 rows of 64 bytes, and products of two such tiles.

An instruction adds to a tile of 16 x 16 sums the product of one of 16 rows and one of 16 columns, of 16 words
each: pairs of bfloat16, or four bytes.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.
"""

from __future__ import annotations

from typing import Final

MATRIX_TILES: Final = {
    ("bfloat16", "bfloat16", "float32"): "tdpbf16ps",
    ("uint8", "int8", "int32"): "tdpbusd",
    ("int8", "int8", "int32"): "tdpbssd",
    ("uint8", "uint8", "int32"): "tdpbuud",
}
"""The instructions by the dtypes of what is multiplied, and of sums."""
TILES: Final = 8
TILE_ROWS: Final = 16
"""Of a register, and words in each of them."""
WORD_BYTES: Final = 4
"""What is multiplied and added up for one sum at once, and that sum."""
FEWEST_ROWS: Final = 4
"""With fewer, or as few words, products are not worth a tile."""
