// Mode `traced`: vector clocks in the shape of the thread hierarchy.
//
// Each CUDA thread counts its own synchronisations (its clock). What it knows of others is kept as coarsely as the
// barriers allow: one number for all threads of a block (after __syncthreads), 32 numbers for a warp, and shared,
// immutable tables for what lies outside. A full barrier sets the clocks of all who took part to one value, so that
// one number stays exact.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace kforge_emulator {

using Clock = uint32_t;
constexpr Clock kNever = ~0u;  // of an asynchronous copy in flight: ordered before no other thread

struct WarpClocks {
  unsigned warp;
  Clock lanes[32];
};

// All accesses of the block's threads up to `floor`, and more of the listed warps (sorted).
struct BlockKnowledge {
  uint32_t block;
  Clock floor = 0;
  std::vector<WarpClocks> warps;

  bool has(unsigned warp, unsigned lane, Clock clock) const {
    if (clock <= floor) return true;
    for (const WarpClocks& w : warps)
      if (w.warp == warp) return clock <= w.lanes[lane];
    return false;
  }
  bool covers(const BlockKnowledge& other) const {
    if (other.floor > floor) return false;
    for (const WarpClocks& w : other.warps)
      for (unsigned l = 0; l < 32; ++l)
        if (w.lanes[l] && !has(w.warp, l, w.lanes[l])) return false;
    return true;
  }
  void absorb(const BlockKnowledge& other) {
    floor = std::max(floor, other.floor);
    for (const WarpClocks& w : other.warps) {
      auto at = std::lower_bound(warps.begin(), warps.end(), w.warp,
                                 [](const WarpClocks& a, unsigned warp) { return a.warp < warp; });
      if (at == warps.end() || at->warp != w.warp) at = warps.insert(at, WarpClocks{w.warp, {}});
      for (unsigned l = 0; l < 32; ++l) at->lanes[l] = std::max(at->lanes[l], w.lanes[l]);
    }
    warps.erase(std::remove_if(warps.begin(), warps.end(),
                               [&](const WarpClocks& w) {
                                 return std::all_of(w.lanes, w.lanes + 32, [&](Clock c) { return c <= floor; });
                               }),
                warps.end());
  }
};

struct Knowledge {
  std::vector<BlockKnowledge> blocks;  // sorted

  const BlockKnowledge* find(uint32_t block) const {
    auto at = std::lower_bound(blocks.begin(), blocks.end(), block,
                               [](const BlockKnowledge& a, uint32_t b) { return a.block < b; });
    return at != blocks.end() && at->block == block ? &*at : nullptr;
  }
  bool has(uint32_t block, unsigned warp, unsigned lane, Clock clock) const {
    const BlockKnowledge* b = find(block);
    return b && b->has(warp, lane, clock);
  }
  bool covers(const Knowledge& other) const {
    for (const BlockKnowledge& o : other.blocks) {
      const BlockKnowledge* mine = find(o.block);
      if (!mine || !mine->covers(o)) return false;
    }
    return true;
  }
};
using Known = std::shared_ptr<const Knowledge>;  // null: nothing

inline Known join(const Known& a, const Known& b) {
  if (a == b || !b) return a;
  if (!a || b->covers(*a)) return b;
  if (a->covers(*b)) return a;
  auto out = std::make_shared<Knowledge>();
  out->blocks.reserve(std::max(a->blocks.size(), b->blocks.size()) + 1);
  auto i = a->blocks.begin(), j = b->blocks.begin();
  while (i != a->blocks.end() || j != b->blocks.end()) {
    if (j == b->blocks.end() || (i != a->blocks.end() && i->block < j->block)) {
      out->blocks.push_back(*i++);
    } else if (i == a->blocks.end() || j->block < i->block) {
      out->blocks.push_back(*j++);
    } else {
      out->blocks.push_back(*i++);
      out->blocks.back().absorb(*j++);
    }
  }
  return out;
}

// Joins many, most of them equal.
class Joined {
 public:
  void add(const Known& k) {
    if (!k || k == last_) return;
    last_ = k;
    total_ = join(total_, k);
  }
  const Known& get() const { return total_; }

 private:
  Known last_, total_;
};

// What one thread knows. `known` holds other blocks and the other warps of its own; the rest is here.
struct View {
  Clock clock = 1;  // of its accesses from now on
  Clock floor = 0;  // all threads of its block
  Clock lanes[32] = {};  // its own warp
  bool fenced = false;   // a fence, and no store since
  Known known;
  Known pending;  // read from a flag without a fence since: holds for reads that pass by the L1 cache
  Known released_block, released_device;  // what its fences (and those it synchronised with) made visible

  void absorb(const Known& k, uint32_t block, unsigned warp) {
    if (!k || k == known) return;
    known = join(known, k);
    if (const BlockKnowledge* own = k->find(block)) {
      floor = std::max(floor, own->floor);
      for (const WarpClocks& w : own->warps)
        if (w.warp == warp)
          for (unsigned l = 0; l < 32; ++l) lanes[l] = std::max(lanes[l], w.lanes[l]);
    }
  }
  // All of it, its own accesses so far included.
  Known snapshot(uint32_t block, unsigned warp, unsigned lane) const {
    auto out = std::make_shared<Knowledge>();
    BlockKnowledge own{block, floor, {WarpClocks{warp, {}}}};
    std::copy(lanes, lanes + 32, own.warps[0].lanes);
    own.warps[0].lanes[lane] = std::max(clock, lanes[lane]);
    out->blocks.push_back(std::move(own));
    return join(known, out);
  }
};

}  // namespace kforge_emulator
