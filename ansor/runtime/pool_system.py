"""What the thread pool in LLVM IR asks of the operating system: threads, cores, sleeping.

Templates for `ansor.runtime.pool_ir`, which explains how the pool works and chooses among them.
"""

from typing import Final

START: Final = """
; Start workers up to %wanted threads, the caller included; gives the number of workers. Needs the lock.
define $own i32 @pool.start(i32 %wanted) {
entry:
  %mask = alloca [16 x i64], align 8
  %old.mask = alloca [16 x i64], align 8
  %attributes = alloca [32 x i64], align 16
  %stack = alloca i64, align 8
  call void @llvm.memset.p0.i64(ptr %mask, i8 -1, i64 128, i1 false)
  store i64 $synchronous_only, ptr %mask, align 8
  %hooked = load i32, ptr @pool.hooked, align 4
  %has.hook = icmp ne i32 %hooked, 0
  br i1 %has.hook, label %block, label %hook
hook:
  %hook.error = call i32 @$hook($hook_arguments)
  store i32 1, ptr @pool.hooked, align 4
  br label %block
block:
  %mask.error = call i32 @pthread_sigmask(i32 $set_mask, ptr %mask, ptr %old.mask)
  %init.error = call i32 @pthread_attr_init(ptr %attributes)
  %get.error = call i32 @pthread_attr_getstacksize(ptr %attributes, ptr %stack)
  %usual = load i64, ptr %stack, align 8
  %small = icmp ult i64 %usual, $least_stack
  br i1 %small, label %enlarge, label %begin
enlarge:
  %set.error = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 $least_stack)
  br label %begin
begin:
  %started = load atomic i32, ptr @pool.started monotonic, align 4
  %first = add i32 %started, 1
  br label %loop
loop:
  %next = phi i32 [ %first, %begin ], [ %following, %created ]
  %more = icmp slt i32 %next, %wanted
  br i1 %more, label %create, label %done
create:
  %wide = zext i32 %next to i64
  %argument = inttoptr i64 %wide to ptr
  %handle = getelementptr [$max_threads x i64], ptr @pool.handles, i64 0, i64 %wide
  %error = call i32 @pthread_create(ptr %handle, ptr %attributes, ptr @pool.worker, ptr %argument)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %done, label %created
created:
  call void @pool.join(i32 %next)
  %following = add i32 %next, 1
  br label %loop
done:
  %workers = sub i32 %next, 1
  store atomic i32 %workers, ptr @pool.started monotonic, align 4
  %destroy.error = call i32 @pthread_attr_destroy(ptr %attributes)
  %unmask.error = call i32 @pthread_sigmask(i32 $set_mask, ptr %old.mask, ptr null)
  ret i32 %workers
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_getstacksize(ptr, ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
"""

AFFINITY: Final = """
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i64 @llvm.ctpop.i64(i64)

; Cores that this process may run on.
define $own i32 @pool.cores() {
entry:
  %set = alloca [128 x i64], align 8
  call void @llvm.memset.p0.i64(ptr %set, i8 0, i64 1024, i1 false)
  %error = call i32 @sched_getaffinity(i32 0, i64 1024, ptr %set)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %online, label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
  %sum = phi i64 [ 0, %entry ], [ %sum.next, %loop ]
  %place = getelementptr [128 x i64], ptr %set, i64 0, i64 %i
  %bits = load i64, ptr %place, align 8
  %ones = call i64 @llvm.ctpop.i64(i64 %bits)
  %sum.next = add i64 %sum, %ones
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, 128
  br i1 %more, label %loop, label %done
online:
  %configured = call i64 @sysconf(i32 $online)
  br label %done
done:
  %count = phi i64 [ %sum.next, %loop ], [ %configured, %online ]
  %result = trunc i64 %count to i32
  ret i32 %result
}
"""

ONLINE: Final = """
; Cores of the machine.
define $own i32 @pool.cores() {
  %count = call i64 @sysconf(i32 $online)
  %result = trunc i64 %count to i32
  ret i32 %result
}
"""

