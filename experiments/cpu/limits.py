"""What a machine cannot do faster: the ceilings that `bench_cpu` measures beside every kernel.

Two of them, each a compiled loop on the threads that kernels use:

- multiply-adds on registers, as many at a time as fit there, by the instruction that adds most products of
  the operation's dtype (`experiments.fma_peak`): so many operations take at least so long;
- a stream: a loop that reads as many bytes as the inputs hold and writes as many as the output holds, each
  byte once, and computes next to nothing. Both kinds of stores are tried, those that go through the cache and
  those that pass it by (non-temporal), and blocks of several lengths between which reading and writing
  alternate.

The limit of an operation is the slower of both. A kernel whose data fit a cache finds them there in every
repeat, and so does its stream: if caches may hold all, it is also cut into one part for each thread, not into
pieces for whoever is free. Where there is little to move one thread alone does it, too.

Beside them run tiles of a product on operands in caches (`experiments.register_tiles`). They limit nothing,
but tell which part of the peak is left to those that load operands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ansor.alignment import LINE, address_of, aligned_empty
from ansor.codegen.compile import compile_ir
from ansor.codegen.machine import Machine
from ansor.runtime import get_num_threads
from ansor.runtime.jit import load_object
from ansor.runtime.pool import kernel_imports
from ansor.runtime.timer import compiled_timer
from experiments.fma_peak import FmaPeak, peak_flop
from experiments.register_tiles import RegisterTiles, tiles_flop
from experiments.turns import Timer

GROUP: Final = 8
"""Lines that one turn of its loops moves."""
BLOCKS: Final = (LINE * GROUP, 65536)
"""Bytes of the longer side between one change from reading to writing and the next. What comes from memory is
fastest group by group, as prefetchers see both sides go on, and what lies in caches in long blocks; blocks of
a page are slower than either."""
PIECE: Final = 65536
"""Bytes of the longer side from which on a piece is worth having, for another thread to take over."""
MOST_PIECES: Final = 1024
SMALL: Final = 1 << 18
"""Bytes up to which one thread may move them sooner than several are started."""
CACHED: Final = 1 << 25
"""Bytes up to which caches of cores may hold what their threads move."""
PEAK: Final = "multiply-adds"
TILES: Final = "register tiles"


@dataclass(frozen=True, slots=True)
class Traffic:
    """Compulsory traffic of an operation [bytes]: its inputs read once, its output written once."""

    read: int
    written: int

    @property
    def total(self) -> int:
        return self.read + self.written


def stream_ir(temporal: bool, block: int, parts: int | None = None) -> str:
    """
    LLVM IR of `void stream(ptr source, ptr sink, ptr ends, i64 reads, i64 writes)`.

    It runs on the threads of the pool, in pieces that whoever is free takes, or in so many equal `parts`: as
    many as there are threads are a part for each, one is for the thread that calls it.
    It reads `reads` groups of lines and writes `writes` of them. Each piece of its loop is a contiguous part
    of both, and goes through both in the same number of steps, as many as `block` bytes of the longer one ask
    for.
    """
    hint = "" if temporal else ", !nontemporal !0"
    vector = f"<{LINE // 4} x i32>"
    reads = "\n".join(
        f"  %r.{i} = getelementptr i8, ptr %r.at, i64 {LINE * i}\n"
        f"  %v.{i} = load {vector}, ptr %r.{i}, align {LINE}\n"
        f"  %x.{i} = xor {vector} %a.{i}, %v.{i}"
        for i in range(GROUP)
    )
    writes = "\n".join(
        f"  %w.{i} = getelementptr i8, ptr %w.at, i64 {LINE * i}\n"
        f"  store {vector} %f.{i}, ptr %w.{i}, align {LINE}{hint}"
        for i in range(GROUP)
    )
    kept = _phis(vector, "s", ("zeroinitializer", "entry"), ("%f.{i}", "next"))
    inner = _phis(vector, "a", ("%s.{i}", "step"), ("%x.{i}", "read"))
    ended = _phis(vector, "f", ("%s.{i}", "step"), ("%x.{i}", "read"))
    total = "\n".join(
        f"  %t.{i} = xor {vector} {'%f.0' if i == 1 else f'%t.{i - 1}'}, %f.{i}" for i in range(1, GROUP)
    )
    groups = max(1, block // (LINE * GROUP))
    pieces = "%most" if parts is None else parts
    run = f"@ansor_parallel_for(ptr @body, ptr %data, i32 {pieces})"
    if parts == 1:
        run = "@body(ptr %data, i32 0, i32 1)"
    return f"""
