"""A loop nest as a module: the exported function, the bodies of its parallel loops, declarations.

The exported function is `void NAME(ptr, ..., i64, ...)`: one pointer per parameter, then the symbolic sizes.
The pointers do not alias.

A parallel loop becomes two internal functions. `NAME.parallel.K.chunk` runs a range of iterations; its
parameters are the buffers (again not aliasing), the loop variables and sizes it uses, and the range.
`NAME.parallel.K(data, i, n)`, which the runtime calls for every piece i of n, takes these out of a block of
8-byte slots that the launching function filled, computes the piece's range of iterations (contiguous, equal
up to one) and calls the chunk. The launching function says how many pieces are worth having: what a thread
does not get done in time others take over by the piece, but one that is over sooner than it is taken is a
loss.

A function with streamed outputs is written twice, as `NAME.streaming` and `NAME.cached`, and chooses by the
addresses of these outputs: the instructions that pass the caches by need aligned vectors. Where its callers
are known to align them, it is written once.
"""

from __future__ import annotations

from dataclasses import replace

from ansor.codegen.llvm.abreast import join_strips
from ansor.codegen.llvm.addresses import Pointer
from ansor.codegen.llvm.analysis import Analysis
from ansor.codegen.llvm.flipped_copies import store_flipped
from ansor.codegen.llvm.flipping import flip_factors
from ansor.codegen.llvm.index import Affine
from ansor.codegen.llvm.memory import STREAMING, STREAMING_METADATA
from ansor.codegen.llvm.statements import Function
from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.values import Env
from ansor.codegen.machine import Machine
from ansor.depth import with_depth
from ansor.dtypes import dtype_info
from ansor.ir.nest import Buffer, For, LoopNest
from ansor.ir.passes.private_arrays import unroll_scratch
from ansor.ir.ranges import nest_bounds
from ansor.ir.work import executed_instructions
from ansor.te.expr import Expr, Var, free_vars

_SIZE_LIMIT = 1 << 31
_LINE = 64
"""Alignment of streamed outputs [bytes]: a cache line, and the widest vector."""
_PIECE = 1 << 15
"""Estimated instructions from which on a piece of a parallel loop is worth having: some microsecond's."""
_MOST_PIECES = 1 << 20
_LAUNCH = "declare void @ansor_parallel_for(ptr, ptr, i32)"


def emit_llvm(nest: LoopNest, machine: Machine, name: str | None = None, aligned: bool = False) -> str:
    """Write `nest` as textual LLVM IR for `machine`.

    Parameters
    ----------
    nest
        The program. Its parameters must be distinct memory when it is called.
    machine
        The CPU to write for: its vector width, and which instructions are worth using.
    name
        Name of the exported function; default: the nest's.
    aligned
        All outputs start on cache lines whenever it is called, so one version does. That halves the time to
        compile it.

    Returns
    -------
    str
        A module that defines the function and declares what it calls: `ansor_parallel_for`, `ansor_alloc`,
        `ansor_free` of the runtime, and functions of the C library.

    Raises
    ------
    BuildError
        If the nest is a GPU program, or breaks the invariants of `ansor.ir.nest`.
    """

    def text() -> str:
        straight = replace(nest, body=unroll_scratch(nest.body, machine.register_limits))
        written = join_strips(store_flipped(flip_factors(straight, machine)), machine)
        return _Module(written, machine, name or nest.name).text(aligned)

    return with_depth(text)


