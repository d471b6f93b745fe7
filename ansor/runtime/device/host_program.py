"""A program for a device as C: its kernels as data, and the calls of `host.c` that run them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Final

from ansor.codegen.c.dialect import CUDA, POINTER_ALIGNMENT
from ansor.codegen.c.launches import PARAM, SCRATCH, SIZE64, Launch
from ansor.dtypes import dtype_info
from ansor.errors import BuildError
from ansor.ir.dims import Dim, evaluate, format_dim
from ansor.runtime.device.package import DevicePackage
from ansor.runtime.device.pocl import PLATFORM
from ansor.runtime.device.pocl_barriers import with_hidden_indices
from ansor.runtime.header import Parameters

MARKER: Final = b"ansor-device-package "
"""Starts the package in a library; its length follows, and a line's end."""
_LINE: Final = 40
_OWN: Final = ("ansor_steps", "ansor_entry")
"""Functions that are written here."""
_SIGNS: Final = {"add": "+", "sub": "-", "mul": "*", "truncdiv": "/", "truncmod": "%"}
_FUNCTIONS: Final = ("floordiv", "floormod", "min", "max")
_DIVISIONS: Final = ("floordiv", "floormod", "truncdiv", "truncmod")


def host_program(package: DevicePackage) -> str:
    """
    Write the C text of a library that runs a program.

    Parameters
    ----------
    package
        The program; for CUDA with its binary.

    Raises
    ------
    BuildError
        If an extent is no arithmetic of the sizes, or the function's symbol one of the library's own.
    """
    texts = [_text("host.c"), _text(f"host_{package.kind}.c")]
    own = {name for text in texts for name in re.findall(r"ansor_\w+|\w+(?=\()", text)}
    if package.signature.symbol in own.union(_OWN):
        raise BuildError(
            f"a library for {package.kind} has or calls {package.signature.symbol!r} itself; build the "
            "program by another name"
        )
    parts = [
        "#include <stddef.h>\n",
        *_data(package),
        *texts,
        _steps(package),
        _entry(package),
    ]
    return "\n".join(parts)


def _text(name: str) -> str:
    return files("ansor.runtime.device").joinpath(name).read_text()


# -- data -------------------------------------------------------------------------------------------------


def _data(package: DevicePackage) -> Iterator[str]:
    """What the door to the device takes: the package, and in it the program; names of kernels."""
    whole = package.to_bytes()
    program = package.source.encode() if package.binary is None else package.binary
    names = [launch.kernel for launch in package.launches]
    tagged = MARKER + f"{len(whole)}\n".encode() + whole
    yield _bytes("unsigned char", "ansor_package", tagged)
    yield f"#define ansor_program ((const char *)ansor_package + {tagged.index(program)})"
    yield f"static const size_t ansor_program_size = {len(program)};"
    yield f"#define ANSOR_KERNELS {len(names)}"
    yield f"#define ANSOR_ALIGNMENT {POINTER_ALIGNMENT}"
    listed = ", ".join(map(json.dumps, names))
    yield f"static const char *const ansor_kernel_names[ANSOR_KERNELS] = {{{listed}}};"
    if package.kind == "cuda":
        asked = ", ".join(str(CUDA.asked_bytes(shared)) for shared in package.shared_bytes)
        yield f'#define ANSOR_ARCH "{package.arch}"'
        yield f"static const int ansor_asked[ANSOR_KERNELS] = {{{asked}}};"
    else:
        yield f'#define ANSOR_POCL "{PLATFORM}"'
        yield _bytes("char", "ansor_program_of_pocl", with_hidden_indices(package.source).encode() + b"\0")


def _bytes(type_: str, name: str, data: bytes) -> str:
    """An array of bytes that is not visible outside."""
    lines = [", ".join(map(str, data[start : start + _LINE])) for start in range(0, len(data), _LINE)]
    return f"static const {type_} {name}[] = {{\n" + ",\n".join(lines) + "\n};"


# -- steps ------------------------------------------------------------------------------------------------


def _steps(package: DevicePackage) -> str:
    """The function that brings arrays to the device, launches all kernels, and fetches what they wrote."""
    signature = package.signature
    arguments, count = signature.arguments, len(signature.arguments)
    takes = [
        f"ansor_take(&on[{i}], arrays[{i}], {json.dumps(one.name)}, {_size(package, one.dtype, one.shape)}, "
        f"{int(one.output)})"
        for i, one in enumerate(arguments)
    ]
    keeps = [
        f"ansor_keep(&ansor_scratch[{i}], {_size(package, one.dtype, one.shape)})"
        for i, one in enumerate(package.scratch)
    ]
    starts = [f"ansor_start_{i}(on, n)" for i in range(len(package.launches))]
    fetches = [f"ansor_fetch(&on[{i}], arrays[{i}])" for i, one in enumerate(arguments) if one.output]
    actions = "\n                 || ".join([*takes, *keeps, *starts, *fetches])
    refused = "".join(
        f'    if ({_c(package, dim[2])} == 0) return ANSOR_FAIL("the dimension %s divides by zero", '
        f"{json.dumps(format_dim(dim))});\n"
        for dim in dict.fromkeys(_divisions(package))
    )
    scratch = f"static ansor_memory ansor_scratch[{len(package.scratch)}];\n" if package.scratch else ""
    launches = "".join(
        _start(package, number, launch, shared)
        for number, (launch, shared) in enumerate(zip(package.launches, package.shared_bytes, strict=True))
    )
    return f"""\
{scratch}{launches}
static int ansor_steps(const void *const *arrays, const int64_t *n) {{
    ansor_memory on[{count}];
    memset(on, 0, sizeof on);
    (void)n;
{refused}    int failed = {actions};
    for (int i = 0; i < {count}; i++) ansor_drop(&on[i]);
    return failed;
}}
"""


