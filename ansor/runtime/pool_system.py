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
; Of each worker: 0 while it is awake, 1 + its core from when it falls asleep; and if the launcher has taken
; that core from those that the worker may run on, the negative of that, until the worker has taken it back.
@pool.places = $own global [$max_threads x i32] zeroinitializer, align 128
declare i32 @sched_getcpu()
declare i32 @pthread_getaffinity_np(i64, i64, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)

define $own ptr @pool.place(i32 %share) {
  %wide = zext i32 %share to i64
  %place = getelementptr [$max_threads x i32], ptr @pool.places, i64 0, i64 %wide
  ret ptr %place
}

; The word of a set of cores that has the bit of %core, and that bit.
define $own { ptr, i64 } @pool.bit(ptr %set, i32 %core) {
  %number = lshr i32 %core, 6
  %number.wide = zext i32 %number to i64
  %word = getelementptr [128 x i64], ptr %set, i64 0, i64 %number.wide
  %place = and i32 %core, 63
  %place.wide = zext i32 %place to i64
  %bit = shl i64 1, %place.wide
  %first = insertvalue { ptr, i64 } poison, ptr %word, 0
  %both = insertvalue { ptr, i64 } %first, i64 %bit, 1
  ret { ptr, i64 } %both
}

; A new worker, maybe of a process that has forked.
define $own void @pool.arrive(i32 %share) {
  %place = call ptr @pool.place(i32 %share)
  store atomic i32 0, ptr %place monotonic, align 4
  ret void
}

define $own void @pool.doze(i32 %share) {
entry:
  %core = call i32 @sched_getcpu()
  %known = icmp ult i32 %core, 8192
  %next = add i32 %core, 1
  %now = select i1 %known, i32 %next, i32 0
  call void @pool.move(i32 %share, i32 %now)
  ret void
}

define $own void @pool.rise(i32 %share) {
  call void @pool.move(i32 %share, i32 0)
  ret void
}

; Say where a worker is now, and let it run where it might before it was woken.
define $own void @pool.move(i32 %share, i32 %now) {
entry:
  %set = alloca [128 x i64], align 8
  %place = call ptr @pool.place(i32 %share)
  %before = atomicrmw xchg ptr %place, i32 %now acq_rel
  %taken = icmp slt i32 %before, 0
  br i1 %taken, label %read, label %done
read:
  call void @llvm.memset.p0.i64(ptr %set, i8 0, i64 1024, i1 false)
  %error = call i32 @sched_getaffinity(i32 0, i64 1024, ptr %set)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %done, label %back
back:
  %positive = sub i32 0, %before
  %core = sub i32 %positive, 1
  %bit = call { ptr, i64 } @pool.bit(ptr %set, i32 %core)
  %word = extractvalue { ptr, i64 } %bit, 0
  %one = extractvalue { ptr, i64 } %bit, 1
  %others = load i64, ptr %word, align 8
  %all = or i64 %others, %one
  store i64 %all, ptr %word, align 8
  %refused = call i32 @sched_setaffinity(i32 0, i64 1024, ptr %set)
  br label %done
done:
  ret void
}

; Let workers that fell asleep on the core of this thread, which is about to wake them, wake on another.
define $own void @pool.part(i32 %workers) {
entry:
  %set = alloca [128 x i64], align 8
  %here = call i32 @sched_getcpu()
  %wanted = add i32 %here, 1
  %known = icmp ult i32 %here, 8192
  %any = icmp sgt i32 %workers, 0
  %look = and i1 %known, %any
  br i1 %look, label %loop, label %done
loop:
  %i = phi i32 [ 1, %entry ], [ %i.next, %next ]
  %place = call ptr @pool.place(i32 %i)
  %asleep = load atomic i32, ptr %place monotonic, align 4
  %same = icmp eq i32 %asleep, %wanted
  br i1 %same, label %read, label %next
read:
  %wide = zext i32 %i to i64
  %handle.place = getelementptr [$max_threads x i64], ptr @pool.handles, i64 0, i64 %wide
  %handle = load i64, ptr %handle.place, align 8
  call void @llvm.memset.p0.i64(ptr %set, i8 0, i64 1024, i1 false)
  %error = call i32 @pthread_getaffinity_np(i64 %handle, i64 1024, ptr %set)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %next, label %take
take:
  %bit = call { ptr, i64 } @pool.bit(ptr %set, i32 %here)
  %word = extractvalue { ptr, i64 } %bit, 0
  %one = extractvalue { ptr, i64 } %bit, 1
  %all = load i64, ptr %word, align 8
  %clear = xor i64 %one, -1
  %others = and i64 %all, %clear
  store i64 %others, ptr %word, align 8
  %refused = call i32 @pthread_setaffinity_np(i64 %handle, i64 1024, ptr %set)
  %taken = icmp eq i32 %refused, 0
  br i1 %taken, label %tell, label %next
; It may be awake by now: then it takes the core back when it next falls asleep.
tell:
  %negative = sub i32 0, %wanted
  %was = atomicrmw xchg ptr %place, i32 %negative acq_rel
  br label %next
next:
  %i.next = add i32 %i, 1
  %more = icmp sle i32 %i.next, %workers
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""

ANYWHERE: Final = """
define $own void @pool.arrive(i32 %share) {
  ret void
}

define $own void @pool.doze(i32 %share) {
  ret void
}

define $own void @pool.rise(i32 %share) {
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
