"""The system-independent half of the thread pool in LLVM IR: shares, workers, launching.

Templates for `ansor.runtime.pool_ir`, which explains how the pool works; `$name` is filled in there.
"""

from typing import Final

COMMON: Final = """\
; What is written by one thread and read by another shares a cache line only with what moves along with it.
; The job: the word that workers watch, the body and its data, in one line. Written by the launcher. The word
; is the region's number (32 bits), how many shares it has (16) and of how many pieces each is (16).
@pool.job = $own global { i64, ptr, ptr } zeroinitializer, align 128
; Pieces that workers have finished, ever; and whether the launcher sleeps on that number.
@pool.done = $own global i32 0, align 128
@pool.waiting = $own global i32 0, align 4
@pool.sleepers = $own global i32 0, align 128
; How often regions grew: workers that the last one did not ask for sleep on that number.
@pool.grown = $own global i32 0, align 128
@pool.lock = $own global i32 0, align 128
@pool.threads = $own global i32 0, align 128
@pool.started = $own global i32 0, align 4
@pool.stop = $own global i32 0, align 4
@pool.hooked = $own global i32 0, align 4
@pool.spin = $own global i32 $worker_spin, align 4
; Time for which others ran shares whose own threads had not come by the end of it [ns].
@pool.stolen = $own global i64 0, align 128
; Of each share: how many pieces its worker has taken (16 bits, from the front) and others have (16, from the
; back), in the region of the number that is the high half.
@pool.claims = $own global [$max_threads x [8 x i64]] zeroinitializer, align 128
@pool.handles = $own global [$max_threads x i64] zeroinitializer, align 128
@pool.variable = private constant [18 x i8] c"ANSOR_NUM_THREADS\\00"

$pause_declaration
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @$hook($hook_types)
declare ptr @getenv(ptr)
declare i32 @atoi(ptr)
declare i64 @sysconf(i32)
declare i32 @sched_yield()

; Between two looks at a word: a pause at first, later an offer of the core to whoever else needs it.
define $own void @pool.relax(i32 %turn) {
entry:
  %early = icmp slt i32 %turn, $polite_after
  br i1 %early, label %pause, label %yield
pause:
  $pause
  ret void
yield:
  %r = call i32 @sched_yield()
  ret void
}

; How long threads spin depends on how many there are, of whom those that have no share do not count.
define $own void @pool.settle(i32 %count) {
  %cores = call i32 @pool.cores()
  %crowded = icmp sgt i32 %count, %cores
  %spin = select i1 %crowded, i32 $crowded_spin, i32 $worker_spin
  store atomic i32 %spin, ptr @pool.spin monotonic, align 4
  ret void
}

; In the child there is no thread of the pool, and none that had launched a region: one under way is over.
; A new worker that found its job with open shares would run a body on a stack that is gone.
define $own void @pool.after_fork() {
  %job = load atomic i64, ptr @pool.job monotonic, align 8
  %region = trunc i64 %job to i32
  %next = add i32 %region, 1
  %word = zext i32 %next to i64
  store atomic i64 %word, ptr @pool.job monotonic, align 8
  store atomic i32 0, ptr @pool.started monotonic, align 4
  store atomic i32 0, ptr @pool.sleepers monotonic, align 4
  store atomic i32 0, ptr @pool.waiting monotonic, align 4
  store atomic i32 0, ptr @pool.lock release, align 4
  ret void
}

; How many shares a region has, by its word, and of how many pieces each is.
define $own i32 @pool.shares(i64 %word) {
  %shifted = lshr i64 %word, 32
  %wide = and i64 %shifted, 65535
  %count = trunc i64 %wide to i32
  ret i32 %count
}

define $own i32 @pool.pieces(i64 %word) {
  %wide = lshr i64 %word, 48
  %pieces = trunc i64 %wide to i32
  ret i32 %pieces
}

define $own ptr @pool.claim(i32 %share) {
  %wide = zext i32 %share to i64
  %claim = getelementptr [$max_threads x [8 x i64]], ptr @pool.claims, i64 0, i64 %wide, i64 0
  ret ptr %claim
}

; What has been taken of a share in region %region, as its claim says it; -1 if the region is over.
define $own i32 @pool.taken(i64 %claim, i32 %region) {
  %high = lshr i64 %claim, 32
  %of = trunc i64 %high to i32
  %counts = trunc i64 %claim to i32
  %age = sub i32 %region, %of
  %past = icmp slt i32 %age, 0
  %untouched = icmp sgt i32 %age, 0
  %now = select i1 %untouched, i32 0, i32 %counts
  %taken = select i1 %past, i32 -1, i32 %now
  ret i32 %taken
}

; Whether some of so many pieces are left; of a region that is over none are.
define $own i1 @pool.open(i32 %taken, i32 %pieces) {
  %front = and i32 %taken, 65535
  %back = lshr i32 %taken, 16
  %both = add i32 %front, %back
  %open = icmp ult i32 %both, %pieces
  ret i1 %open
}

; Run the pieces of share %share that nobody has taken yet; gives how many. Body and data are those of the
; region as long as a piece of it runs.
define $own i32 @pool.work(i32 %share, i1 %own, i64 %word) {
entry:
  %region = trunc i64 %word to i32
  %count = call i32 @pool.shares(i64 %word)
  %pieces = call i32 @pool.pieces(i64 %word)
  %region.wide = zext i32 %region to i64
  %region.high = shl i64 %region.wide, 32
  %step = select i1 %own, i32 1, i32 65536
  %first = mul i32 %share, %pieces
  %all = mul i32 %count, %pieces
  %claim = call ptr @pool.claim(i32 %share)
  %body.place = getelementptr { i64, ptr, ptr }, ptr @pool.job, i64 0, i32 1
  %data.place = getelementptr { i64, ptr, ptr }, ptr @pool.job, i64 0, i32 2
  br label %next
next:
  %ran = phi i32 [ 0, %entry ], [ %ran, %try ], [ %more, %run ]
  %seen = load atomic i64, ptr %claim acquire, align 8
  %taken = call i32 @pool.taken(i64 %seen, i32 %region)
  %open = call i1 @pool.open(i32 %taken, i32 %pieces)
  br i1 %open, label %try, label %done
try:
  %counts = add i32 %taken, %step
  %counts.wide = zext i32 %counts to i64
  %claimed = or i64 %region.high, %counts.wide
  %swap = cmpxchg ptr %claim, i64 %seen, i64 %claimed acq_rel acquire
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %run, label %next
run:
  %body = load ptr, ptr %body.place, align 8
  %data = load ptr, ptr %data.place, align 8
  %front = and i32 %taken, 65535
  %back = lshr i32 %taken, 16
  %before.last = sub i32 %pieces, 1
  %from.back = sub i32 %before.last, %back
  %piece = select i1 %own, i32 %front, i32 %from.back
  %index = add i32 %first, %piece
  call void %body(ptr %data, i32 %index, i32 %all)
  %more = add i32 %ran, 1
  br label %next
done:
  ret i32 %ran
}

; Run what is left of the shares of others, from that behind %share on; gives how many pieces. A worker tells
; the launcher of them share by share: it may be waiting for the last one.
define $own i32 @pool.help(i32 %share, i64 %word) {
entry:
  %region = trunc i64 %word to i32
  %count = call i32 @pool.shares(i64 %word)
  %pieces = call i32 @pool.pieces(i64 %word)
  br label %next
next:
  %last = phi i32 [ %share, %entry ], [ %other, %look ], [ %other, %help ], [ %other, %told ]
  %ran = phi i32 [ 0, %entry ], [ %ran, %look ], [ %ran, %help ], [ %ran.more, %told ]
  %behind = add i32 %last, 1
  %round = icmp sge i32 %behind, %count
  %other = select i1 %round, i32 0, i32 %behind
  %own = icmp eq i32 %other, %share
  br i1 %own, label %done, label %current
current:
  %now = load atomic i64, ptr @pool.job monotonic, align 8
  %same = icmp eq i64 %now, %word
  br i1 %same, label %look, label %done
look:
  %claim = call ptr @pool.claim(i32 %other)
  %seen = load atomic i64, ptr %claim acquire, align 8
  %taken = call i32 @pool.taken(i64 %seen, i32 %region)
  %open = call i1 @pool.open(i32 %taken, i32 %pieces)
  br i1 %open, label %help, label %next
help:
  %begun = call i64 @pool.now()
  %some = call i32 @pool.work(i32 %other, i1 false, i64 %word)
  %any = icmp ne i32 %some, 0
  br i1 %any, label %helped, label %next
; The region is not over before this thread has told of its pieces, so the claim is still one of it.
helped:
  %ended = call i64 @pool.now()
  %ran.more = add i32 %ran, %some
  %took = sub i64 %ended, %begun
  %after = load atomic i64, ptr %claim monotonic, align 8
  %front.after = and i64 %after, 65535
  %alone = icmp eq i64 %front.after, 0
  %long = icmp sge i64 %took, $unnoticed
  %missed = and i1 %alone, %long
  br i1 %missed, label %count.time, label %tell
count.time:
  %stolen = atomicrmw add ptr @pool.stolen, i64 %took monotonic
  br label %tell
tell:
  %worker = icmp ne i32 %share, 0
  br i1 %worker, label %report, label %told
report:
  call void @pool.finish(i32 %some)
  br label %told
told:
  br label %next
done:
  ret i32 %ran
}

; A worker has finished pieces: tell the launcher.
define $own void @pool.finish(i32 %pieces) {
entry:
  %some = icmp ne i32 %pieces, 0
  br i1 %some, label %add, label %done
add:
  %finished = atomicrmw add ptr @pool.done, i32 %pieces seq_cst
  %waiting = load atomic i32, ptr @pool.waiting seq_cst, align 4
  %wake = icmp ne i32 %waiting, 0
  br i1 %wake, label %rouse, label %done
rouse:
  call void @pool.wake(ptr @pool.done)
  br label %done
done:
  ret void
}

define $vis void @ansor_set_num_threads(i32 %n) {
  %small = icmp slt i32 %n, 1
  %low = select i1 %small, i32 1, i32 %n
  %large = icmp sgt i32 %low, $max_threads
  %count = select i1 %large, i32 $max_threads, i32 %low
  store atomic i32 %count, ptr @pool.threads monotonic, align 4
  ret void
}

define $vis i64 @ansor_nanoseconds_alone() {
  %stolen = load atomic i64, ptr @pool.stolen monotonic, align 8
  ret i64 %stolen
}

define $vis i32 @ansor_get_num_threads() {
entry:
  %set = load atomic i32, ptr @pool.threads monotonic, align 4
  %known = icmp ne i32 %set, 0
  br i1 %known, label %done, label %ask
ask:
  %text = call ptr @getenv(ptr @pool.variable)
  %unset = icmp eq ptr %text, null
  br i1 %unset, label %count, label %parse
parse:
  %number = call i32 @atoi(ptr %text)
  %valid = icmp sgt i32 %number, 0
  br i1 %valid, label %found, label %count
count:
  %cores = call i32 @pool.cores()
  br label %found
found:
  %chosen = phi i32 [ %number, %parse ], [ %cores, %count ]
  call void @ansor_set_num_threads(i32 %chosen)
  %stored = load atomic i32, ptr @pool.threads monotonic, align 4
  br label %done
done:
  %result = phi i32 [ %set, %entry ], [ %stored, %found ]
  ret i32 %result
}
"""

