"""Scratch memory of kernels in LLVM IR: what a kernel gave back it finds again at its next call.

Templates for `ansor.runtime.pool_ir`, which fills in `$name`.

A system that is asked for a large block maps fresh pages, and unmaps them when it is given back: a fault and
4 KiB of zeros to write for each page, at every call of a kernel. So large blocks stay with the pool when they
are not in use, up to a bound; beyond it they are given back to the system. They lie on multiples of 2 MiB and
are as many bytes long, and the system is asked for large pages there, each of which is 512 small ones.

All threads share one table. A slot holds a block from its making to its end, as one word: address, a bit
while the block is in use, length. A word is changed by compare-and-swap, but for that of a block in use,
which whoever uses it writes. A kernel takes the smallest idle block that is large enough and at most twice as
large as wanted. If there is none, it makes one, and idle ones that would exceed the bound together with it
are given back. If the table is full, or the block small, the memory is the system's own; its addresses are
odd multiples of 64, so that they cannot be taken for those of the table.
"""

from typing import Final

POSIX_MEMORY: Final = """
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare void @perror(ptr)
declare void @abort()
$large_pages_declaration
@pool.message = private constant [37 x i8] c"ansor: no memory for scratch buffers\\00"
; Large blocks: address, 1 << 20 while in use, length in 2 MiB; 0 is none.
@pool.blocks = $own global [$most_blocks x i64] zeroinitializer, align 128
; Length of those that are not in use [2 MiB].
@pool.idle = $own global i64 0, align 128

; Ask the system for memory, and if there is none once more without what is kept.
define $own ptr @pool.fresh(i64 %alignment, i64 %bytes) {
entry:
  %place = alloca ptr, align 8
  %error = call i32 @posix_memalign(ptr %place, i64 %alignment, i64 %bytes)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %again, label %some
again:
  call void @pool.keep(i64 0)
  %second.error = call i32 @posix_memalign(ptr %place, i64 %alignment, i64 %bytes)
  %none = icmp ne i32 %second.error, 0
  br i1 %none, label %give_up, label %some
give_up:
  call void @perror(ptr @pool.message)
  call void @abort()
  unreachable
some:
  %memory = load ptr, ptr %place, align 8
  ret ptr %memory
}

; Give blocks that are not in use back to the system until at most %most of them [2 MiB] are left.
define $own void @pool.keep(i64 %most) $cold {
entry:
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %idle = load atomic i64, ptr @pool.idle monotonic, align 8
  %much = icmp ugt i64 %idle, %most
  br i1 %much, label %see, label %done
see:
  %slot = getelementptr [$most_blocks x i64], ptr @pool.blocks, i64 0, i64 %i
  %word = load atomic i64, ptr %slot monotonic, align 8
  %units = and i64 %word, 2097151
  %empty = icmp eq i64 %word, 0
  %used = icmp uge i64 %units, 1048576
  %other = or i1 %empty, %used
  br i1 %other, label %next, label %take
take:
  %swap = cmpxchg ptr %slot, i64 %word, i64 0 acquire monotonic
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %give, label %next
give:
  %address = and i64 %word, -2097152
  %block = inttoptr i64 %address to ptr
  call void @free(ptr %block)
  %before = atomicrmw sub ptr @pool.idle, i64 %units monotonic
  br label %next
next:
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, $most_blocks
  br i1 %more, label %look, label %done
done:
  ret void
}

define $vis ptr @ansor_alloc(i64 %bytes) {
entry:
  %large = icmp uge i64 %bytes, $large
  %sane = icmp ult i64 %bytes, 1099511627776
  %kept = and i1 %large, %sane
  br i1 %kept, label %block, label %plain
block:
  %block.memory = call ptr @pool.take(i64 %bytes)
  %crowded = icmp eq ptr %block.memory, null
  br i1 %crowded, label %plain, label %done
plain:
  %longer = add i64 %bytes, 64
  %start = call ptr @pool.fresh(i64 128, i64 %longer)
  %odd = getelementptr i8, ptr %start, i64 64
  br label %done
done:
  %memory = phi ptr [ %block.memory, %block ], [ %odd, %plain ]
  ret ptr %memory
}

; Take a large block that nobody uses, or a new one; null if the table is full.
define $own ptr @pool.take(i64 %bytes) $cold {
entry:
  %rounded = add i64 %bytes, 2097151
  %wanted = lshr i64 %rounded, 21
  %twice = shl i64 %wanted, 1
  %limit = add i64 %twice, 1
  br label %search
search:
  br label %look
; The length of a block in use is above every limit.
look:
  %i = phi i64 [ 0, %search ], [ %i.next, %look ]
  %best = phi i64 [ 0, %search ], [ %best.next, %look ]
  %least = phi i64 [ %limit, %search ], [ %least.next, %look ]
  %place = phi ptr [ @pool.blocks, %search ], [ %place.next, %look ]
  %slot = getelementptr [$most_blocks x i64], ptr @pool.blocks, i64 0, i64 %i
  %word = load atomic i64, ptr %slot monotonic, align 8
  %units = and i64 %word, 2097151
  %enough = icmp uge i64 %units, %wanted
  %closer = icmp ult i64 %units, %least
  %better = and i1 %enough, %closer
  %best.next = select i1 %better, i64 %word, i64 %best
  %least.next = select i1 %better, i64 %units, i64 %least
  %place.next = select i1 %better, ptr %slot, ptr %place
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, $most_blocks
  br i1 %more, label %look, label %chosen
chosen:
  %any = icmp ne i64 %best.next, 0
  br i1 %any, label %take, label %make
take:
  %used = or i64 %best.next, 1048576
  %swap = cmpxchg ptr %place.next, i64 %best.next, i64 %used acquire monotonic
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %again, label %search
again:
  %before = atomicrmw sub ptr @pool.idle, i64 %least.next monotonic
  %address = and i64 %best.next, -2097152
  %block = inttoptr i64 %address to ptr
  ret ptr %block
make:
  %keepable = icmp ule i64 %wanted, $most_idle
  br i1 %keepable, label %room, label %new
room:
  %rest = sub i64 $most_idle, %wanted
  call void @pool.keep(i64 %rest)
  br label %new
new:
  %length = shl i64 %wanted, 21
  %new.block = call ptr @pool.fresh(i64 2097152, i64 %length)
  $large_pages
  %new.address = ptrtoint ptr %new.block to i64
  %new.units = or i64 %wanted, 1048576
  %new.word = or i64 %new.address, %new.units
  br label %enter
enter:
  %j = phi i64 [ 0, %new ], [ %j.next, %full ]
  %new.slot = getelementptr [$most_blocks x i64], ptr @pool.blocks, i64 0, i64 %j
  %new.swap = cmpxchg ptr %new.slot, i64 0, i64 %new.word monotonic monotonic
  %entered = extractvalue { i64, i1 } %new.swap, 1
  br i1 %entered, label %made, label %full
full:
  %j.next = add i64 %j, 1
  %others = icmp ult i64 %j.next, $most_blocks
  br i1 %others, label %enter, label %crowded
crowded:
  call void @free(ptr %new.block)
  ret ptr null
made:
  ret ptr %new.block
}

define $vis void @ansor_free(ptr %memory) {
entry:
  %address = ptrtoint ptr %memory to i64
  %low = and i64 %address, 2097151
  %large = icmp eq i64 %low, 0
  br i1 %large, label %block, label %plain
block:
  call void @pool.give(ptr %memory)
  ret void
plain:
  %start = getelementptr i8, ptr %memory, i64 -64
  call void @free(ptr %start)
  ret void
}

; Keep a large block that its user is done with, if there are not too many.
define $own void @pool.give(ptr %memory) $cold {
entry:
  %address = ptrtoint ptr %memory to i64
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %slot = getelementptr [$most_blocks x i64], ptr @pool.blocks, i64 0, i64 %i
  %word = load atomic i64, ptr %slot monotonic, align 8
  %owner = and i64 %word, -2097152
  %found = icmp eq i64 %owner, %address
  br i1 %found, label %mine, label %next
next:
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, $most_blocks
  br i1 %more, label %look, label %give
mine:
  %units = and i64 %word, 1048575
  %before = atomicrmw add ptr @pool.idle, i64 %units monotonic
  %idle = add i64 %before, %units
  %room = icmp ule i64 %idle, $most_idle
  br i1 %room, label %keep, label %drop
keep:
  %idle.word = or i64 %address, %units
  store atomic i64 %idle.word, ptr %slot release, align 8
  ret void
drop:
  %back = atomicrmw sub ptr @pool.idle, i64 %units monotonic
  store atomic i64 0, ptr %slot monotonic, align 8
  br label %give
give:
  call void @free(ptr %memory)
  ret void
}
"""

LARGE_PAGES: Final = "%advised = call i32 @madvise(ptr %new.block, i64 %length, i32 14)"
LARGE_PAGES_DECLARATION: Final = "declare i32 @madvise(ptr, i64, i32)"
COLD: Final = "noinline optnone"
"""Of functions whose time does not count beside that of what they are for: compiled quickly."""

WINDOWS_MEMORY: Final = """
declare ptr @_aligned_malloc(i64, i64)
declare void @_aligned_free(ptr)

define $vis ptr @ansor_alloc(i64 %bytes) {
  %memory = call ptr @_aligned_malloc(i64 %bytes, i64 64)
  ret ptr %memory
}

define $vis void @ansor_free(ptr %memory) {
  call void @_aligned_free(ptr %memory)
  ret void
}
"""
