// The tracer's accesses: what is ordered before what, where a race is reported.
#include "tracer.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

namespace kforge_emulator {

static Tracer the_tracer;
[[maybe_unused]] static const bool registered = (register_tracer(&the_tracer), true);

void Tracer::begin(const LaunchRequest& request, const Scheduler& scheduler) {
  request_ = &request;
  scheduler_ = &scheduler;
  buffers_.assign(request.traced, request.traced + request.traced_count);
  recent_ = nullptr;
  descriptor_ = request.traced_descriptor;
  shadow_.clear();
  profile_.clear();
  sites_.assign(1, {});
  site_of_pc_.clear();
  site_of_line_.clear();
  for (auto& slot : site_cache_) slot = {};
  flags_.clear();
  barriers_.clear();
  views_.clear();
  blocks_.clear();
  reported_.clear();
  race_.armed = false;
  glances_.clear();
  muted = 0;
  memory_moved();
}

void Tracer::end() {
  settle();
  report_glances(nullptr);
  profile_.flush_all();
  char text[256];
  snprintf(text, sizeof text, "total\x1f%llu\x1f%llu", (unsigned long long)profile_.read,
           (unsigned long long)profile_.written);
  write_record(text);
  const auto& lines = profile_.lines();
  for (size_t s = 0; s < lines.size(); ++s) {
    const Profile::Line& l = lines[s];
    if (!l.threads) continue;
    snprintf(text, sizeof text, "\x1f%s\x1f%u\x1f%u\x1f%llu\x1f%llu\x1f%llu\x1f%llu\x1f%llu", l.shared ? "shared" : "global",
             l.kind, l.size, (unsigned long long)l.threads, (unsigned long long)l.bytes, (unsigned long long)l.requests,
             (unsigned long long)l.units, (unsigned long long)l.ideal);
    write_record("line\x1f" + site_text(unsigned(s)) + text);
  }
}

void Tracer::write_record(const std::string& text) {
  std::string record = text + "\x1e";
  for (size_t done = 0; done < record.size();) {
    ssize_t n = write(descriptor_, record.data() + done, record.size() - done);
    if (n <= 0) return;
    done += size_t(n);
  }
}

// ---- places in the code --------------------------------------------------------------------------------------

unsigned Tracer::site_of(const void* pc) {
  auto& slot = site_cache_[reinterpret_cast<uintptr_t>(pc) % 1024];
  if (slot.pc == pc) return slot.site;
  auto [at, fresh] = site_of_pc_.try_emplace(pc, unsigned(sites_.size()));
  if (fresh) sites_.push_back({pc, nullptr, 0});
  if (at->second >= kSites) scheduler->fail(FAILED, "the kernel has too many memory accesses to trace");
  slot = {pc, at->second};
  return at->second;
}

unsigned Tracer::site_of(const Site& site) {
  auto [at, fresh] = site_of_line_.try_emplace({site.file ? site.file : "?", site.line}, unsigned(sites_.size()));
  if (fresh) sites_.push_back({nullptr, at->first.first.c_str(), site.line});
  return at->second;
}

std::string Tracer::site_text(unsigned site) const {
  const SiteInfo& s = sites_[site];
  if (!s.pc) return std::string(s.file) + ":" + std::to_string(s.line);
  Dl_info info;
  char text[32] = "@?";
  if (dladdr(s.pc, &info)) snprintf(text, sizeof text, "@%zx", size_t((const char*)s.pc - (const char*)info.dli_fbase));
  return text;
}

std::string Tracer::thread_text(uint32_t rank) const {
  const unsigned* b = request_->block;
  char text[64];
  snprintf(text, sizeof text, "(%u,%u,%u)", rank % b[0], rank / b[0] % b[1], rank / (b[0] * b[1]));
  return text;
}

std::string Tracer::block_text(uint32_t number) const {
  const uint3& i = blocks_[number].index;
  char text[64];
  snprintf(text, sizeof text, "(%u,%u,%u)", i.x, i.y, i.z);
  return text;
}

// ---- places in memory ----------------------------------------------------------------------------------------

// Memory of the emulator or of a loaded library, not the kernel's. Units of 16 bytes: allocations share none.
bool Tracer::ignorable(uintptr_t address) {
  uintptr_t unit = address >> 4;
  if (ignored_[unit % kIgnored] == unit) return true;
  Dl_info info;
  bool mine = scheduler_->owns(reinterpret_cast<const void*>(address)) ||
              address - reinterpret_cast<uintptr_t>(&current) < sizeof current ||
              (dladdr(reinterpret_cast<void*>(address), &info) && info.dli_fbase);
  if (mine) ignored_[unit % kIgnored] = unit;
  return mine;
}

const Block* Tracer::shared_owner(uintptr_t address) const {
  auto inside = [&](const Block& b) {
    return address - reinterpret_cast<uintptr_t>(b.shared) < b.dynamic_offset + b.dynamic_bytes + 1024;
  };
  const Block& mine = *current->block;
  if (inside(mine)) return &mine;
  for (unsigned r = 0; r < mine.cluster->size && mine.cluster->size > 1; ++r)
    if (inside(mine.cluster->blocks[r])) return &mine.cluster->blocks[r];
  return nullptr;
}

void Tracer::describe_place(uintptr_t address, bool shared, std::string& name, long long& offset,
                            uint64_t& bytes) const {
  name = "", offset = 0, bytes = 0;
  if (shared) {
    const Block& b = *shared_owner(address);
    uint64_t at = address - reinterpret_cast<uintptr_t>(b.shared);
    for (uint64_t i = 0; i < request_->variable_count; ++i) {
      const SharedVariable& v = request_->variables[i];
      if (at >= v.offset && at < v.offset + v.bytes) name = v.name, offset = (long long)(at - v.offset), bytes = v.bytes;
    }
    if (name.empty()) {
      name = "dynamic shared memory";
      offset = (long long)at - (long long)b.dynamic_offset;
      bytes = b.dynamic_bytes;
    }
    return;
  }
  constexpr uintptr_t kNear = 1 << 16;
  uintptr_t best = kNear;
  for (const TracedBuffer& b : buffers_) {
    uintptr_t far = address < b.address ? b.address - address
                    : address < b.address + b.bytes ? 0 : address - (b.address + b.bytes) + 1;
    if (b.bytes && far < best) best = far, name = b.name, offset = (long long)(address - b.address), bytes = b.bytes;
  }
  uintptr_t start = 0;  // of the pointers whose extent is unknown, the nearest below
  for (const TracedBuffer& b : buffers_)
    if (name.empty() && !b.bytes && b.address && b.address <= address) start = std::max(start, b.address);
  for (const TracedBuffer& b : buffers_)
    if (start && b.address == start) name = b.name, offset = (long long)(address - start);
}

static void too_large() {
  scheduler->fail(FAILED, "tracing needs over " + std::to_string(Shadow::kMost >> 20) + " MiB; use a smaller shape");
}

// ---- accesses ------------------------------------------------------------------------------------------------

void Tracer::access(uintptr_t address, size_t bytes, unsigned kind, unsigned site, bool uncached, Clock clock) {
  // The hooks of a struct's copy come in the order store, load, both before anything moves.
  if (kind == READ && race_.armed && !race_.load_seen)
    race_.load_seen = true;
  else
    settle();
  const Block* owner = shared_owner(address);
  bool shared = owner;
  if (shared) {
    if (address + bytes > reinterpret_cast<uintptr_t>(owner->shared) + owner->dynamic_offset + owner->dynamic_bytes)
      return report_outside(address, bytes, kind, site, true);
  } else if (!(recent_ && address >= recent_->address && address + bytes <= recent_->address + recent_->bytes)) {
    recent_ = nullptr;
    for (const TracedBuffer& b : buffers_)
      if (address >= b.address && address + bytes <= b.address + b.bytes) recent_ = &b;
    if (!recent_) {
      if (ignorable(address)) return;
      if (!buffers_.empty() && buffers_[0].bytes) return report_outside(address, bytes, kind, site, false);
    }
  }
  View& view = *current->view;
  if (writes(kind)) view.fenced = false;
  if (shared && writes(kind) && owner == current->block) {
    Proxy& p = proxy_of(*owner);
    const size_t at = address - reinterpret_cast<uintptr_t>(owner->shared);
    for (size_t k = at / 16; k <= (at + bytes - 1) / 16; ++k) p.stored[k] = {fences_, uint16_t(current->rank + 1)};
  }
  profile_.touch(*current, site, kind, shared, address, unsigned(bytes));
  Entry now{current->block->number + 1, clock ? clock : view.clock, uint16_t(current->rank),
            uint16_t(site << 2 | kind)};
  for (uintptr_t a = address; a < address + bytes;) {
    Page& page = shadow_.page(a);
    uintptr_t first = a & ((1u << kPageBits) - 1), last = std::min<uintptr_t>(first + (address + bytes - a), 1u << kPageBits);
    unsigned fits = unsigned(__builtin_ctzll(first | last | 16));
    if (fits < page.shift) {
      shadow_.refine(page, fits);
      if (shadow_.bytes() > Shadow::kMost) too_large();
    }
    for (uintptr_t c = first >> page.shift; c << page.shift < last; ++c)
      check(page.cells[c], now, shared, uncached, address, bytes);
    a += last - first;
  }
  if (shadow_.bytes() > Shadow::kMost) too_large();
}

void Tracer::check(Cell& cell, const Entry& now, bool shared, bool uncached, uintptr_t address, size_t bytes) {
  Entry& first = cell.near[0];
  if (!cell.more && !cell.near[1].block && first.block == now.block && first.who == now.who && first.clock != kNever &&
      replaces(now.kind(), first.kind())) {
    first = now;  // the common case: nobody else was here
    return;
  }
  bool placed = false;
  for (Entry& e : cell.near)
    if (e.block && !visit(e, now, shared, uncached, address, bytes, placed)) e.block = 0;
  if (cell.more) {
    std::vector<Entry>& list = shadow_.list(cell.more);
    size_t kept = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      Entry e = list[i];
      if (visit(e, now, shared, uncached, address, bytes, placed)) list[kept++] = e;
    }
    list.resize(kept);
    if (list.empty()) shadow_.drop_list(cell);
  }
  if (!placed) shadow_.add(cell, now);
  // Whole warps that did the same thing become one entry.
  Entry* a = cell.near;
  if (placed && a[0].block && a[0].block == a[1].block && a[0].clock == a[1].clock && a[0].what == a[1].what &&
      sets_[a[0].who].lanes == sets_[a[1].who].lanes && sets_.merge(a[0].who, a[1].who, a[0].who))
    a[1].block = 0;
}

