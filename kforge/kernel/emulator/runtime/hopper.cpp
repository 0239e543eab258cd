// mbarriers and bulk tensor copies. Counts of an mbarrier are in its eight bytes, as on a GPU, in an order of our own:
// arrivals pending (20 bits), arrivals per phase (20), announced bytes (22, from the middle), phase parity, valid.
#include <algorithm>
#include <cstring>

#include "kforge_emulator/hopper.h"
#include "scheduler.h"
#include "tracing.h"

extern "C" __attribute__((weak)) void* __asan_region_is_poisoned(void* begin, size_t size);

namespace kforge_emulator {

struct BulkCopy {
  TensorMap map;
  Thread* issuer;  // whose copy it is, whoever finds that it has arrived
  Block* block;    // in whose shared memory it ends or begins
  char* shared;
  int at[5];
  bool loads;
  unsigned group;
  Site site;
};
struct BulkStores {
  std::vector<BulkCopy> copies;
  unsigned group = 0;
};

namespace {

constexpr uint64_t kMagic = 0x50414D544546524B;
constexpr int64_t kMiddle = 1 << 21, kMost = (1 << 20) - 1;

struct Counts {
  uint64_t pending, expected, phase;
  int64_t bytes;
};
Counts unpack(uint64_t w) {
  return {w & 0xfffff, w >> 20 & 0xfffff, w >> 62 & 1, int64_t(w >> 40 & 0x3fffff) - kMiddle};
}
uint64_t pack(const Counts& c) {
  return c.pending | c.expected << 20 | uint64_t(c.bytes + kMiddle) << 40 | c.phase << 62;
}
uint64_t word_at(const char* at) {
  uint64_t w;
  memcpy(&w, at, 8);
  return w;
}

bool has_ended(const Block& b) {
  for (unsigned w = 0; w * 32 < b.size; ++w)
    if (b.warps[w].live) return false;
  return true;
}

// The block of the cluster in whose shared memory these bytes are.
Block& inside_shared(const char* at, size_t bytes, const char* what, Site site) {
  const Cluster& cluster = *current->block->cluster;
  Block* owner = nullptr;
  for (unsigned r = 0; r < cluster.size; ++r) {
    Block& b = cluster.blocks[r];
    if (at >= b.shared && at + bytes <= b.shared + b.dynamic_offset + b.dynamic_bytes) owner = &b;
  }
  if (!owner) fail(FAILED, site, "%s lies outside of the block's shared memory", what);
  if (has_ended(*owner)) fail(FAILED, site, "%s lies in the shared memory of a block that has ended", what);
  if (__asan_region_is_poisoned && __asan_region_is_poisoned(const_cast<char*>(at), bytes))
    fail(FAILED, site, "%s reaches beyond its shared variable", what);
  return *owner;
}

Mbarrier& find(char* at, Site site) {
  if ((size_t)at % 8) fail(FAILED, site, "an mbarrier is not aligned to 8 bytes");
  auto& all = inside_shared(at, 8, "the mbarrier", site).mbarriers;
  auto found = all.find(at);
  if (found == all.end() || word_at(at) >> 63) fail(FAILED, site, "the mbarrier is not initialised");
  return found->second;
}

// Bytes from line to line of a box in shared memory: a swizzle's span where the line has fewer.
size_t pitch(const TensorMap& m) {
  return std::max<size_t>(size_t(m.box[0]) * m.element_bytes, m.swizzle);
}

// Calls row(shared offset of a box row, address in the tensor or null, bytes there, bytes of the row, where they begin).
template <class F>
void for_rows(const BulkCopy& c, F row) {
  const TensorMap& m = c.map;
  unsigned count[5] = {1, 1, 1, 1, 1}, i[5] = {};
  for (unsigned d = 0; d < m.rank; ++d) count[d] = m.box[d];
  const size_t row_bytes = size_t(count[0]) * m.element_bytes;
  size_t offset = 0;
  for (i[4] = 0; i[4] < count[4]; ++i[4])
    for (i[3] = 0; i[3] < count[3]; ++i[3])
      for (i[2] = 0; i[2] < count[2]; ++i[2])
        for (i[1] = 0; i[1] < count[1]; ++i[1], offset += pitch(m)) {
          char* from = m.pointer;
          bool there = true;
          for (unsigned d = 1; d < m.rank; ++d) {
            int64_t x = int64_t(c.at[d]) + i[d];
            there &= x >= 0 && x < int64_t(m.sizes[d]);
            from += x * int64_t(m.strides[d - 1]);
          }
          int64_t begin = std::max<int64_t>(0, -int64_t(c.at[0]));
          int64_t end = std::min<int64_t>(count[0], int64_t(m.sizes[0]) - c.at[0]);
          there &= begin < end;
          from += (int64_t(c.at[0]) + begin) * m.element_bytes;
          if (there)
            row(offset, from, size_t(end - begin) * m.element_bytes, row_bytes, size_t(begin) * m.element_bytes);
          else
            row(offset, (char*)nullptr, size_t(0), row_bytes, size_t(0));
        }
}

// Bits 4 to 6 of a shared address are changed by bits 7 to 9: the pattern of PTX ISA, "Swizzling modes".
char* swizzled(const Block& b, char* at, unsigned span) {
  size_t o = size_t(at - b.shared), mask = span / 16;
  return b.shared + (mask ? o ^ (o >> 7 & (mask - 1)) << 4 : o);
}

uint32_t rounded_tf32(uint32_t u) {
  if ((u & 0x7f800000) == 0x7f800000) return u;
  return (u + 0xfff + (u >> 13 & 1)) & ~0x1fffu;
}

// Between a row in registers order and swizzled shared memory, 16 bytes at a time.
void move(const Block& b, char* shared, char* row, size_t bytes, unsigned span, bool to_shared) {
  for (size_t k = 0; k < bytes; k += 16) {
    char* at = swizzled(b, shared + k, span);
    to_shared ? memcpy(at, row + k, 16) : memcpy(row + k, at, 16);
  }
}

void trace(const BulkCopy& c, bool starts) {
  if (!tracing) return;
  for_rows(c, [&](size_t offset, char* outside, size_t bytes, size_t all, size_t) {
    Copy copy{c.shared + offset, outside, unsigned(bytes), unsigned(all), 0, c.site};
    if (!c.loads) copy = {outside, c.shared + offset, unsigned(bytes), unsigned(bytes), 0, c.site};
    if (!c.loads && !outside) return;
    if (!c.loads && tracing->unfenced(copy.from, bytes))
      fail(FAILED, c.site, "shared memory is copied that was stored to without fence.proxy.async since");
    starts ? tracing->copy_starts(copy) : tracing->copy_arrives(copy);
    if (c.loads) tracing->written_by_copy(copy.to, all);
  });
}

void carry_out(const BulkCopy& c) {
  const Block& block = *c.block;
  char row[256 * 8];
  trace(c, false);
  for_rows(c, [&](size_t offset, char* outside, size_t bytes, size_t all, size_t begin) {
    if (c.loads) {
      memset(row, c.map.fill ? 0xff : 0, all);
      if (outside) memcpy(row + begin, outside, bytes);
      if (c.map.type == 11)  // TFLOAT32
        for (size_t k = 0; k < all; k += 4) {
          uint32_t u;
          memcpy(&u, row + k, 4);
          u = rounded_tf32(u);
          memcpy(row + k, &u, 4);
        }
      move(block, c.shared + offset, row, all, c.map.swizzle, true);
    } else if (outside) {
      move(block, c.shared + offset, row, all, c.map.swizzle, false);
      memcpy(outside, row + begin, bytes);
    }
  });
}

size_t box_bytes(const TensorMap& m) {
  size_t bytes = m.element_bytes;
  for (unsigned d = 0; d < m.rank; ++d) bytes *= m.box[d];
  return bytes;
}

// Bytes of shared memory that a box takes.
size_t extent(const TensorMap& m) {
  const size_t line = size_t(m.box[0]) * m.element_bytes;
  return (box_bytes(m) / line - 1) * pitch(m) + line;
}

BulkCopy described(const void* map, char* shared, const int* at, unsigned rank, bool loads, Site site) {
  BulkCopy c{};
  memcpy(&c.map, map, sizeof c.map);
  if (c.map.magic != kMagic) fail(FAILED, site, "the address is not that of a tensor map (const __grid_constant__)");
  if (c.map.rank != rank)
    fail(FAILED, site, "a copy of %u dimensions with a tensor map of %u", rank, unsigned(c.map.rank));
  if ((size_t)shared % 128) fail(FAILED, site, "shared memory of a tensor copy is not aligned to 128 bytes");
  const int64_t into = int64_t(at[0]) * c.map.element_bytes;  // a GPU calls this an illegal instruction
  if (into % 16) fail(FAILED, site, "the box begins %lld bytes into a line, no multiple of 16", (long long)into);
  c.block = &inside_shared(shared, extent(c.map), "the box", site);
  c.issuer = current, c.shared = shared, c.loads = loads, c.site = site;
  std::copy(at, at + rank, c.at);
  trace(c, true);
  return c;
}

// Ends the phase if nothing is missing any more.
void finish_phase(char* at, Mbarrier& m) {
  Counts c = unpack(word_at(at));
  if (c.pending || c.bytes) return;
  c.phase ^= 1, c.pending = c.expected;
  uint64_t w = pack(c);
  memcpy(at, &w, 8);
  if (tracing) tracing->completes(m.barrier);
  ++m.barrier.generation;
  std::vector<Thread*> waiting;
  for (Thread* t = m.barrier.first; t; t = t->next) waiting.push_back(t);
  m.barrier.first = m.barrier.last = nullptr;
  scheduler->moved();
  scheduler->release(waiting.data(), unsigned(waiting.size()));
}

void add_bytes(char* at, int64_t bytes, Site site) {
  Counts c = unpack(word_at(at));
  c.bytes += bytes;
  if (c.bytes > kMost || c.bytes < -kMost) fail(FAILED, site, "an mbarrier counts at most 2^20 - 1 bytes");
  uint64_t w = pack(c);
  memcpy(at, &w, 8);
}

// Copies that will arrive here do so now.
void land(char* at, Mbarrier& m) {
  std::vector<BulkCopy*> copies = std::move(m.copies);
  m.copies.clear();
  Thread* const finder = current;
  for (BulkCopy* c : copies) {
    current = c->issuer;  // the bytes come after what happened before the copy, not before the wait
    carry_out(*c);
    if (tracing) tracing->arrives(m.barrier, false);
    current = finder;
    add_bytes(at, -int64_t(box_bytes(c->map)), c->site);
    delete c;
  }
  if (!copies.empty()) finish_phase(at, m);
}

BulkStores& stores() {
  if (!current->stores) current->stores = new BulkStores;
  return *current->stores;
}

}  // namespace

void forget_mbarriers(Block& block) {
  for (auto& [at, m] : block.mbarriers)
    for (BulkCopy* c : m.copies) delete c;
  block.mbarriers.clear();
  std::fill(std::begin(block.registers), std::end(block.registers), 0);
}

void mbarrier_init(char* at, unsigned count, Site site) {
  if ((size_t)at % 8) fail(FAILED, site, "an mbarrier is not aligned to 8 bytes");
  if (&inside_shared(at, 8, "the mbarrier", site) != current->block)
    fail(FAILED, site, "the mbarrier of another block is initialised");
  if (count < 1 || count > kMost) fail(FAILED, site, "an mbarrier of %u arrivals; 1 to 2^20 - 1 are possible", count);
  Mbarrier& m = current->block->mbarriers[at];
  if (m.barrier.first || !m.copies.empty()) fail(FAILED, site, "the mbarrier is initialised while it is in use");
  m.unseen_by = current;
  uint64_t w = pack({count, count, 0, 0});
  memcpy(at, &w, 8);
}

void mbarrier_invalidate(char* at, Site site) {
  Mbarrier& m = find(at, site);
  if (m.barrier.first || !m.copies.empty()) fail(FAILED, site, "the mbarrier is invalidated while it is in use");
  memset(at, 0xff, 8);
}

uint64_t mbarrier_arrive(char* at, unsigned count, unsigned bytes, Site site) {
  Mbarrier& m = find(at, site);
  uint64_t before = word_at(at);
  Counts c = unpack(before);
  if (c.pending < count)
    fail(FAILED, site, "more arrivals than the %u that the mbarrier expects in a phase", unsigned(c.expected));
  if (tracing) tracing->arrives(m.barrier, false);
  c.pending -= count;
  uint64_t w = pack(c);
  memcpy(at, &w, 8);
  add_bytes(at, bytes, site);
  if (m.barrier.first) land(at, m);
  finish_phase(at, m);
  return before;
}

bool mbarrier_wait(char* at, unsigned parity, bool blocks, Site site) {
  if (parity > 1) fail(FAILED, site, "the parity of a phase is 0 or 1, not %u", parity);
  if (&inside_shared(at, 8, "the mbarrier", site) != current->block)
    fail(FAILED, site, "the mbarrier of another block is waited for");
  Mbarrier& m = find(at, site);
  if (unpack(word_at(at)).phase == parity) land(at, m);
  if (unpack(word_at(at)).phase != parity) {
    if (tracing) tracing->waits(m.barrier, true);
    return true;
  }
  if (!blocks) {
    yield(site);
    return false;
  }
  if (tracing) tracing->waits(m.barrier, false);
  Thread* me = current;
  me->site = site;
  me->next = nullptr;
  (m.barrier.first ? m.barrier.last->next : m.barrier.first) = me;
  m.barrier.last = me;
  scheduler->suspend();
  return true;
}

void proxy_fence() {
  if (tracing) tracing->proxy_fence();
  for (auto& [at, m] : current->block->mbarriers)
    if (m.unseen_by == current) m.unseen_by = nullptr;
}

void tensor_load(const void* map, char* to, const int* at, unsigned rank, char* barrier, unsigned mask, Site site) {
  if (mask) {  // to the same place in each of these blocks, whose own mbarrier counts it
    const Block& own = *current->block;
    const Cluster& cluster = *own.cluster;
    for (unsigned r = 0; r < 16; ++r) {
      if (!(mask >> r & 1)) continue;
      if (r >= cluster.size) fail(FAILED, site, "a copy to block %u of a cluster of %u", r, unsigned(cluster.size));
      char* const there = cluster.blocks[r].shared;
      tensor_load(map, there + (to - own.shared), at, rank, there + (barrier - own.shared), 0, site);
    }
    return;
  }
  Mbarrier& m = find(barrier, site);
  if (m.unseen_by)
    fail(FAILED, site, "the mbarrier was initialised without fence.mbarrier_init or fence.proxy.async after it");
  m.copies.push_back(new BulkCopy(described(map, to, at, rank, true, site)));
  memset(to, 0xff, extent(m.copies.back()->map));  // it may arrive at any time from now on
  if (m.barrier.first) land(barrier, m);
}

void tensor_store(const void* map, const char* from, const int* at, unsigned rank, Site site) {
  BulkCopy c = described(map, const_cast<char*>(from), at, rank, false, site);
  c.group = stores().group;
  stores().copies.push_back(c);
}

void bulk_commit() { ++stores().group; }

void bulk_wait(unsigned keep) {
  BulkStores& s = stores();
  size_t kept = 0;
  for (const BulkCopy& c : s.copies) {
    if (c.group < s.group && s.group - c.group > keep)
      carry_out(c);
    else
      s.copies[kept++] = c;
  }
  s.copies.resize(kept);
}

void forget_stores(Thread& thread) {
  delete thread.stores;
  thread.stores = nullptr;
}

}  // namespace kforge_emulator