APART: Final = """
; 1 + the core that the workers are to keep off; and of each the sum of its cores once it was told so, else 0.
@pool.home = $own global i32 0, align 128
@pool.told = $own global [$max_threads x i64] zeroinitializer, align 128
declare i32 @sched_getcpu()
declare i32 @pthread_getaffinity_np(i64, i64, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)

; A number that tells sets of cores from each other.
define $own i64 @pool.sum(ptr %set) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
  %sum = phi i64 [ 0, %entry ], [ %sum.next, %loop ]
  %place = getelementptr [128 x i64], ptr %set, i64 0, i64 %i
  %bits = load i64, ptr %place, align 8
  %shifted = mul i64 %sum, 6364136223846793005
  %sum.next = add i64 %shifted, %bits
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, 128
  br i1 %more, label %loop, label %done
done:
  ret i64 %sum.next
}

; Put core %core - 1 into a set, or take it out.
define $own void @pool.change(ptr %set, i32 %core, i1 %in) {
  %number = sub i32 %core, 1
  %above = lshr i32 %number, 6
  %above.wide = zext i32 %above to i64
  %place = getelementptr [128 x i64], ptr %set, i64 0, i64 %above.wide
  %below = and i32 %number, 63
  %below.wide = zext i32 %below to i64
  %bit = shl i64 1, %below.wide
  %others = xor i64 %bit, -1
  %old = load i64, ptr %place, align 8
  %with = or i64 %old, %bit
  %without = and i64 %old, %others
  %new = select i1 %in, i64 %with, i64 %without
  store i64 %new, ptr %place, align 8
  ret void
}

; A new worker runs where whoever starts it may.
define $own void @pool.join(i32 %share) {
  %wide = zext i32 %share to i64
  %told = getelementptr [$max_threads x i64], ptr @pool.told, i64 0, i64 %wide
  store i64 0, ptr %told, align 8
  store i32 0, ptr @pool.home, align 4
  ret void
}

; Keep the workers off the core of this thread, which is about to wake them; needs the lock. The core that
; they were kept off before is theirs again, unless somebody has said since where they, or all threads, run.
define $own void @pool.part(i32 %workers) {
entry:
  %set = alloca [128 x i64], align 8
  %core = call i32 @sched_getcpu()
  %known = icmp ult i32 %core, 8192
  %here = add i32 %core, 1
  %home = load i32, ptr @pool.home, align 4
  %moved = icmp ne i32 %here, %home
  %few = icmp ule i32 %workers, $most_kept_off
  %any = icmp ne i32 %workers, 0
  %some = and i1 %few, %any
  %new = and i1 %known, %moved
  %tell = and i1 %some, %new
  br i1 %tell, label %begin, label %done
begin:
  store i32 %here, ptr @pool.home, align 4
  call void @llvm.memset.p0.i64(ptr %set, i8 0, i64 1024, i1 false)
  %own.error = call i32 @sched_getaffinity(i32 0, i64 1024, ptr %set)
  %own = call i64 @pool.sum(ptr %set)
  br label %loop
loop:
  %i = phi i32 [ 1, %begin ], [ %i.next, %next ]
  %wide = zext i32 %i to i64
  %handle.place = getelementptr [$max_threads x i64], ptr @pool.handles, i64 0, i64 %wide
  %handle = load i64, ptr %handle.place, align 8
  %told = getelementptr [$max_threads x i64], ptr @pool.told, i64 0, i64 %wide
  %before = load i64, ptr %told, align 8
  store i64 0, ptr %told, align 8
  call void @llvm.memset.p0.i64(ptr %set, i8 0, i64 1024, i1 false)
  %error = call i32 @pthread_getaffinity_np(i64 %handle, i64 1024, ptr %set)
  %read = icmp eq i32 %error, 0
  br i1 %read, label %compare, label %next
compare:
  %now = call i64 @pool.sum(ptr %set)
  %same = icmp eq i64 %now, %before
  %had = icmp ne i32 %home, 0
  %apart = icmp ne i64 %now, %own
  %kept = and i1 %same, %had
  %ours = and i1 %kept, %apart
  br i1 %ours, label %back, label %take
back:
  call void @pool.change(ptr %set, i32 %home, i1 true)
  br label %take
take:
  call void @pool.change(ptr %set, i32 %here, i1 false)
  %refused = call i32 @pthread_setaffinity_np(i64 %handle, i64 1024, ptr %set)
  %set.now = icmp eq i32 %refused, 0
  br i1 %set.now, label %note, label %next
note:
  %sum = call i64 @pool.sum(ptr %set)
  store i64 %sum, ptr %told, align 8
  br label %next
next:
  %i.next = add i32 %i, 1
  %more = icmp ule i32 %i.next, %workers
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""

ANYWHERE: Final = """
define $own void @pool.join(i32 %share) {
  ret void
}