// False: this entry need not be kept.
bool Tracer::visit(Entry& e, const Entry& now, bool shared, bool uncached, uintptr_t address, size_t bytes,
                   bool& placed) {
  if (shared) {  // the arena's last block
    uint32_t size = current->block->cluster->size;
    if ((e.block - 1) / size != (now.block - 1) / size) return false;
  }
  bool mine = e.block == now.block && e.who == now.who;
  unsigned thread = current->rank;
  bool in_flight = e.clock == kNever && now.clock != kNever && !completing_;  // a copy that nobody has waited for
  if (mine && now.kind() == STRONG_WRITE && e.kind() == READ) return false;
  bool before = mine ? !in_flight : ordered(e, uncached && !writes(now.kind()), thread);
  const bool clash = conflict(e.kind(), now.kind());
  if (clash && !before && now.kind() == WRITE && strong(e.kind()) && observed(address)) before = true;
  if (!before && clash) report_race(e, thread, now, shared, address, bytes);
  if (before && replaces(now.kind(), e.kind())) return false;
  if (!placed && e.what == now.what && e.block == now.block && e.clock == now.clock && e.clock != kNever &&
      (!writes(now.kind()) || strong(now.kind())) && sets_.merge(e.who, now.who, e.who))
    placed = true;
  return true;
}

