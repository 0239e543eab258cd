// Gangs: what is started together (one block, a cluster, or a cooperative grid), and its memory.
#include <algorithm>
#include <cstring>

#include "scheduler.h"
#include "tracing.h"

namespace kforge_emulator {

void Scheduler::prepare(const LaunchRequest& request, Outcome& outcome, GangSource& source) {
  request_ = &request;
  outcome_ = &outcome;
  source_ = &source;
  const unsigned* c = request.cluster;
  const unsigned* b = request.block;
  block_threads_ = b[0] * b[1] * b[2];
  cluster_blocks_ = c[0] * c[1] * c[2];
  gang_blocks_ = request.cooperative ? request.grid[0] * request.grid[1] * request.grid[2] : cluster_blocks_;
  // Whole KiB keep alignments equal; 1 KiB at the end of each block's part stays unused, as a redzone.
  arena_stride_ = (request.static_bytes + 1023 + request.dynamic_bytes + 1024) / 1024 * 1024 + 1024;
  size_t gang_threads = size_t(gang_blocks_) * block_threads_, gang_bytes = arena_stride_ * gang_blocks_;
  window_ = std::max<size_t>(1, std::min(kWindowThreads / gang_threads, kWindowBytes / gang_bytes));
  gangs_.resize(1);  // the others' memory goes back
  if (!gangs_[0]) gangs_[0] = std::make_unique<Gang>();
  set_up(*gangs_[0]);
  idle_.assign(1, gangs_[0].get());
  ready_.clear();
  gathering_.clear();
  sleeping_.clear();
  random_state_ = request.order;
  sources_left_ = true;
  live_ = 0;
  moved_ = true;
  idle_rounds_ = idle_wakes_ = 0;
  stacks_.reset();
  main_bottom_ = nullptr;
  deadline_ = std::chrono::steady_clock::now() + std::chrono::microseconds(uint64_t(request.seconds * 1e6));
}

void Scheduler::set_up(Gang& gang) {
  const LaunchRequest& request = *request_;
  const unsigned *b = request.block, *c = request.cluster;
  unsigned block_warps = (block_threads_ + 31) / 32;
  gang.threads.assign(size_t(gang_blocks_) * block_threads_, Thread{});
  gang.warps.assign(size_t(gang_blocks_) * block_warps, Warp{});
  gang.blocks.assign(gang_blocks_, Block{});
  gang.clusters.assign(gang_blocks_ / cluster_blocks_, Cluster{});
  gang.order.resize(gang.threads.size());
  gang.live = 0;
  if (gang.arena_bytes < arena_stride_ * gang_blocks_ + 1024) {
    gang.arena_bytes = arena_stride_ * gang_blocks_ + 1024;
    gang.arena.reset(new char[gang.arena_bytes]);
  } else if (__asan_unpoison_memory_region) {
    __asan_unpoison_memory_region(gang.arena.get(), gang.arena_bytes);
  }
  char* arena = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(gang.arena.get()) + 1023) / 1024 * 1024);
  for (unsigned k = 0; k < gang_blocks_; ++k) {
    Block& block = gang.blocks[k];
    block.gang = &gang;
    block.dim = dim3(b[0], b[1], b[2]);
    block.grid = dim3(request.grid[0], request.grid[1], request.grid[2]);
    block.size = block_threads_;
    block.threads = &gang.threads[size_t(k) * block_threads_];
    block.warps = &gang.warps[size_t(k) * block_warps];
    block.shared = arena + k * arena_stride_;
    block.dynamic_offset = (request.static_bytes + 1023) / 1024 * 1024;
    block.dynamic_bytes = request.dynamic_bytes;
    block.grid_barrier = request.cooperative ? &gang.grid_barrier : nullptr;
    fence_off(block);
    for (unsigned i = 0; i < block_threads_; ++i) {
      Thread& t = block.threads[i];
      t.index = {i % b[0], i / b[0] % b[1], i / (b[0] * b[1])};
      t.rank = i;
      t.lane = i & 31;
      t.block = &block;
      t.warp = &block.warps[i / 32];
    }
    for (unsigned w = 0; w < block_warps; ++w) block.warps[w].threads = &block.threads[w * 32];
  }
  for (unsigned k = 0; k < gang.clusters.size(); ++k) {
    Cluster& cluster = gang.clusters[k];
    cluster.blocks = &gang.blocks[k * cluster_blocks_];
    cluster.size = cluster_blocks_;
    cluster.dim = dim3(c[0], c[1], c[2]);
    for (unsigned r = 0; r < cluster_blocks_; ++r) {
      Block& block = cluster.blocks[r];
      block.cluster = &cluster;
      block.rank_in_cluster = r;
      block.index_in_cluster = {r % c[0], r / c[0] % c[1], r / (c[0] * c[1])};
    }
  }
  for (size_t i = 0; i < gang.threads.size(); ++i) gang.order[i] = &gang.threads[i];
  if (request.order == 2) std::reverse(gang.order.begin(), gang.order.end());
}