def _start(package: DevicePackage, number: int, launch: Launch, shared: int) -> str:
    """The function that launches one kernel."""
    sizes = [position for kind, position in launch.arguments if kind not in (PARAM, SCRATCH, SIZE64)]
    names = package.signature.sizes
    checks = "".join(
        f"    if (n[{position}] > INT32_MAX || n[{position}] < INT32_MIN)\n"
        f'        return ANSOR_FAIL("the size %s is too large for kernels", {json.dumps(names[position])});\n'
        f"    const int32_t small_{position} = (int32_t)n[{position}];\n"
        for position in sizes
    )
    values = ", ".join(_value(kind, position) for kind, position in launch.arguments)
    grid = ", ".join(_c(package, dim) for dim in launch.grid)
    counts = ", ".join([*(_c(package, dim) for dim in launch.counts), "0"])
    asked = CUDA.asked_bytes(shared) if package.kind == "cuda" else 0
    return f"""\
static int ansor_start_{number}(const ansor_memory *on, const int64_t *n) {{
    const int64_t grid[] = {{{grid}}}, block[] = {{{", ".join(map(str, launch.block))}}};
    const int64_t counts[] = {{{counts}}};
    (void)on, (void)n;
{checks}    const ansor_value values[] = {{{values}}};
    if (ansor_counts({number}, grid, counts, {len(launch.counts)})) return 1;
    return ansor_start({number}, grid, block, {asked}, values, {len(launch.arguments)});
}}
"""


def _value(kind: str, position: int) -> str:
    """Where the value of an argument lies, and its size."""
    places = {PARAM: f"on[{position}].handle", SCRATCH: f"ansor_scratch[{position}].handle"}
    place = places.get(kind, f"n[{position}]" if kind == SIZE64 else f"small_{position}")
    return f"{{&{place}, sizeof {place}}}"


def _size(package: DevicePackage, dtype: str, shape: Sequence[Dim]) -> str:
    """The bytes of an array."""
    extents = [f"ansor_extent({_c(package, dim)})" for dim in shape]
    return "*".join([f"(size_t){dtype_info(dtype).bytes}", *extents])


def _c(package: DevicePackage, dim: Dim) -> str:
    """A dimension as an expression of `n`, the sizes."""
    known = evaluate(dim, {})
    if known is not None:
        return f"INT64_C({known})"
    if isinstance(dim, str):
        return f"n[{package.signature.sizes.index(dim)}]"
    assert isinstance(dim, tuple)
    op, left, right = dim[0], _c(package, dim[1]), _c(package, dim[2])
    if op in _SIGNS:
        return f"({left} {_SIGNS[op]} {right})"
    if op in _FUNCTIONS:
        return f"ansor_{op}({left}, {right})"
    raise BuildError(f"no library is made of a program with the extent {format_dim(dim)}; use save()")


def _divisions(package: DevicePackage) -> Iterator[tuple[str, Dim, Dim]]:
    """The divisions by what is known at a call alone, inner ones first."""

    def within(dim: Dim) -> Iterator[tuple[str, Dim, Dim]]:
        if isinstance(dim, tuple):
            yield from within(dim[1])
            yield from within(dim[2])
            if dim[0] in _DIVISIONS and evaluate(dim[2], {}) is None:
                yield dim

    for argument in package.signature.arguments:
        for dim in argument.shape:
            yield from within(dim)
    for scratch in package.scratch:
        for dim in scratch.shape:
            yield from within(dim)
    for launch in package.launches:
        for dim in launch.grid:
            yield from within(dim)


# -- the function -----------------------------------------------------------------------------------------


def _entry(package: DevicePackage) -> str:
    """
    What the library exports.

    Here the function and its arguments have names that no header knows, whatever they are called outside.
    """
    signature = package.signature
    symbol, given = signature.symbol, Parameters.of(signature)
    names = [f"array_{position}" for position in range(len(given.names))]
    parameters = replace(given, names=names, sizes=[f"size_{at}" for at in range(len(given.sizes))])
    metadata = ", ".join(map(str, signature.metadata()))
    sizes = "".join(f"{size}, " for size in parameters.sizes)
    return f"""\
extern const char {symbol}_ansor_metadata[];
ANSOR_EXPORTED const char {symbol}_ansor_metadata[] = {{{metadata}}};

const char *{symbol}_error(void);
ANSOR_EXPORTED const char *{symbol}_error(void) {{ return ansor_told; }}

int32_t {symbol}_set_device(int32_t position);
ANSOR_EXPORTED int32_t {symbol}_set_device(int32_t position) {{ return ansor_choose_device(position); }}

ANSOR_EXPORTED int32_t ansor_entry({parameters}) ANSOR_SYMBOL("{symbol}");
int32_t ansor_entry({parameters}) {{
    const void *const ansor_arrays[] = {{{", ".join(names)}}};
    const int64_t ansor_sizes[] = {{{sizes}0}};
    return ansor_call(ansor_arrays, ansor_sizes);
}}
"""