// Whether the current thread knows the last atomic at this location: those before it are behind it in memory too, so
// that the counter may be set back.
bool Tracer::observed(uintptr_t address) const {
  auto at = flags_.find(address);
  unsigned unused;
  return at != flags_.end() && at->second.last.block && ordered(at->second.last, false, unused);
}

// Whether the current thread knows all of an entry's accesses; else `thread` is one that it does not know.
bool Tracer::ordered(const Entry& e, bool uncached, unsigned& thread) const {
  const View& view = *current->view;
  bool home = e.block == current->block->number + 1;
  if (home && e.clock <= view.floor) return true;
  const BlockKnowledge* known = view.known ? view.known->find(e.block) : nullptr;
  const BlockKnowledge* pending = uncached && view.pending ? view.pending->find(e.block) : nullptr;
  unsigned own_warp = current->rank / 32;
  const ThreadSet& set = sets_[e.who];
  for (unsigned ws = set.warps; ws; ws &= ws - 1)
    for (unsigned ls = set.lanes; ls; ls &= ls - 1) {
      unsigned warp = unsigned(__builtin_ctz(ws)), lane = unsigned(__builtin_ctz(ls));
      if (home && warp == own_warp && (lane == current->lane || e.clock <= view.lanes[lane])) continue;
      if (known && known->has(warp, lane, e.clock)) continue;
      if (pending && pending->has(warp, lane, e.clock)) continue;
      thread = warp * 32 + lane;
      return false;
    }
  return true;
}