// Its threads can run from now on. False: no gang is left, or as many are alive as may be.
bool Scheduler::start_gang() {
  uint64_t number;
  if (!sources_left_ || (idle_.empty() && gangs_.size() >= window_)) return false;
  if (!source_->take(number)) return sources_left_ = false;
  if (idle_.empty()) {
    gangs_.push_back(std::make_unique<Gang>());
    set_up(*gangs_.back());
    if (tracing) tracing->memory_moved();
    idle_.push_back(gangs_.back().get());
  }
  Gang& gang = *idle_.back();
  idle_.pop_back();
  for (unsigned k = 0; k < gang.clusters.size(); ++k) {
    Cluster& cluster = gang.clusters[k];
    cluster.barrier = Barrier{};
    cluster.barrier.expected = cluster.size * block_threads_;
    for (unsigned r = 0; r < cluster.size; ++r) reset_block(cluster.blocks[r], number * gang.clusters.size() + k);
  }
  gang.grid_barrier = Barrier{};
  gang.live = gang.grid_barrier.expected = unsigned(gang.threads.size());
  live_ += gang.live;
  ready_.reserve(live_);
  scratch_.reserve(live_);
  if (request_->order > 2) shuffle(gang.order.data(), gang.order.size());
  for (Thread* t : gang.order) ready_.push_back(t);
  moved_ = true;
  return true;
}

// `number` counts clusters: x fastest. Blocks of one cluster are neighbours in the grid.
void Scheduler::reset_block(Block& block, uint64_t number) {
  const unsigned *g = request_->grid, *c = request_->cluster;
  unsigned nx = g[0] / c[0], ny = g[1] / c[1];
  const uint3& in = block.index_in_cluster;
  block.index = {unsigned(number % nx) * c[0] + in.x, unsigned(number / nx % ny) * c[1] + in.y,
                 unsigned(number / nx / ny) * c[2] + in.z};
  block.number = unsigned(number) * block.cluster->size + block.rank_in_cluster;
  block.barrier = Barrier{};
  block.barrier.expected = block.size;
  block.barrier.one_place = true;
  for (Barrier& b : block.named) b = Barrier{};
  unsigned warps = (block.size + 31) / 32;
  for (unsigned w = 0; w < warps; ++w) {
    block.warps[w].live = w * 32 + 32 <= block.size ? ~0u : (1u << (block.size & 31)) - 1;
    block.warps[w].waiting = 0;
  }
  for (unsigned i = 0; i < block.size; ++i) {
    Thread& t = block.threads[i];
    t.stack = nullptr;
    t.site = Site{};
    t.spins = 0;
    if (t.copies.group || !t.copies.copies.empty()) t.copies = CopyQueue{};
    if (t.stores || t.products) forget_asynchronous(t);
  }
  poison(block);
  if (tracing) tracing->block_starts(block);
  forget_mbarriers(block);
}

// Shared memory starts as NaN, so that a value read before it is written is seen.
void Scheduler::poison(Block& block) {
  if (__asan_poison_memory_region) {  // variable by variable: what lies between them may not be touched
    for (uint64_t i = 0; i < request_->variable_count; ++i)
      memset(block.shared + request_->variables[i].offset, 0xff, request_->variables[i].bytes);
  } else {
    memset(block.shared, 0xff, request_->static_bytes);
  }
  memset(block.shared + block.dynamic_offset, 0xff, block.dynamic_bytes);
}

// Redzones around every shared variable and behind the dynamic memory.
void Scheduler::fence_off(const Block& block) {
  if (!__asan_poison_memory_region) return;
  __asan_poison_memory_region(block.shared, arena_stride_);
  for (uint64_t i = 0; i < request_->variable_count; ++i)
    __asan_unpoison_memory_region(block.shared + request_->variables[i].offset, request_->variables[i].bytes);
  __asan_unpoison_memory_region(block.shared + block.dynamic_offset, block.dynamic_bytes);
}

}  // namespace kforge_emulator