WORKER: Final = """
define $own ptr @pool.worker(ptr %argument) {
entry:
  %share.wide = ptrtoint ptr %argument to i64
  %share = trunc i64 %share.wide to i32
  br label %idle
idle:
  %last = phi i64 [ 0, %entry ], [ %word, %ran ], [ %last, %sleep ]
  %limit = load atomic i32, ptr @pool.spin monotonic, align 4
  br label %spin
spin:
  %turn = phi i32 [ 0, %idle ], [ %turn.next, %pause ]
  %word = load atomic i64, ptr @pool.job acquire, align 8
  %new = icmp ne i64 %word, %last
  br i1 %new, label %look, label %tired
tired:
  %tired.now = icmp sge i32 %turn, %limit
  br i1 %tired.now, label %sleep, label %pause
pause:
  call void @pool.relax(i32 %turn)
  %turn.next = add i32 %turn, 1
  br label %spin
sleep:
  %before = atomicrmw add ptr @pool.sleepers, i32 1 seq_cst
  %last.low = trunc i64 %last to i32
  call void @pool.sleep(ptr @pool.job, i32 %last.low)
  %after = atomicrmw sub ptr @pool.sleepers, i32 1 seq_cst
  br label %idle
look:
  %stop = load atomic i32, ptr @pool.stop acquire, align 4
  %stopping = icmp ne i32 %stop, 0
  br i1 %stopping, label %leave, label %asked
asked:
  %count = call i32 @pool.shares(i64 %word)
  %concerned = icmp slt i32 %share, %count
  br i1 %concerned, label %run, label %park
; Whoever makes regions grow has told of the new one before.
park:
  %grown = load atomic i32, ptr @pool.grown seq_cst, align 4
  %later = load atomic i64, ptr @pool.job seq_cst, align 8
  %same = icmp eq i64 %later, %word
  br i1 %same, label %parked, label %ran
parked:
  call void @pool.sleep(ptr @pool.grown, i32 %grown)
  br label %park
run:
  %own = call i32 @pool.work(i32 %share, i1 true, i64 %word)
  call void @pool.finish(i32 %own)
  %pieces = call i32 @pool.pieces(i64 %word)
  %divided = icmp ugt i32 %pieces, 1
  br i1 %divided, label %help, label %ran
help:
  %helped = call i32 @pool.help(i32 %share, i64 %word)
  br label %ran
ran:
  br label %idle
leave:
  ret ptr null
}
"""