declare void @ansor_parallel_for(ptr, ptr, i32)

define internal i64 @bound(i64 %count, i64 %part, i64 %parts) {{
  %scaled = mul i64 %count, %part
  %place = udiv i64 %scaled, %parts
  ret i64 %place
}}

define internal void @body(ptr %data, i32 %piece, i32 %all) "stackrealign" {{
entry:
  %source = load ptr, ptr %data, align 8
  %p1 = getelementptr i64, ptr %data, i64 1
  %sink = load ptr, ptr %p1, align 8
  %p2 = getelementptr i64, ptr %data, i64 2
  %reads = load i64, ptr %p2, align 8
  %p3 = getelementptr i64, ptr %data, i64 3
  %writes = load i64, ptr %p3, align 8
  %longer = call i64 @llvm.umax.i64(i64 %reads, i64 %writes)
  %t = zext i32 %piece to i64
  %n = zext i32 %all to i64
  %per = mul i64 %n, {groups}
  %blocks.0 = udiv i64 %longer, %per
  %blocks = call i64 @llvm.umax.i64(i64 %blocks.0, i64 1)
  %parts = mul i64 %blocks, %n
  %first = mul i64 %blocks, %t
  %last = add i64 %first, %blocks
  %r.first = call i64 @bound(i64 %reads, i64 %first, i64 %parts)
  %w.first = call i64 @bound(i64 %writes, i64 %first, i64 %parts)
  br label %step
step:
  %part = phi i64 [ %first, %entry ], [ %part.next, %next ]
  %r.low = phi i64 [ %r.first, %entry ], [ %r.high, %next ]
  %w.low = phi i64 [ %w.first, %entry ], [ %w.high, %next ]
{kept}
  %part.next = add i64 %part, 1
  %r.high = call i64 @bound(i64 %reads, i64 %part.next, i64 %parts)
  %w.high = call i64 @bound(i64 %writes, i64 %part.next, i64 %parts)
  %r.any = icmp ult i64 %r.low, %r.high
  br i1 %r.any, label %read, label %written
read:
  %r = phi i64 [ %r.low, %step ], [ %r.next, %read ]
{inner}
  %r.byte = mul i64 %r, {LINE * GROUP}
  %r.at = getelementptr i8, ptr %source, i64 %r.byte
{reads}
  %r.next = add i64 %r, 1
  %r.more = icmp ult i64 %r.next, %r.high
  br i1 %r.more, label %read, label %written
written:
{ended}
  %w.any = icmp ult i64 %w.low, %w.high
  br i1 %w.any, label %write, label %next
write:
  %w = phi i64 [ %w.low, %written ], [ %w.next, %write ]
  %w.byte = mul i64 %w, {LINE * GROUP}
  %w.at = getelementptr i8, ptr %sink, i64 %w.byte
{writes}
  %w.next = add i64 %w, 1
  %w.more = icmp ult i64 %w.next, %w.high
  br i1 %w.more, label %write, label %next
next:
  %part.more = icmp ult i64 %part.next, %last
  br i1 %part.more, label %step, label %done
done:
{total}
  %p4 = getelementptr i64, ptr %data, i64 4
  %ends = load ptr, ptr %p4, align 8
  %end.byte = mul i64 %t, {LINE}
  %end = getelementptr i8, ptr %ends, i64 %end.byte
  store {vector} %t.{GROUP - 1}, ptr %end, align {LINE}
  fence seq_cst
  ret void
}}

