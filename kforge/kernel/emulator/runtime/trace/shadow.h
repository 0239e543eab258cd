// Mode `traced`: who touched each byte last. Pages of cells, each cell for 16 bytes until a smaller access comes.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

#include "knowledge.h"

namespace kforge_emulator {

// strong: atomics, volatile. Two strong accesses never race.
enum AccessKind : uint16_t { READ = 0, WRITE = 1, STRONG_READ = 2, STRONG_WRITE = 3 };
inline bool writes(unsigned kind) { return kind & 1; }
inline bool strong(unsigned kind) { return kind & 2; }
inline bool conflict(unsigned a, unsigned b) { return (writes(a) || writes(b)) && !(strong(a) && strong(b)); }
// Whatever races with an earlier access `old` that is ordered before `now` races with `now` too.
inline bool replaces(unsigned now, unsigned old) {
  if (now == WRITE) return true;
  if (now == STRONG_WRITE) return strong(old);
  return !writes(old) && (now == READ || strong(old));
}

// An access of one thread, or the same access of several at the same clock.
struct Entry {
  uint32_t block;  // number + 1; 0: none
  Clock clock;
  uint16_t who;   // index into Threads
  uint16_t what;  // site << 2 | kind
  unsigned kind() const { return what & 3; }
  unsigned site() const { return what >> 2; }
};
constexpr unsigned kSites = 1 << 14;

// Sets of threads of a block: all of `lanes` in each of `warps`.
struct ThreadSet {
  uint32_t warps, lanes;
};
class ThreadSets {
 public:
  ThreadSets() {
    for (unsigned t = 0; t < 1024; ++t) sets_.push_back({1u << t / 32, 1u << (t & 31)});
  }
  const ThreadSet& operator[](unsigned i) const { return sets_[i]; }
  // The union of two sets where it is such a set and there is room for it; else false.
  bool merge(unsigned a, unsigned b, uint16_t& out) {
    ThreadSet x = sets_[a], y = sets_[b], u;
    if (x.warps == y.warps)
      u = {x.warps, x.lanes | y.lanes};
    else if (x.lanes == y.lanes)
      u = {x.warps | y.warps, x.lanes};
    else
      return false;
    auto [at, fresh] = index_.try_emplace(uint64_t(u.warps) << 32 | u.lanes, uint16_t(sets_.size()));
    if (fresh) {
      if (sets_.size() > 0xffff) return index_.erase(at), false;
      sets_.push_back(u);
    }
    out = at->second;
    return true;
  }

 private:
  std::vector<ThreadSet> sets_;
  std::unordered_map<uint64_t, uint16_t> index_;
};

struct Cell {
  Entry near[2];
  uint32_t more;  // index into the overflow lists; 0: none
};

constexpr unsigned kPageBits = 12;
struct Page {
  unsigned shift = 4;  // a cell covers 1 << shift bytes
  std::vector<Cell> cells = std::vector<Cell>(1 << (kPageBits - 4), Cell{});
};

class Shadow {
 public:
  static constexpr size_t kMost = size_t(1) << 30;  // bytes
  static constexpr size_t kEntries = 32;            // of a cell; beyond it the oldest go

  void clear() {
    pages_.clear();
    lists_.assign(1, {});
    free_.clear();
    bytes_ = 0;
    for (auto& slot : cache_) slot = {};
  }
  size_t bytes() const { return bytes_; }

  Page& page(uintptr_t address) {
    uintptr_t number = address >> kPageBits;
    auto& slot = cache_[number % 64];
    if (slot.page && slot.number == number) return *slot.page;
    auto& p = pages_[number];
    if (!p) {
      p = std::make_unique<Page>();
      bytes_ += p->cells.size() * sizeof(Cell);
    }
    slot = {number, p.get()};
    return *p;
  }
  // Cells become as small as the access.
  void refine(Page& page, unsigned shift) {
    unsigned factor = 1u << (page.shift - shift);
    std::vector<Cell> finer(page.cells.size() * factor, Cell{});
    for (size_t i = 0; i < page.cells.size(); ++i)
      for (unsigned k = 0; k < factor; ++k) {
        Cell copy = page.cells[i];
        if (k && copy.more) {
          std::vector<Entry> list = lists_[copy.more];
          copy.more = fresh_list();
          lists_[copy.more] = std::move(list);
        }
        finer[i * factor + k] = copy;
      }
    bytes_ += (finer.size() - page.cells.size()) * sizeof(Cell);
    page.cells.swap(finer);
    page.shift = shift;
  }
  std::vector<Entry>& list(uint32_t i) { return lists_[i]; }
  void add(Cell& cell, const Entry& e) {
    for (Entry& slot : cell.near)
      if (!slot.block) {
        slot = e;
        return;
      }
    if (!cell.more) cell.more = fresh_list();
    std::vector<Entry>& list = lists_[cell.more];
    if (list.size() >= kEntries) list.erase(list.begin());
    bytes_ += list.size() < list.capacity() ? 0 : sizeof(Entry) * (list.capacity() + 1);
    list.push_back(e);
  }
  void drop_list(Cell& cell) {
    free_.push_back(cell.more);
    cell.more = 0;
  }

 private:
  uint32_t fresh_list() {
    if (free_.empty()) {
      lists_.emplace_back();
      return uint32_t(lists_.size() - 1);
    }
    uint32_t i = free_.back();
    free_.pop_back();
    lists_[i].clear();
    return i;
  }
  struct Slot {
    uintptr_t number = 0;
    Page* page = nullptr;
  };
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  std::vector<std::vector<Entry>> lists_{1};
  std::vector<uint32_t> free_;
  size_t bytes_ = 0;
  Slot cache_[64];
};

}  // namespace kforge_emulator
