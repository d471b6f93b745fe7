"""Code generation: loop nests to LLVM IR (`llvm`), IR to object code (`compile`), for a CPU (`machine`)."""
