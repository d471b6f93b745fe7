"""Loop nests to textual LLVM IR.

Reading order: `text` (instructions and scopes), `index` (index arithmetic), `vectors` (arithmetic on values),
`addresses` and `memory` (loads and stores), `values` (expressions), `statements` (loops) with `interleave`
(stores put together), `tensor` and `matrix_tiles` (instructions for whole loops), `module` (functions,
parallel loops). What loop nests become before: `flipping` (signs of integer factors), `abreast` (vectors put
together).
"""

from ansor.codegen.llvm.module import emit_llvm

__all__ = ["emit_llvm"]
