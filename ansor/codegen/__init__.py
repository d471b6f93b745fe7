"""Code generation: loop nests to code of a CPU or of a GPU.

For a CPU: to LLVM IR (`llvm`), and that to object code (`compile`), for a `machine`. For a GPU: to CUDA C++
and OpenCL C (`c`).
"""
