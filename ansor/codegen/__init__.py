"""Code generation: loop nests to LLVM IR (`ansor.codegen.llvm`), IR to object code (`ansor.codegen.compile`)."""
