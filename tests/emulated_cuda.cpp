// How kernels run that are compiled for the host: the threads of a block are fibers of one thread, which run in
// turn from one meeting (a barrier, or a shuffle of their warp) to the next. Blocks run one after another.
#include <stdlib.h>
#include <ucontext.h>
#include <deque>
#include <vector>

#include "emulated_cuda.h"

extern "C" char __start_shared_memory[] __attribute__((weak));
extern "C" char __stop_shared_memory[] __attribute__((weak));
Index threadIdx, blockIdx, blockDim, gridDim;

// -- fibers -------------------------------------------------------------------------------------------

enum State { RUNNING, AT_BARRIER, AT_SHUFFLE, ENDED };
enum { MOST = 1024, STACK = 256 << 10, MISALIGNED = 716, LAUNCH_FAILED = 719 };

struct Fiber {
  ucontext_t context;
  Index thread;
  unsigned number, shuffles;
  State state;
};
static Fiber fibers[MOST], *running;
static ucontext_t scheduler;
static void (*body)(void**);
static void** arguments;
static unsigned long long given[2][MOST];
static int broken;

static void meet(State where) {
  running->state = where;
  swapcontext(&running->context, &scheduler);
  threadIdx = running->thread;
}

void __syncthreads() { meet(AT_BARRIER); }

unsigned thread_number() { return running->number; }

unsigned long long exchange(unsigned mask, unsigned long long value, unsigned other) {
  // Two places by turns: who is slow reads the one while who is fast writes the other.
  unsigned long long* place = given[running->shuffles++ & 1u];
  place[running->number] = value;
  meet(AT_SHUFFLE);
  return mask >> (other % WARP) & 1u ? place[other] : value;
}

enum { BYTES = 64 };
static char gathered[2][MOST * BYTES];

void gather(const void* mine, unsigned bytes, void* all) {
  char* place = gathered[running->shuffles++ & 1u];
  memcpy(place + running->number * BYTES, mine, bytes);
  meet(AT_SHUFFLE);
  const unsigned first = running->number / WARP * WARP;
  for (unsigned lane = 0; lane < WARP; ++lane)
    memcpy((char*)all + lane * bytes, place + (first + lane) * BYTES, bytes);
}

void require_aligned(const void* place) {
  if ((size_t)place % 16) broken = MISALIGNED;
}

// -- copies that a thread does not wait for: made when it waits, and not before -------------------------

struct Copy {
  void* to;
  const void* from;
  int size;
};
typedef std::vector<Copy> Group;
static Group begun[MOST];
static std::deque<Group> committed[MOST];

void begin_copy(void* to, const void* from, int size) {
  if (((size_t)to | (size_t)from) % size) broken = MISALIGNED;
  begun[running->number].push_back({to, from, size});
}

void begin_fill(void* to, const void* from, int size, bool there) {
  begin_copy(to, from, size);
  if (!there) begun[running->number].back().from = nullptr;
}

static void finish(const Copy& one) {
  if (one.from)
    memcpy(one.to, one.from, one.size);
  else
    memset(one.to, 0, one.size);
}

void commit_copies() {
  committed[running->number].push_back(begun[running->number]);
  begun[running->number].clear();
}

void end_groups(size_t pending) {
  std::deque<Group>& groups = committed[running->number];
  for (; groups.size() > pending; groups.pop_front())
    for (const Copy& one : groups.front()) finish(one);
}

void end_copies() {
  commit_copies();
  end_groups(0);
}

static void fiber() {
  threadIdx = running->thread;
  body(arguments);
  meet(ENDED);
}

// Lets the fibers go on that have met; false if they never will.
static bool released(unsigned count) {
  unsigned met[4] = {0, 0, 0, 0};
  for (unsigned i = 0; i < count; ++i) met[fibers[i].state] += 1;
  if (met[AT_BARRIER] == count) {
    for (unsigned i = 0; i < count; ++i) fibers[i].state = RUNNING;
    return true;
  }
  bool any = false;
  for (unsigned start = 0; start < count; start += WARP) {
    const unsigned end = start + WARP < count ? start + WARP : count;
    unsigned here = 0;
    for (unsigned i = start; i < end; ++i) here += fibers[i].state == AT_SHUFFLE;
    if (here != end - start) continue;
    for (unsigned i = start; i < end; ++i) fibers[i].state = RUNNING;
    any = true;
  }
  return any;
}

static int run_block(unsigned count, char* stacks) {
  const size_t shared = (size_t)(__stop_shared_memory - __start_shared_memory);
  if (shared) memset(__start_shared_memory, 0xff, shared);
  for (unsigned i = 0; i < count; ++i) {
    Fiber& one = fibers[i];
    one.number = i, one.shuffles = 0, one.state = RUNNING;
    begun[i].clear(), committed[i].clear();
    one.thread = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
    getcontext(&one.context);
    one.context.uc_stack.ss_sp = stacks + (size_t)i * STACK;
    one.context.uc_stack.ss_size = STACK;
    one.context.uc_link = 0;
    makecontext(&one.context, fiber, 0);
  }
  for (;;) {
    unsigned ended = 0;
    for (unsigned i = 0; i < count; ++i) {
      if (fibers[i].state == RUNNING) {
        running = &fibers[i];
        swapcontext(&scheduler, &running->context);
      }
      ended += fibers[i].state == ENDED;
    }
    if (broken || ended == count) return broken;
    if (!released(count)) return LAUNCH_FAILED;
  }
}

int run_grid(void (*kernel)(void**), void** values, const unsigned* grid, const unsigned* block) {
  body = kernel, arguments = values;
  gridDim = {grid[0], grid[1], grid[2]}, blockDim = {block[0], block[1], block[2]};
  const unsigned threads = block[0] * block[1] * block[2];
  char* stacks = (char*)malloc((size_t)threads * STACK);
  int failed = broken = 0;
  for (unsigned z = 0; z < grid[2]; ++z)
    for (unsigned y = 0; y < grid[1]; ++y)
      for (unsigned x = 0; x < grid[0]; ++x) {
        blockIdx = {x, y, z};
        if (!failed) failed = run_block(threads, stacks);
      }
  free(stacks);
  return failed;
}