// ---- reports -------------------------------------------------------------------------------------------------

void Tracer::report_race(const Entry& first, unsigned thread, const Entry& now, bool shared, uintptr_t address,
                         size_t bytes) {
  static const char* kinds[] = {"read", "write", "volatile or atomic read", "volatile or atomic write"};
  std::string name, key = std::to_string(first.what) + " " + std::to_string(now.what);
  if (reported_.count(key) || reported_.size() > 200) return;
  long long offset;
  uint64_t size;
  describe_place(address, shared, name, offset, size);
  std::string record = std::string("\x1f") + kinds[first.kind()] + "\x1f" + site_text(first.site()) + "\x1f" +
                       kinds[now.kind()] + "\x1f" + site_text(now.site()) + "\x1f" + std::to_string(bytes) + "\x1f" + name +
                       "\x1f" + std::to_string(offset) + "\x1f" + std::to_string(size) + "\x1f" + thread_text(thread) +
                       "\x1f" + block_text(first.block - 1) + "\x1f" + thread_text(current->rank) + "\x1f" +
                       block_text(now.block - 1);
  if (first.kind() == WRITE && now.kind() == WRITE && bytes <= sizeof race_.before && first.clock != kNever &&
      now.clock != kNever) {
    if (race_.armed) return;
    race_ = {key, record, address, bytes, {}, true, false};
    memcpy(race_.before, reinterpret_cast<const void*>(address), bytes);
    return;
  }
  if (first.kind() == STRONG_WRITE && now.kind() == READ) {
    glances_.push_back({current, address, key, record});
    return;
  }
  reported_.insert(key);
  write_record("race" + record);
}

// No atomic can follow any more.
void Tracer::report_glances(Thread* thread) {
  size_t kept = 0;
  for (Glance& g : glances_) {
    if (thread && g.thread != thread)
      glances_[kept++] = g;
    else if (reported_.insert(g.key).second)
      write_record("race" + g.record);
  }
  glances_.resize(kept);
}

// The store that a race was seen at has been carried out: did it change anything?
void Tracer::settle() {
  if (!race_.armed || held) return;
  race_.armed = false;
  bool same = !memcmp(race_.before, reinterpret_cast<const void*>(race_.address), race_.bytes);
  if (reported_.insert(same ? race_.key + " same" : race_.key).second) write_record((same ? "same_value" : "race") + race_.record);
}

void Tracer::report_outside(uintptr_t address, size_t bytes, unsigned kind, unsigned site, bool shared) {
  outside(address, bytes, kind, site, shared);
  unsigned char resident;
  if (mincore(reinterpret_cast<void*>(address & ~uintptr_t(4095)), 1, &resident) != 0)
    scheduler->fail(FAILED, (writes(kind) ? "write to" : "read of") + std::string(" memory that is not there, thread ") +
                                thread_text(current->rank) + " of block " + block_text(current->block->number));
}

void Tracer::outside(uintptr_t address, size_t bytes, unsigned kind, unsigned site, bool shared) {
  if (!reported_.insert("outside " + std::to_string(site)).second) return;
  std::string name;
  long long offset;
  uint64_t size;
  describe_place(address, shared, name, offset, size);
  if (name.empty()) offset = (long long)address;
  const char* what = writes(kind) ? "write" : "read";
  write_record(std::string("out_of_bounds\x1f") + "\x1f\x1f" + what + "\x1f" + site_text(site) + "\x1f" + std::to_string(bytes) +
               "\x1f" + name + "\x1f" + std::to_string(offset) + "\x1f" + std::to_string(size) + "\x1f\x1f\x1f" +
               thread_text(current->rank) + "\x1f" + block_text(current->block->number));
}

}  // namespace kforge_emulator
