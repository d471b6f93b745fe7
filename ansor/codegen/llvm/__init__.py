"""Loop nests to textual LLVM IR.

Reading order: `text` (instructions and scopes), `index` (index arithmetic), `vectors` (arithmetic on values),
`memory` (loads and stores), `values` (expressions), `statements` (loops) with `interleave` (stores put
together) and `tensor` (instructions for whole loops), `module` (functions, parallel loops). What loop nests
become before: `flipping` (signs of integer factors), `abreast` (vectors put together).
"""

from ansor.codegen.llvm.module import emit_llvm

__all__ = ["emit_llvm"]
