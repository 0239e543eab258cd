// The tracer's synchronisation: blocks, barriers, warps, fences, atomics, flags.
#include "tracer.h"

namespace kforge_emulator {

void Tracer::block_starts(Block& block) {
  std::vector<View>& views = views_[&block];
  views.assign(block.size, View{});
  proxies_.erase(&block);
  for (unsigned i = 0; i < block.size; ++i) block.threads[i].view = &views[i];
  if (blocks_.size() <= block.number) blocks_.resize(block.number + 1);
  blocks_[block.number].index = block.index;
  barriers_.erase(&block.barrier);
  for (Barrier& b : block.named) barriers_.erase(&b);
  barriers_.erase(&block.cluster->barrier);
  for (auto& [address, m] : block.mbarriers) barriers_.erase(&m.barrier);
}

void Tracer::thread_exits(Thread& thread) {
  settle();
  if (!glances_.empty()) report_glances(&thread);
  BlockInfo& info = blocks_[thread.block->number];
  info.exited = std::max(info.exited, thread.view->clock);
  info.exited_known.add(thread.view->known);
  if (!thread.warp->live) profile_.flush(thread.warp);
}

// ---- barriers ------------------------------------------------------------------------------------------------

static Known snapshot(const Thread& t) { return t.view->snapshot(t.block->number + 1, t.rank / 32, t.lane); }

void Tracer::arrives(Barrier& barrier, bool stays) {
  settle();
  Gathering& g = barriers_[&barrier];
  if (stays) {
    g.inside.push_back(current);
    return;
  }
  View& v = *current->view;
  g.loose = true;
  g.sum.add(snapshot(*current));
  g.pending.add(v.pending);
  g.released_block.add(v.released_block);
  g.released_device.add(v.released_device);
  ++v.clock;
}

static void learn(Thread& t, const View& what) {
  View& v = *t.view;
  v.absorb(what.known, t.block->number + 1, t.rank / 32);
  v.pending = join(v.pending, what.pending);
  v.released_block = join(v.released_block, what.released_block);
  v.released_device = join(v.released_device, what.released_device);
  ++v.clock;
}

void Tracer::waits(Barrier& barrier, bool passed) {
  settle();
  Gathering& g = barriers_[&barrier];
  if (passed)
    learn(*current, g.last);
  else
    g.waiting.push_back(current);
}

void Tracer::completes(Barrier& barrier) {
  Gathering& g = barriers_[&barrier];
  const Block& block = *current->block;
  for (Thread* t : g.inside) {
    g.pending.add(t->view->pending);
    g.released_block.add(t->view->released_block);
    g.released_device.add(t->view->released_device);
    profile_.flush(t->warp);
  }
  const Block* blocks = nullptr;
  size_t count = 0;
  if (&barrier == &block.barrier) blocks = &block, count = 1;
  if (&barrier == &block.cluster->barrier) blocks = block.cluster->blocks, count = block.cluster->size;
  if (&barrier == block.grid_barrier) blocks = block.gang->blocks.data(), count = block.gang->blocks.size();
  if (!g.loose && count) {
    tight(g, blocks, count);
  } else {
    for (Thread* t : g.inside) g.sum.add(snapshot(*t));
    g.last = View{};
    g.last.known = g.sum.get();
    g.last.pending = g.pending.get();
    g.last.released_block = g.released_block.get();
    g.last.released_device = g.released_device.get();
    for (Thread* t : g.inside) learn(*t, g.last);
    for (Thread* t : g.waiting) learn(*t, g.last);
  }
  View last = std::move(g.last);
  g = Gathering{};
  g.last = std::move(last);
}

// Every thread of these blocks is here or has exited: one number says it all.
void Tracer::tight(Gathering& g, const Block* blocks, size_t count) {
  Clock top = 0;
  Joined known;
  for (Thread* t : g.inside) {
    top = std::max(top, t->view->clock);
    known.add(t->view->known);
  }
  for (size_t i = 0; i < count; ++i) {
    top = std::max(top, blocks[i].number < blocks_.size() ? blocks_[blocks[i].number].exited : 0);
    known.add(blocks_[blocks[i].number].exited_known.get());
  }
  auto all = std::make_shared<Knowledge>();
  if (known.get()) *all = *known.get();
  for (size_t i = 0; i < count; ++i) {
    uint32_t number = blocks[i].number + 1;
    auto at = std::lower_bound(all->blocks.begin(), all->blocks.end(), number,
                               [](const BlockKnowledge& a, uint32_t b) { return a.block < b; });
    bool there = at != all->blocks.end() && at->block == number;
    if (count == 1) {
      if (there) all->blocks.erase(at);  // the threads' own `floor` covers it
    } else if (there) {
      *at = {number, top, {}};
    } else {
      all->blocks.insert(at, {number, top, {}});
    }
  }
  Known result = all->blocks.empty() ? nullptr : all;
  for (Thread* t : g.inside) {
    View& v = *t->view;
    v.clock = top + 1;
    v.floor = top;
    v.known = result;
    v.pending = g.pending.get();
    v.released_block = g.released_block.get();
    v.released_device = g.released_device.get();
  }
}

// ---- warps ---------------------------------------------------------------------------------------------------

void Tracer::collective(Warp& warp, unsigned members) {
  settle();
  Clock lanes[32] = {}, top = 0, floor = 0;
  Joined known, pending, released_block, released_device;
  for (unsigned left = members; left; left &= left - 1) {
    unsigned lane = unsigned(__builtin_ctz(left));
    const View& v = *warp.threads[lane].view;
    for (unsigned l = 0; l < 32; ++l) lanes[l] = std::max(lanes[l], v.lanes[l]);
    lanes[lane] = std::max(lanes[lane], v.clock);
    top = std::max(top, v.clock);
    floor = std::max(floor, v.floor);
    known.add(v.known);
    pending.add(v.pending);
    released_block.add(v.released_block);
    released_device.add(v.released_device);
  }
  for (unsigned left = members; left; left &= left - 1) {
    View& v = *warp.threads[__builtin_ctz(left)].view;
    std::copy(lanes, lanes + 32, v.lanes);
    v.clock = top + 1;
    v.floor = floor;
    v.known = known.get();
    v.pending = pending.get();
    v.released_block = released_block.get();
    v.released_device = released_device.get();
  }
  if (members == warp.live) profile_.flush(&warp);
}

// ---- asynchronous copies -------------------------------------------------------------------------------------

void Tracer::copy_starts(const Copy& copy) {
  unsigned site = site_of(copy.site);
  if (copy.bytes) access(reinterpret_cast<uintptr_t>(copy.from), copy.bytes, READ, site);
  access(reinterpret_cast<uintptr_t>(copy.to), copy.size, WRITE, site, false, kNever);
}

void Tracer::copy_arrives(const Copy& copy) {
  completing_ = true;
  access(reinterpret_cast<uintptr_t>(copy.to), copy.size, WRITE, site_of(copy.site));
  completing_ = false;
}

void Tracer::reads(const void* address, size_t bytes, const Site& site) {
  access(reinterpret_cast<uintptr_t>(address), bytes, READ, site_of(site));
}

Tracer::Proxy& Tracer::proxy_of(const Block& block) {
  Proxy& p = proxies_[&block];
  if (p.fenced.empty()) {
    p.fenced.resize(block.size);
    p.stored.resize((block.dynamic_offset + block.dynamic_bytes) / 16 + 1);
  }
  return p;
}

void Tracer::proxy_fence() { proxy_of(*current->block).fenced[current->rank] = ++fences_; }

void Tracer::written_by_copy(const void* address, size_t bytes) {
  const Block* owner = shared_owner(reinterpret_cast<uintptr_t>(address));
  if (!owner) return;
  size_t at = size_t(static_cast<const char*>(address) - owner->shared);
  Proxy& p = proxy_of(*owner);
  for (size_t k = at / 16; k <= (at + bytes - 1) / 16 && k < p.stored.size(); ++k) p.stored[k].who = 0;
}

// A fence of the thread that stored, or of the one that reads, after it learnt of that.
bool Tracer::unfenced(const void* address, size_t bytes) {
  const Block* owner = shared_owner(reinterpret_cast<uintptr_t>(address));
  if (!owner) return false;
  size_t at = size_t(static_cast<const char*>(address) - owner->shared);
  Proxy& p = proxy_of(*owner);
  for (size_t k = at / 16; k <= (at + bytes - 1) / 16 && k < p.stored.size(); ++k) {
    const Stored& s = p.stored[k];
    if (s.who && p.fenced[s.who - 1] <= s.when && (owner != current->block || p.fenced[current->rank] <= s.when))
      return true;
  }
  return false;
}

// ---- fences, atomics, flags ----------------------------------------------------------------------------------

void Tracer::acquire_pending() {
  View& v = *current->view;
  v.absorb(v.pending, current->block->number + 1, current->rank / 32);
  v.pending = nullptr;
}

void Tracer::fence(bool device) {
  settle();
  acquire_pending();
  View& v = *current->view;
  v.released_block = snapshot(*current);
  if (device) v.released_device = v.released_block;
  v.fenced = true;
  ++v.clock;
}

// The convention of CUDA's samples: an atomic that reads a flag acquires by itself; a release needs the fence.
void Tracer::atomic(uintptr_t address, size_t bytes, unsigned site, bool reads_only) {
  size_t kept = 0;
  for (Glance& g : glances_)
    if (g.thread != current || g.address != address) glances_[kept++] = g;
  glances_.resize(kept);
  access(address, bytes, reads_only ? STRONG_READ : STRONG_WRITE, site);
  if (!reads_only) profile_.reads_too(site, unsigned(bytes));
  View& v = *current->view;
  uint32_t block = current->block->number + 1;
  auto at = flags_.find(address);
  if (at != flags_.end()) {
    v.absorb(at->second.device, block, current->rank / 32);
    if (at->second.block_number == block) v.absorb(at->second.block, block, current->rank / 32);
  }
  if (reads_only) return;
  Flag& flag = flags_[address];
  flag.last = {block, v.clock, uint16_t(current->rank), 0};
  if (!(v.released_device || v.released_block)) return;
  flag.device = join(flag.device, v.released_device);
  flag.block = flag.block_number == block ? join(flag.block, v.released_block) : v.released_block;
  flag.block_number = block;
}

void Tracer::strong_read(uintptr_t address, size_t bytes, unsigned site) {
  access(address, bytes, STRONG_READ, site, true);
  auto at = flags_.find(address);
  if (at == flags_.end()) return;
  View& v = *current->view;
  v.pending = join(v.pending, at->second.device);
  if (at->second.block_number == current->block->number + 1) v.pending = join(v.pending, at->second.block);
}

void Tracer::strong_write(uintptr_t address, size_t bytes, unsigned site) {
  View& v = *current->view;
  // In shared memory a volatile store right after a fence is a flag; any other is data.
  bool flag = v.fenced || !shared_owner(address);
  access(address, bytes, flag ? STRONG_WRITE : WRITE, site);
  uint32_t block = current->block->number + 1;
  if (!flag)
    flags_.erase(address);
  else
    flags_[address] = {v.released_device, v.released_block, block, {block, v.clock, uint16_t(current->rank), 0}};
}

}  // namespace kforge_emulator