define void @stream(ptr %source, ptr %sink, ptr %ends, i64 %reads, i64 %writes) {{
  %data = alloca [5 x i64], align 8
  store ptr %source, ptr %data, align 8
  %p1 = getelementptr i64, ptr %data, i64 1
  store ptr %sink, ptr %p1, align 8
  %p2 = getelementptr i64, ptr %data, i64 2
  store i64 %reads, ptr %p2, align 8
  %p3 = getelementptr i64, ptr %data, i64 3
  store i64 %writes, ptr %p3, align 8
  %p4 = getelementptr i64, ptr %data, i64 4
  store ptr %ends, ptr %p4, align 8
  %longer = call i64 @llvm.umax.i64(i64 %reads, i64 %writes)
  %pieces = udiv i64 %longer, {PIECE // (LINE * GROUP)}
  %some = call i64 @llvm.umin.i64(i64 %pieces, i64 {MOST_PIECES})
  %most = trunc i64 %some to i32
  call void {run}
  ret void
}}
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
!0 = !{{i32 1}}
"""


def _phis(vector: str, name: str, *sources: tuple[str, str]) -> str:
    """One phi per line of a group; `{i}` in a source is the line's number."""
    return "\n".join(
        f"  %{name}.{i} = phi {vector} "
        + ", ".join(f"[ {value.replace('{i}', str(i))}, %{block} ]" for value, block in sources)
        for i in range(GROUP)
    )


class Stream:
    """
    A stream of given traffic, ready to be timed; whole groups of lines move, so a little more than asked for.

    Parameters
    ----------
    traffic
        What to move.
    temporal
        Whether stores go through the cache.
    block, parts
        See `stream_ir`.
    arrays
        Those of another stream of the same traffic, to share.
    """

    def __init__(
        self,
        traffic: Traffic,
        temporal: bool,
        block: int = BLOCKS[-1],
        arrays: Stream | None = None,
        parts: int | None = None,
    ) -> None:
        self.reads, self.writes = (-(-count // (LINE * GROUP)) for count in (traffic.read, traffic.written))
        if arrays is None:
            sizes = [(max(1, count), LINE * GROUP // 4) for count in (self.reads, self.writes)]
            self.source = aligned_empty(sizes[0], "int32")
            self.sink = aligned_empty(sizes[1], "int32", apart_from=(self.source,))
            self.source[...] = np.arange(self.source.size, dtype=np.int32).reshape(self.source.shape)
            self.sink[...] = 0
        else:
            self.source, self.sink = arrays.source, arrays.sink
        self.ends: npt.NDArray[Any] = aligned_empty((MOST_PIECES, LINE // 4), "int32")
        self._code = load_object(
            compile_ir(stream_ir(temporal, block, parts), Machine.host()), ["stream"], kernel_imports()
        )
        addresses = tuple(map(address_of, (self.source, self.sink, self.ends)))
        self._timer = compiled_timer(self._code["stream"], addresses, (self.reads, self.writes))

    def __call__(self, number: int) -> float:
        return self._timer(number)


def limit_timers(traffic: Traffic, dtype: str) -> dict[str, Timer]:
    """Give the ceilings as timers, by name: multiply-adds of a dtype, tiles if it is float32, and streams."""
    first = Stream(traffic, temporal=True, block=BLOCKS[0])
    timers: dict[str, Timer] = {PEAK: FmaPeak(dtype)}
    if dtype == "float32":
        timers[TILES] = RegisterTiles()
    for temporal in (True, False) if traffic.written else (True,):
        for block in BLOCKS if traffic.written else BLOCKS[-1:]:
            timers[_stream_name(temporal, block)] = Stream(traffic, temporal, block, first)
    threads = get_num_threads()  # of one thread the second entry counts
    for parts, most in {threads: CACHED, 1: SMALL}.items():
        if traffic.total <= most:
            name = f"{_stream_name(True, BLOCKS[-1])}, {parts} part{'s' if parts > 1 else ''}"
            timers[name] = Stream(traffic, True, BLOCKS[-1], first, parts)
    return timers


def _stream_name(temporal: bool, block: int) -> str:
    return f"stream, {'cached' if temporal else 'non-temporal'} stores, blocks of {block}"


@dataclass(frozen=True, slots=True)
class Limit:
    """
    The least time that an operation could take, as measured.

    Attributes
    ----------
    compute
        Seconds for its operations at the peak of multiply-adds.
    stream
        Seconds of the fastest stream of its traffic.
    stream_like
        Seconds of the fastest stream with the kind of stores that our kernel has.
    tiles
        Share of the peak that tiles of a product with operands in caches reach; None: not known.
    """

    compute: float
    stream: float
    stream_like: float
    tiles: float | None = None

    @property
    def seconds(self) -> float:
        return max(self.compute, self.stream)

    @property
    def kind(self) -> str:
        """Which of the two binds: "FMA" or "memory"."""
        return "FMA" if self.compute >= self.stream else "memory"

    @classmethod
    def of(cls, times: Mapping[str, Sequence[float]], flops: float, streaming: bool, dtype: str) -> Limit:
        """
        Read the limit of some operations from the times [s] of `limit_timers`.

        Parameters
        ----------
        flops
            Operations of the computation [flop].
        streaming
            Whether our kernel has non-temporal stores.
        dtype
            Of the operands that are multiplied.
        """
        streams = {name: median(values) for name, values in times.items() if name.startswith("stream")}
        like = [seconds for name, seconds in streams.items() if ("non-temporal" in name) == streaming]
        least, each = min(streams.values()), median(times[PEAK]) / peak_flop(dtype)
        tiles = tiles_flop() * each / median(times[TILES]) if TILES in times else None
        return cls(flops * each, least, min(like, default=least), tiles)
