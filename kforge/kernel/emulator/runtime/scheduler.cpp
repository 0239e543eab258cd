// The scheduler: which thread runs next, when a further block is started, when nothing can go on.
#include "scheduler.h"

#include "tracing.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace kforge_emulator {

__thread Thread* current = nullptr;
unsigned long long atomic_operations = 0;
thread_local Scheduler* scheduler = nullptr;
thread_local Tracing* tracing = nullptr;

// Runs gangs to their end until none is left. False: failed.
bool Scheduler::run() {
  scheduler = this;
  if (start_gang()) {
    Thread* first = ready_.pop();
    current = first;
    void* load = context_of(first);
    void* fake = nullptr;
    if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&fake, first->stack, StackPool::size());
    kforge_switch(&main_context_, load);
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
  }
  current = nullptr;
  scheduler = nullptr;
  return outcome_->failure.load() == 0;
}

// ---- switching -----------------------------------------------------------------------------------------------

static void fiber_entry() { scheduler->fiber_main(); }

void* Scheduler::context_of(Thread* to) {
  if (to->stack) return to->context;
  char* stack = stacks_.take();
  to->stack = stack;
  return fresh_context(StackPool::top(stack), fiber_entry);
}

void Scheduler::switch_to(Thread* from, Thread* to) {
  current = to;
  void* load = context_of(to);
  void* fake = nullptr;
  if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&fake, to->stack, StackPool::size());
  kforge_switch(&from->context, load);
  if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
}

void Scheduler::switch_for_good(Thread* to) {
  current = to;
  void* load = context_of(to);
  void* unused = nullptr;
  if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(nullptr, to->stack, StackPool::size());
  kforge_switch(&unused, load);
  __builtin_unreachable();
}

void Scheduler::back_to_main() {
  void* unused = nullptr;
  if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(nullptr, main_bottom_, main_size_);
  kforge_switch(&unused, main_context_);
  __builtin_unreachable();
}

// A fiber runs one thread after the other for as long as none stops: kernels without barriers are a plain loop.
void Scheduler::fiber_main() {
  const void* bottom = nullptr;
  size_t size = 0;
  if (__sanitizer_finish_switch_fiber) {
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
    if (!main_bottom_) main_bottom_ = bottom, main_size_ = size;  // the first switch ever comes from main
  }
  char* stack = static_cast<char*>(current->stack);
  for (;;) {
    request_->call(request_->arguments);
    finish(current);
    Thread* next = next_thread();
    if (!next) {
      stacks_.give(stack);
      back_to_main();
    }
    if (next->stack) {
      stacks_.give(stack);
      switch_for_good(next);
    }
    next->stack = stack;
    current = next;
  }
}

// Null: all is done. Blocks start one after the other; a further one starts early only when every thread waits or
// sleeps and waking the sleepers changed nothing, because then it may be a later block that they wait for.
Thread* Scheduler::next_thread() {
  while (ready_.empty()) {
    if (!gathering_.empty()) {
      release_gathered();
    } else if (sleeping_.empty()) {
      if (!start_gang()) {
        if (live_ == 0) return nullptr;
        deadlock();
      }
    } else if (moved_ || !patient() || !start_gang()) {
      wake_sleepers();
    }
  }
  return ready_.pop();
}

// Whether sleepers have been woken often enough: threads that were only slowed down (atomics) may be working.
bool Scheduler::patient() const { return idle_rounds_ >= (only_spinning_ ? 16 : 1); }

void Scheduler::wake_sleepers() {
  if (moved_) idle_rounds_ = idle_wakes_ = 0;
  moved_ = false;
  woken_at_ = switches_;
  idle_wakes_ += sleeping_.size();
  if (++idle_rounds_ > 1000 && idle_wakes_ > (1u << 20)) deadlock();
  std::swap(sleeping_, woken_);
  sleeping_.clear();
  only_spinning_ = true;
  release(woken_.data(), unsigned(woken_.size()));
}

void Scheduler::sleep(Thread* thread, bool spinning) {
  sleeping_.push_back(thread);
  only_spinning_ &= spinning;
  if ((++switches_ & 0xfff) == 0) check_clock();
  Thread* next = next_thread();
  if (next != thread) switch_to(thread, next);
  thread->site.what = nullptr;
}

bool Scheduler::owns(const void* address) const {
  auto in = [&](const auto& v) { return address >= v.data() && address < v.data() + v.size(); };
  if (stacks_.contains(static_cast<const char*>(address))) return true;
  for (const auto& g : gangs_)
    if (in(g->threads) || in(g->warps) || in(g->blocks) || in(g->clusters)) return true;
  return false;
}

void Scheduler::suspend() {
  Thread* me = current;
  moved_ = true;
  if ((++switches_ & 0xfff) == 0) check_clock();
  Thread* next = next_thread();
  if (next != me) switch_to(me, next);
  me->site.what = nullptr;
}

void Scheduler::check_clock() {
  if (outcome_->failure.load(std::memory_order_relaxed)) back_to_main();
  // Others that never stop may wait for sleepers. Those just woken must all have had their turn, or none ever rests.
  if (!sleeping_.empty() && switches_ - woken_at_ > 4 * sleeping_.size()) wake_sleepers();
  if (std::chrono::steady_clock::now() < deadline_) return;
  char limit[32];
  snprintf(limit, sizeof limit, "%g", request_->seconds);
  fail(TIMED_OUT, std::string("no end after ") + limit + " s; " + waiting_summary());
}

// ---- order ---------------------------------------------------------------------------------------------------

// splitmix64
uint64_t Scheduler::random() {
  uint64_t z = random_state_ += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

void Scheduler::shuffle(Thread** threads, size_t count) {
  for (size_t i = count; i > 1; --i) std::swap(threads[i - 1], threads[random() % i]);
}

// 0: lock step; 1: greedy (whoever was released goes on first); 2: greedy from the last thread; >2: random.
void Scheduler::release(Thread** threads, unsigned count) {
  unsigned order = request_->order;
  if (order == 0) {
    for (unsigned i = 0; i < count; ++i) ready_.push_back(threads[i]);
  } else if (order == 1) {
    for (unsigned i = count; i-- > 0;) ready_.push_front(threads[i]);
  } else if (order == 2) {
    for (unsigned i = 0; i < count; ++i) ready_.push_front(threads[i]);
  } else {
    shuffle(threads, count);
    bool front = random() & 1;
    for (unsigned i = 0; i < count; ++i) front ? ready_.push_front(threads[i]) : ready_.push_back(threads[i]);
  }
}

}  // namespace kforge_emulator