define $own void @pool.part(i32 %workers) {
  ret void
}
"""

FUTEX: Final = """
declare i64 @syscall(i64, ...)
declare i32 @clock_gettime(i32, ptr)

; Nanoseconds of the monotonic clock.
define $own i64 @pool.now() {
  %time = alloca [2 x i64], align 8
  %error = call i32 @clock_gettime(i32 1, ptr %time)
  %s = load i64, ptr %time, align 8
  %second = getelementptr [2 x i64], ptr %time, i64 0, i64 1
  %ns = load i64, ptr %second, align 8
  %whole = mul i64 %s, 1000000000
  %sum = add i64 %whole, %ns
  ret i64 %sum
}

; Sleep until woken, unless the 32 bits at %word (the low half, little endian) already differ from %seen.
define $own void @pool.sleep(ptr %word, i32 %seen) {
  %r = call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i64 128, i32 %seen, ptr null, ptr null, i64 0)
  ret void
}

define $own void @pool.wake(ptr %word) {
  %r = call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i64 129, i64 2147483647, ptr null, ptr null, i64 0)
  ret void
}
"""

NAP: Final = """
declare i32 @usleep(i32)

define $own i64 @pool.now() {
  ret i64 0
}

define $own void @pool.sleep(ptr %word, i32 %seen) {
entry:
  %now = load atomic i32, ptr %word acquire, align 4
  %same = icmp eq i32 %now, %seen
  br i1 %same, label %nap, label %done
nap:
  %r = call i32 @usleep(i32 1000)
  br label %done
done:
  ret void
}

define $own void @pool.wake(ptr %word) {
  ret void
}
"""

SHUTDOWN: Final = """
@llvm.global_dtors = appending global [1 x { i32, ptr, ptr }] [
  { i32, ptr, ptr } { i32 65535, ptr @pool.shutdown, ptr null }
]

; Stop and join the workers, and give memory back: the code that they run is about to be unloaded.
define $own void @pool.shutdown() {
entry:
  store atomic i32 1, ptr @pool.stop seq_cst, align 4
  %old = load atomic i64, ptr @pool.job monotonic, align 8
  %region = trunc i64 %old to i32
  %next = add i32 %region, 1
  %word = zext i32 %next to i64
  %started = load atomic i32, ptr @pool.started monotonic, align 4
  %any = icmp sgt i32 %started, 0
  br i1 %any, label %tell, label %done
tell:
  store atomic i64 %word, ptr @pool.job seq_cst, align 8
  call void @pool.wake(ptr @pool.job)
  %growth = atomicrmw add ptr @pool.grown, i32 1 seq_cst
  call void @pool.wake(ptr @pool.grown)
  br label %loop
loop:
  %i = phi i32 [ 1, %tell ], [ %i.next, %loop ]
  %wide = zext i32 %i to i64
  %place = getelementptr [$max_threads x i64], ptr @pool.handles, i64 0, i64 %wide
  %handle = load i64, ptr %place, align 8
  %error = call i32 @pthread_join(i64 %handle, ptr null)
  %i.next = add i32 %i, 1
  %more = icmp sle i32 %i.next, %started
  br i1 %more, label %loop, label %joined
joined:
  store atomic i32 0, ptr @pool.started monotonic, align 4
  br label %done
done:
  call void @pool.keep(i64 0)
  ret void
}
"""

SERIAL: Final = """\
define $vis void @ansor_parallel_for(ptr %body, ptr %data, i32 %most) {
  call void %body(ptr %data, i32 0, i32 1)
  ret void
}

define $vis void @ansor_parallel_for_limited(ptr %body, ptr %data, i32 %most, i32 %limit) {
  call void %body(ptr %data, i32 0, i32 1)
  ret void
}

define $vis void @ansor_set_num_threads(i32 %n) {
  ret void
}

define $vis i32 @ansor_get_num_threads() {
  ret i32 1
}

define $vis i64 @ansor_nanoseconds_alone() {
  ret i64 0
}
"""
