// Runs gangs of blocks (one block, a cluster, or a cooperative grid) as fibers on the calling OS thread.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "context.h"
#include "kforge_emulator/runtime.h"

namespace kforge_emulator {

// Threads that can run. Each is in the ring at most once, so the ring never overflows.
class ReadyQueue {
 public:
  // Makes room; what is queued stays.
  void reserve(size_t threads) {
    if (threads + 1 <= ring_.size()) return;
    size_t n = 64;
    while (n < threads + 1) n *= 2;
    std::vector<Thread*> larger(n, nullptr);
    size_t count = tail_ - head_;
    for (size_t i = 0; i < count; ++i) larger[i] = ring_[(head_ + i) & (ring_.size() - 1)];
    ring_.swap(larger);
    head_ = 0, tail_ = count;
  }
  void clear() { head_ = tail_ = 0; }
  bool empty() const { return head_ == tail_; }
  void push_back(Thread* t) { ring_[tail_++ & (ring_.size() - 1)] = t; }
  void push_front(Thread* t) { ring_[--head_ & (ring_.size() - 1)] = t; }
  Thread* pop() { return ring_[head_++ & (ring_.size() - 1)]; }

 private:
  std::vector<Thread*> ring_;
  size_t head_ = 0, tail_ = 0;
};

struct Outcome {
  std::atomic<int> failure{0};
  std::string message;  // written by the worker that sets failure
  std::atomic_flag claimed = ATOMIC_FLAG_INIT;
};

// Hands out the numbers of gangs, in order, to one or several OS threads.
struct GangSource {
  std::atomic<uint64_t>& next;
  uint64_t gangs, chunk;
  uint64_t from = 0, until = 0;

  bool take(uint64_t& number) {
    if (from == until) {
      from = next.fetch_add(chunk);
      until = from < gangs ? (from + chunk < gangs ? from + chunk : gangs) : from;
    }
    if (from == until) return false;
    number = from++;
    return true;
  }
};

// The memory of blocks that run together. Usually one, used again and again; more where blocks wait for later ones.
struct Gang {
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<Block> blocks;
  std::vector<Cluster> clusters;
  std::vector<Thread*> order;  // in which threads start
  std::unique_ptr<char[]> arena;
  size_t arena_bytes = 0;
  Barrier grid_barrier;
  unsigned live = 0;
};

// What may be alive at once: CUDA threads, and bytes of shared memory (a GPU has such a limit too).
constexpr size_t kWindowThreads = 1 << 16, kWindowBytes = 256u << 20;

class __attribute__((visibility("default"))) Scheduler {
 public:
  void prepare(const LaunchRequest& request, Outcome& outcome, GangSource& source);
  bool run();

  // Called by threads, on their fibers.
  [[noreturn]] void fiber_main();
  void suspend();
  void release(Thread** threads, unsigned count);
  void release_barrier(Barrier& barrier);
  void complete_barrier(Barrier& barrier);
  bool complete_collective(Warp& warp, unsigned mask, Thread* last);
  void gather(Thread* thread) { gathering_.push_back(thread); }
  // Something happened that sleepers may wait for.
  void moved() { moved_ = true; }
  // Stops the calling thread until others have run. spinning: it did not ask for it (a long run of atomics).
  void sleep(Thread* thread, bool spinning);
  // Whether an address is the emulator's own memory: stacks, threads, blocks (not shared memory).
  bool owns(const void* address) const;
  [[noreturn]] void fail(Failure failure, const std::string& message);

 private:
  void reset_block(Block& block, uint64_t number);
  void poison(Block& block);
  void fence_off(const Block& block);
  void set_up(Gang& gang);
  bool start_gang();
  bool patient() const;
  void wake_sleepers();
  uint64_t random();
  void shuffle(Thread** threads, size_t count);
  void finish(Thread* thread);
  void leave_barrier(Barrier& barrier);
  void release_gathered();
  Thread* next_thread();
  void check_clock();
  [[noreturn]] void deadlock();
  std::string waiting_summary() const;
  [[noreturn]] void switch_for_good(Thread* to);
  void switch_to(Thread* from, Thread* to);
  void* context_of(Thread* to);
  [[noreturn]] void back_to_main();

  const LaunchRequest* request_ = nullptr;
  Outcome* outcome_ = nullptr;
  StackPool stacks_;
  ReadyQueue ready_;
  GangSource* source_ = nullptr;
  std::vector<std::unique_ptr<Gang>> gangs_;
  std::vector<Gang*> idle_;  // of gangs_: not running
  std::vector<Thread*> scratch_, gathering_, sleeping_, woken_;
  size_t arena_stride_ = 0, window_ = 1;
  uint64_t random_state_ = 0;
  unsigned live_ = 0, gang_blocks_ = 0, cluster_blocks_ = 0, block_threads_ = 0;
  bool sources_left_ = false;
  bool moved_ = true;           // something happened since the sleepers were last woken
  bool only_spinning_ = true;   // no sleeper called __nanosleep
  uint64_t idle_rounds_ = 0, idle_wakes_ = 0;  // wake-ups in a row that changed nothing
  uint64_t switches_ = 0, woken_at_ = 0;  // woken_at_: of the switches, when sleepers were last woken
  std::chrono::steady_clock::time_point deadline_;
  void* main_context_ = nullptr;
  const void* main_bottom_ = nullptr;
  size_t main_size_ = 0;
};

__attribute__((visibility("default"))) extern thread_local Scheduler* scheduler;

// What is in flight belongs to a block's threads (hopper.cpp).
void forget_asynchronous(Thread& thread);
void forget_mbarriers(Block& block);

std::string describe(const Site& site);
std::string hexadecimal(unsigned mask);

}  // namespace kforge_emulator
