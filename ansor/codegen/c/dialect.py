"""What CUDA C++ and OpenCL C write differently, as data.

Both texts need no headers. CUDA text compiles with nvcc and NVRTC for sm_53 and newer; OpenCL text is OpenCL
C 1.2, with `cl_khr_fp64` where the program computes in float64.

16-bit floats are their bits in memory (`ansor_float16`, `ansor_bfloat16`) and float32 while they are computed
with, rounded after each operation; functions of `ansor.codegen.c.helpers` convert them, by the device's
instructions where it has them. A bool is a byte in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ansor.ir.nest import LoopKind

HALVES: Final = frozenset(("float16", "bfloat16"))
"""Dtypes that are stored as 16 bits and computed with as float32."""

POINTER_ALIGNMENT: Final = 16
"""Bytes that the addresses of all arrays must be multiples of: the longest vector that is copied at once."""

_FUNCTIONS: Final = {
    "exp": "exp",
    "exp2": "exp2",
    "expm1": "expm1",
    "log": "log",
    "log2": "log2",
    "log1p": "log1p",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "atan": "atan",
    "sinh": "sinh",
    "cosh": "cosh",
    "tanh": "tanh",
    "erf": "erf",
    "abs": "fabs",
    "floor": "floor",
    "ceil": "ceil",
    "round": "rint",
    "pow": "pow",
    "fma": "fma",
    "min": "fmin",
    "max": "fmax",
}


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """One language.

    Attributes
    ----------
    name
        "cuda" or "opencl"; also the name by which `get_source` knows the text.
    values, stored
        The types of a value, and of an element in memory, of each dtype.
    suffixes
        What follows an integer literal of a dtype.
    functions
        Names of mathematical functions, by dtype ("float32", "float64") and te's name.
    indices
        The expressions for the indices of block and thread.
    spaces
        Address space qualifiers of pointers into a scope, with a blank at the end.
    kernel
        The head of a kernel; `{threads}` stands for the threads of a block, `{x}`, `{y}`, `{z}` for their
        extents.
    function
        What stands before the type of a function that kernels call, with a blank at the end.
    pointer
        A parameter that points to elements; `{type}` holds `const` for memory that is only read.
    shared
        The declaration of an array that the threads of a block share.
    most_shared
        Bytes of such arrays that a kernel may declare, all together.
    pool, pooled
        Where a kernel has more: the declaration of all memory that a block shares, of a size that the launch
        says, and an array in it from an `{offset}` in bytes on.
    barrier, fence
        Where the threads of a block meet: after it they see each other's stores to shared memory, or to
        global memory, too.
    copies_async
        Whether memory can be copied into shared memory without waiting (`ansor.codegen.c.helpers`).
    products
        Whether warps can multiply small matrices together (`ansor.codegen.c.products`).
    shuffle
        The value of `{value}` in the thread at a `{distance}`, `{mask}` having a bit for each thread of a
        warp; empty where the language has no shuffles.
    bits
        The function that gives the bits of a float32 as a uint32.
    number
        The functions that read an integer as the bits of a "float32" or "float64".
    vectors
        What the names of vector types of elements of a dtype begin with.
    most_lanes
        Of the longest vector type.
    make_vector
        A vector of given elements.
    """

    name: str
    values: Mapping[str, str]
    stored: Mapping[str, str]
    suffixes: Mapping[str, str]
    functions: Mapping[str, Mapping[str, str]]
    indices: Mapping[LoopKind, str]
    spaces: Mapping[str, str]
    kernel: str
    function: str
    pointer: str
    shared: str
    most_shared: int
    pool: str
    pooled: str
    barrier: str
    fence: str
    copies_async: bool
    products: bool
    shuffle: str
    bits: str
    number: Mapping[str, str]
    vectors: Mapping[str, str]
    most_lanes: int
    make_vector: str

    def asked_bytes(self, shared_bytes: int) -> int:
        """The shared memory that a launch has to ask for, of a kernel whose blocks take so many bytes."""
        return shared_bytes if shared_bytes > self.most_shared else 0

    def vector_type(self, dtype: str, lanes: int) -> str:
        """The type of a vector of elements of `dtype`."""
        return f"{self.vectors[dtype]}{lanes}"

    def copy_type(self, bytes_: int, dtype: str, lanes: int) -> str:
        """The type of `lanes` elements of `dtype`, of so many bytes together, that are only moved."""
        if lanes <= self.most_lanes:
            return self.vector_type(dtype, lanes)
        return self.vector_type("uint32", bytes_ // 4)


_CUDA_VALUES: Final = {
    "float64": "double",
    "float32": "float",
    "float16": "float",
    "bfloat16": "float",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "bool": "bool",
}
_OPENCL_VALUES: Final = {
    **_CUDA_VALUES,
    "int8": "char",
    "int64": "long",
    "uint8": "uchar",
    "uint16": "ushort",
    "uint32": "uint",
    "uint64": "ulong",
}
_BITS: Final = {"float16": "ansor_float16", "bfloat16": "ansor_bfloat16"}
_VECTORS: Final = {
    "float64": "double",
    "float32": "float",
    "float16": "ushort",
    "bfloat16": "ushort",
    "int8": "char",
    "int16": "short",
    "int32": "int",
    "int64": "longlong",
    "uint8": "uchar",
    "uint16": "ushort",
    "uint32": "uint",
    "uint64": "ulonglong",
    "bool": "uchar",
}

CUDA: Final = Dialect(
    name="cuda",
    values=_CUDA_VALUES,
    stored={**_CUDA_VALUES, **_BITS},
    suffixes={"uint32": "u", "int64": "LL", "uint64": "ULL"},
    functions={"float32": {name: f"{of}f" for name, of in _FUNCTIONS.items()}, "float64": _FUNCTIONS},
    indices={
        LoopKind.BLOCK_X: "blockIdx.x",
        LoopKind.BLOCK_Y: "blockIdx.y",
        LoopKind.BLOCK_Z: "blockIdx.z",
        LoopKind.THREAD_X: "threadIdx.x",
        LoopKind.THREAD_Y: "threadIdx.y",
        LoopKind.THREAD_Z: "threadIdx.z",
    },
    spaces={"global": "", "shared": ""},
    kernel='extern "C" __global__ void __launch_bounds__({threads})',
    function="static __device__ __forceinline__ ",
    pointer="{type}* __restrict__ {name}",
    shared="__shared__ __align__(16) {type} {name}[{elements}];",
    most_shared=48 << 10,
    pool="extern __shared__ __align__(16) unsigned char {pool}[];",
    pooled="{type}* const {name} = ({type}*)&{pool}[{offset}];",
    barrier="__syncthreads();",
    fence="__syncthreads();",
    copies_async=True,
    products=True,
    shuffle="__shfl_xor_sync({mask}, {value}, {distance})",
    bits="__float_as_uint",
    number={"float32": "__uint_as_float", "float64": "__longlong_as_double"},
    vectors=_VECTORS,
    most_lanes=4,
    make_vector="make_{type}({lanes})",
)

OPENCL: Final = Dialect(
    name="opencl",
    values=_OPENCL_VALUES,
    stored={**_OPENCL_VALUES, **_BITS, "bool": "uchar"},
    suffixes={"uint32": "u", "int64": "L", "uint64": "UL"},
    functions={"float32": _FUNCTIONS, "float64": _FUNCTIONS},
    indices={
        LoopKind.BLOCK_X: "get_group_id(0)",
        LoopKind.BLOCK_Y: "get_group_id(1)",
        LoopKind.BLOCK_Z: "get_group_id(2)",
        LoopKind.THREAD_X: "get_local_id(0)",
        LoopKind.THREAD_Y: "get_local_id(1)",
        LoopKind.THREAD_Z: "get_local_id(2)",
    },
    spaces={"global": "__global ", "shared": "__local "},
    kernel="__kernel __attribute__((reqd_work_group_size({x}, {y}, {z}))) void",
    function="",
    pointer="__global {type}* restrict {name}",
    shared="__local {type} {name}[{elements}] __attribute__((aligned(16)));",
    most_shared=(1 << 31) - 1,
    pool="",
    pooled="",
    barrier="barrier(CLK_LOCAL_MEM_FENCE);",
    fence="barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    copies_async=False,
    products=False,
    shuffle="",
    bits="as_uint",
    number={"float32": "as_float", "float64": "as_double"},
    vectors={**_VECTORS, "int64": "long", "uint64": "ulong"},
    most_lanes=16,
    make_vector="({type})({lanes})",
)
