// Mode `traced`: happens-before race detection and a profile per source line, fed by -fsanitize=thread (libtsan is not
// linked), by the scheduler and by the headers.
#pragma once
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "../scheduler.h"
#include "../tracing.h"
#include "profile.h"
#include "shadow.h"

namespace kforge_emulator {

struct TracedBuffer {
  const char* name;
  uintptr_t address;
  uint64_t bytes;
};

class Tracer : public Tracing {
 public:
  void begin(const LaunchRequest& request, const Scheduler& scheduler) override;
  void end() override;
  void block_starts(Block& block) override;
  void thread_exits(Thread& thread) override;
  void arrives(Barrier& barrier, bool stays) override;
  void waits(Barrier& barrier, bool passed) override;
  void completes(Barrier& barrier) override;
  void collective(Warp& warp, unsigned members) override;
  void copy_starts(const Copy& copy) override;
  void copy_arrives(const Copy& copy) override;
  void reads(const void* address, size_t bytes, const Site& site) override;
  void proxy_fence() override;
  void written_by_copy(const void* address, size_t bytes) override;
  bool unfenced(const void* address, size_t bytes) override;
  void memory_moved() override { ignored_.assign(kIgnored, 0); }

  // What the current thread does.
  void access(uintptr_t address, size_t bytes, unsigned kind, unsigned site, bool uncached = false, Clock clock = 0);
  void atomic(uintptr_t address, size_t bytes, unsigned site, bool reads_only = false);
  void acquire_pending();
  void fence(bool device);
  void strong_read(uintptr_t address, size_t bytes, unsigned site);
  void strong_write(uintptr_t address, size_t bytes, unsigned site);
  unsigned site_of(const void* pc);
  unsigned site_of(const Site& site);
  void settle();
  bool held = false;  // in the middle of one store

 private:
  struct SiteInfo {
    const void* pc;
    const char* file;
    int line;
  };
  // A location of atomic or volatile accesses: what its reader learns, and who was there last.
  struct Flag {
    Known device, block;
    uint32_t block_number = 0;
    Entry last{};
  };
  struct Gathering {
    std::vector<Thread*> inside, waiting;  // arrived and waiting; arrived earlier and waiting now
    Joined sum, pending, released_block, released_device;
    bool loose = false;  // somebody went on after arriving
    View last;           // what the last generation learned
  };
  struct Race {
    std::string key, record;
    uintptr_t address;
    size_t bytes;
    char before[16];
    bool armed = false, load_seen = false;
  };
  // A plain read beside an atomic: no race if the thread goes on with an atomic there (`old = *p; do ... atomicCAS`).
  struct Glance {
    Thread* thread;
    uintptr_t address;
    std::string key, record;
  };
  // When each 16 bytes of a block's shared memory were last stored to, and by which thread (0: by a copy), and when
  // each thread fenced; both count fences.
  struct Stored {
    uint32_t when;
    uint16_t who;  // rank + 1
  };
  struct Proxy {
    std::vector<Stored> stored;
    std::vector<uint32_t> fenced;
  };
  Proxy& proxy_of(const Block& block);
  struct BlockInfo {
    uint3 index{};
    Clock exited = 0;
    Joined exited_known;
  };
  static constexpr size_t kIgnored = 4096;

  bool ignorable(uintptr_t address);
  void check(Cell& cell, const Entry& now, bool shared, bool uncached, uintptr_t address, size_t bytes);
  bool visit(Entry& e, const Entry& now, bool shared, bool uncached, uintptr_t address, size_t bytes, bool& placed);
  bool observed(uintptr_t address) const;
  bool ordered(const Entry& e, bool uncached, unsigned& thread) const;
  void report_race(const Entry& first, unsigned thread, const Entry& now, bool shared, uintptr_t address, size_t bytes);
  void report_outside(uintptr_t address, size_t bytes, unsigned kind, unsigned site, bool shared);
  void outside(uintptr_t address, size_t bytes, unsigned kind, unsigned site, bool shared);
  void describe_place(uintptr_t address, bool shared, std::string& name, long long& offset, uint64_t& bytes) const;
  const Block* shared_owner(uintptr_t address) const;
  void tight(Gathering& g, const Block* blocks, size_t count);
  void write_record(const std::string& text);
  std::string site_text(unsigned site) const;
  std::string thread_text(uint32_t rank) const;
  std::string block_text(uint32_t number) const;

  const LaunchRequest* request_ = nullptr;
  const Scheduler* scheduler_ = nullptr;
  std::vector<TracedBuffer> buffers_;
  const TracedBuffer* recent_ = nullptr;
  int descriptor_ = -1;
  Shadow shadow_;
  ThreadSets sets_;
  Profile profile_;
  std::vector<SiteInfo> sites_;
  std::unordered_map<const void*, unsigned> site_of_pc_;
  std::map<std::pair<std::string, int>, unsigned> site_of_line_;
  struct {
    const void* pc;
    unsigned site;
  } site_cache_[1024] = {};
  std::unordered_map<uintptr_t, Flag> flags_;
  std::unordered_map<Barrier*, Gathering> barriers_;
  std::unordered_map<Block*, std::vector<View>> views_;
  std::vector<BlockInfo> blocks_;
  std::unordered_map<const Block*, Proxy> proxies_;
  uint32_t fences_ = 0;
  std::vector<uintptr_t> ignored_;
  std::set<std::string> reported_;
  std::vector<Glance> glances_;
  void report_glances(Thread* thread);
  bool completing_ = false;  // an asynchronous copy arrives
  Race race_;  // a store of which it is not known yet whether it changes anything
};

inline Tracer* tracer() { return static_cast<Tracer*>(tracing); }

}  // namespace kforge_emulator