class _Module:
    """The module being written."""

    def __init__(self, nest: LoopNest, machine: Machine, name: str) -> None:
        self.nest = nest
        self.machine = machine
        self.name = name
        self.analysis = Analysis(machine, nest_bounds(nest))
        self.declarations: dict[str, str] = {}
        self.functions: list[str] = []
        self.regions = 0

    def text(self, aligned: bool) -> str:
        streamed = frozenset(self.nest.params[position] for position in self.nest.streamed)
        if aligned or not (streamed and self._versions(streamed)):
            self._function("define", self.name, streamed if aligned else frozenset())
        streams = self._streams()
        header = [
            f'target triple = "{self.machine.triple}"',
            f'target datalayout = "{self.machine.data_layout}"',
        ]
        return "\n".join(
            [
                *header,
                "",
                *self.declarations.values(),
                "",
                *self.functions,
                'attributes #0 = { nounwind "stackrealign" }',
                *([STREAMING_METADATA] if streams else []),
                "",
            ]
        )

    def _function(self, define: str, name: str, streamed: frozenset[Buffer] = frozenset()) -> None:
        """Write the nest as a function; the buffers in `streamed` lie on cache lines, as its caller knows."""
        function = Function(self.declarations, self.machine, self.analysis, self.outline)
        function.memory.streamed = streamed
        for position, buffer in enumerate(self.nest.params):
            align = _LINE if buffer in streamed else dtype_info(buffer.dtype).bytes
            function.memory.pointers[buffer] = Pointer(Value(f"%arg{position}", "ptr"), align)
        variables: dict[Var, Affine | Value] = {}
        for position, size in enumerate(self.nest.sizes):
            variables[size] = function.index.atom(Value(f"%size{position}", "i64"), 0, _SIZE_LIMIT)
        function.statement(self.nest.body, Env(variables))
        self._define(f"{define} void @{quoted(name)}({self._parameters('ptr noalias')})", function.finish())

    def _parameters(self, pointer: str = "ptr") -> str:
        arrays = [f"{pointer} %arg{position}" for position in range(len(self.nest.params))]
        return ", ".join(arrays + [f"i64 %size{position}" for position in range(len(self.nest.sizes))])

    def _streams(self) -> bool:
        """Whether some store that is written passes the caches by."""
        return any(STREAMING in text for text in self.functions)

    def _versions(self, streamed: frozenset[Buffer]) -> bool:
        """Write both versions and the choice between them; False, and nothing, if no store would differ."""
        positions = self.nest.streamed
        streaming, cached = f"{self.name}.streaming", f"{self.name}.cached"
        self._function("define internal", streaming, streamed)
        if not self._streams():
            self.functions.clear()
            self.declarations.clear()
            self.regions = 0
            return False
        self._function("define internal", cached)
        lines, bits = ["entry:"], "0"
        for position in positions:
            lines += [
                f"  %address{position} = ptrtoint ptr %arg{position} to i64",
                f"  %bits{position} = or i64 {bits}, %address{position}",
            ]
            bits = f"%bits{position}"
        lines += [
            f"  %low = and i64 {bits}, {_LINE - 1}",
            "  %aligned = icmp eq i64 %low, 0",
            "  br i1 %aligned, label %streaming, label %cached",
        ]
        for label, name in (("streaming", streaming), ("cached", cached)):
            lines += [f"{label}:", f"  call void @{quoted(name)}({self._parameters()})", "  ret void"]
        self._define(f"define void @{quoted(self.name)}({self._parameters('ptr noalias')})", lines)
        return True

    def _define(self, head: str, body: list[str]) -> None:
        self.functions.append("\n".join([f"{head} #0 {{", *body, "}", ""]))

    # -- parallel loops ------------------------------------------------------------------------------

    def outline(self, caller: Function, loop: For, extent: Affine, env: Env) -> None:
        """Write a parallel loop's functions, and the launch in `caller`."""
        region = f"{self.name}.parallel.{self.regions}"
        self.regions += 1
        facts = self.analysis.facts(loop.body)
        buffers = [buffer for buffer in caller.memory.pointers if buffer in facts.buffers]
        used = set(facts.variables)
        for buffer in buffers:
            for size in buffer.shape:
                used |= free_vars(size) if isinstance(size, Expr) else set()
        chunk = Function(self.declarations, self.machine, self.analysis, None)
        chunk.memory.streamed = caller.memory.streamed
        passed: list[Value] = []
        variables: dict[Var, Affine | Value] = {}
        for position, buffer in enumerate(buffers):
            outer = caller.memory.pointers[buffer]
            inner = Value(f"%b{position}", "ptr")
            chunk.memory.pointers[buffer] = Pointer(inner, outer.align, rows=outer.rows)
            passed.append(outer.value)
        for var, bound in env.vars.items():
            if var in used:
                variables[var] = self._captured(caller, chunk, bound, passed)
        last = len(passed)
        passed.append(caller.index.scalar(extent))
        parameters = [
            f"{'ptr noalias' if value.type == 'ptr' else value.type} %b{position}"
            for position, value in enumerate(passed[:last])
        ]
        self._chunk(chunk, loop, caller.index.interval(extent)[1], Env(variables), parameters, region)
        self._body(region, passed)
        self._launch(caller, region, passed, self._pieces(caller, loop, extent))

    def _pieces(self, caller: Function, loop: For, extent: Affine) -> Value:
        """How many pieces are worth having, an i32."""
        each = executed_instructions(loop.body, self.machine.vector_bits)
        iterations = max(1, _PIECE // max(1, each))
        count = caller.index.scalar(extent)
        if not count.text.startswith("%"):
            return Value(str(min(int(count.text) // iterations, _MOST_PIECES)), "i32")
        pieces = caller.fn.here(f"udiv i64 {count.text}, {iterations}", "i64")
        self.declarations["@llvm.umin.i64"] = "declare i64 @llvm.umin.i64(i64, i64)"
        some = caller.fn.here(f"call i64 @llvm.umin.i64(i64 {pieces.text}, i64 {_MOST_PIECES})", "i64")
        return caller.fn.here(f"trunc i64 {some.text} to i32", "i32")

    def _captured(
        self, caller: Function, chunk: Function, bound: Affine | Value, passed: list[Value]
    ) -> Affine | Value:
        """What a variable of the caller is in the chunk: a constant, or one more parameter."""
        if isinstance(bound, Affine) and not bound.terms:
            return bound
        value = caller.index.scalar(bound) if isinstance(bound, Affine) else bound
        if not value.text.startswith("%"):
            return value
        inner = Value(f"%b{len(passed)}", value.type)
        passed.append(value)
        if isinstance(bound, Affine):
            return chunk.index.atom(inner, *caller.index.interval(bound))
        return inner

    def _chunk(
        self, chunk: Function, loop: For, high: int | None, env: Env, parameters: list[str], region: str
    ) -> None:
        facts = self.analysis.facts(loop.body)
        some = chunk.fn.pure("icmp slt i64 %begin, %end", "i1", 1, 0)
        chunk.fn.open_branch()
        counter = chunk.begin_loop("%begin", facts)
        atom = chunk.index.atom(counter, 0, None if high is None else high - 1)
        chunk.statement(loop.body, env.bind(loop.var, atom))
        chunk.end_loop(counter, chunk.index.atom(Value("%end", "i64"), 0), facts)
        chunk.fn.join(some, chunk.fn.close(), None)
        parameters = [*parameters, "i64 %begin", "i64 %end"]
        self._define(
            f"define internal void @{quoted(region + '.chunk')}({', '.join(parameters)})", chunk.finish()
        )

    def _body(self, region: str, passed: list[Value]) -> None:
        """The function that the pool runs: find the piece's iterations, call the chunk."""
        lines, arguments = ["entry:"], []
        for position, value in enumerate(passed):
            lines += [
                f"  %p{position} = getelementptr i8, ptr %data, i64 {8 * position}",
                f"  %b{position} = load {value.type}, ptr %p{position}, align 8",
            ]
            arguments.append(f"{value.type} %b{position}")
        extent = f"%b{len(passed) - 1}"
        arguments = [*arguments[:-1], "i64 %begin", "i64 %end"]
        lines += [
            "  %t = zext i32 %piece to i64",
            "  %n = zext i32 %pieces to i64",
            "  %t1 = add i64 %t, 1",
            f"  %x = mul i64 %t, {extent}",
            f"  %y = mul i64 %t1, {extent}",
            "  %begin = udiv i64 %x, %n",
            "  %end = udiv i64 %y, %n",
            f"  call void @{quoted(region + '.chunk')}({', '.join(arguments)})",
            "  ret void",
        ]
        self._define(f"define internal void @{quoted(region)}(ptr %data, i32 %piece, i32 %pieces)", lines)

    def _launch(self, caller: Function, region: str, passed: list[Value], pieces: Value) -> None:
        fn = caller.fn
        self.declarations["@ansor_parallel_for"] = _LAUNCH
        data = fn.slot(8 * len(passed), 8)
        for position, value in enumerate(passed):
            place = fn.here(f"getelementptr i8, ptr {data.text}, i64 {8 * position}", "ptr")
            fn.effect(f"store {value.type} {value.text}, ptr {place.text}, align 8")
        arguments = f"ptr @{quoted(region)}, ptr {data.text}, i32 {pieces.text}"
        fn.effect(f"call void @ansor_parallel_for({arguments})")


def quoted(name: str) -> str:
    """A symbol as LLVM writes it after `@`: in quotes unless it is plain."""
    plain = all((c.isalnum() and c.isascii()) or c in "._$" for c in name) and not name[:1].isdigit()
    return name if plain and name else '"' + name.replace("\\", "\\5C").replace('"', "\\22") + '"'
