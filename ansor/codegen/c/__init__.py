"""Loop nests in kernel form to CUDA C++ or OpenCL C.

Reading order: `program` (a nest taken apart into kernels), `dialect` (what the languages write differently),
`text` and `names` (pieces of C), `literals`, `helpers` (functions that the languages lack), `integers`,
`floats` and `expressions` (values), `vectors` (copies of several elements), `products` (what tensor cores
do), `statements` (loops), `source` (whole text), `counting` (how far they count), `launches` (how the host
calls it), `compile` (CUDA text to machine code).
"""

from ansor.codegen.c.dialect import CUDA, OPENCL, Dialect
from ansor.codegen.c.launches import Launch, launches, scratch_shapes
from ansor.codegen.c.program import DeviceProgram, Kernel, split_kernels
from ansor.codegen.c.source import emit_c

__all__ = [
    "CUDA",
    "OPENCL",
    "DeviceProgram",
    "Dialect",
    "Kernel",
    "Launch",
    "emit_c",
    "launches",
    "scratch_shapes",
    "split_kernels",
]