LAUNCH: Final = """
define $vis void @ansor_parallel_for(ptr %body, ptr %data, i32 %most) {
  call void @ansor_parallel_for_limited(ptr %body, ptr %data, i32 %most, i32 0)
  ret void
}

define $vis void @ansor_parallel_for_limited(ptr %body, ptr %data, i32 %most, i32 %limit) {
entry:
  %threads = call i32 @ansor_get_num_threads()
  %limits = icmp sgt i32 %limit, 0
  %below = icmp slt i32 %limit, %threads
  %limited = and i1 %limits, %below
  %wanted = select i1 %limited, i32 %limit, i32 %threads
  %single = icmp sle i32 %wanted, 1
  br i1 %single, label %serial, label %lock
lock:
  %swap = cmpxchg ptr @pool.lock, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %swap, 1
  br i1 %got, label %locked, label %serial
serial:
  call void %body(ptr %data, i32 0, i32 1)
  ret void
locked:
  %stop = load atomic i32, ptr @pool.stop monotonic, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %give_up, label %enough
enough:
  %started = load atomic i32, ptr @pool.started monotonic, align 4
  %others = sub i32 %wanted, 1
  %missing = icmp slt i32 %started, %others
  br i1 %missing, label %start, label %ready
start:
  %now = call i32 @pool.start(i32 %wanted)
  br label %ready
ready:
  %workers = phi i32 [ %started, %enough ], [ %now, %start ]
  %there = add i32 %workers, 1
  %fewer = icmp slt i32 %there, %wanted
  %count = select i1 %fewer, i32 %there, i32 %wanted
  %alone = icmp sle i32 %count, 1
  br i1 %alone, label %give_up, label %publish
give_up:
  store atomic i32 0, ptr @pool.lock release, align 4
  br label %serial
publish:
  %each = sdiv i32 %most, %count
  %many = icmp sgt i32 %each, $most_pieces
  %few = icmp slt i32 %each, 1
  %at.most = select i1 %many, i32 $most_pieces, i32 %each
  %pieces = select i1 %few, i32 1, i32 %at.most
  %base = load atomic i32, ptr @pool.done monotonic, align 4
  %body.place = getelementptr { i64, ptr, ptr }, ptr @pool.job, i64 0, i32 1
  store ptr %body, ptr %body.place, align 8
  %data.place = getelementptr { i64, ptr, ptr }, ptr @pool.job, i64 0, i32 2
  store ptr %data, ptr %data.place, align 8
  %old = load atomic i64, ptr @pool.job monotonic, align 8
  %old.region = trunc i64 %old to i32
  %old.count = call i32 @pool.shares(i64 %old)
  %grown = icmp slt i32 %old.count, %count
  %kept = icmp eq i32 %old.count, %count
  br i1 %kept, label %tell, label %settle
settle:
  call void @pool.settle(i32 %count)
  br i1 %grown, label %renew, label %tell
; Claims of shares that the last region did not have may be so old that they would seem to be of the future.
; A worker that still looks at an earlier region cannot take these shares for it: they were taken then.
renew:
  %new = phi i32 [ %old.count, %settle ], [ %new.next, %renew ]
  %new.claim = call ptr @pool.claim(i32 %new)
  %old.region.wide = zext i32 %old.region to i64
  %old.claim = shl i64 %old.region.wide, 32
  store atomic i64 %old.claim, ptr %new.claim monotonic, align 8
  %new.next = add i32 %new, 1
  %newer = icmp slt i32 %new.next, %count
  br i1 %newer, label %renew, label %tell
tell:
  %region = add i32 %old.region, 1
  %region.wide = zext i32 %region to i64
  %count.wide = zext i32 %count to i64
  %count.high = shl i64 %count.wide, 32
  %pieces.wide = zext i32 %pieces to i64
  %pieces.high = shl i64 %pieces.wide, 48
  %shape = or i64 %count.high, %pieces.high
  %word = or i64 %shape, %region.wide
  store atomic i64 %word, ptr @pool.job seq_cst, align 8
  br i1 %grown, label %unpark, label %told
unpark:
  %growth = atomicrmw add ptr @pool.grown, i32 1 seq_cst
  call void @pool.wake(ptr @pool.grown)
  br label %told
told:
  %sleepers = load atomic i32, ptr @pool.sleepers seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %rouse, label %own
rouse:
  call void @pool.part(i32 %workers)
  call void @pool.wake(ptr @pool.job)
  br label %own
own:
  %first = call i32 @pool.work(i32 0, i1 true, i64 %word)
  %all = mul i32 %count, %pieces
  %end = add i32 %base, %all
  %target = sub i32 %end, %first
  %early = load atomic i32, ptr @pool.done acquire, align 4
  %complete.early = icmp eq i32 %early, %target
  br i1 %complete.early, label %finish, label %help
help:
  %helped = call i32 @pool.help(i32 0, i64 %word)
  %need = sub i32 %target, %helped
  br label %wait
wait:
  %spin.worker = load atomic i32, ptr @pool.spin monotonic, align 4
  %crowded = icmp slt i32 %spin.worker, $launcher_spin
  %patience = select i1 %crowded, i32 %spin.worker, i32 $launcher_spin
  br label %spin
spin:
  %turn = phi i32 [ 0, %wait ], [ %turn.next, %pause ]
  %done = load atomic i32, ptr @pool.done acquire, align 4
  %complete = icmp eq i32 %done, %need
  br i1 %complete, label %finish, label %tired
tired:
  %tired.now = icmp sge i32 %turn, %patience
  br i1 %tired.now, label %sleep, label %pause
pause:
  call void @pool.relax(i32 %turn)
  %turn.next = add i32 %turn, 1
  br label %spin
sleep:
  store atomic i32 1, ptr @pool.waiting seq_cst, align 4
  %done.now = load atomic i32, ptr @pool.done seq_cst, align 4
  %complete.now = icmp eq i32 %done.now, %need
  br i1 %complete.now, label %awake, label %doze
doze:
  call void @pool.sleep(ptr @pool.done, i32 %done.now)
  br label %sleep
awake:
  store atomic i32 0, ptr @pool.waiting monotonic, align 4
  br label %finish
finish:
  store atomic i32 0, ptr @pool.lock release, align 4
  ret void
}
"""
