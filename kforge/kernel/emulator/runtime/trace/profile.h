// Mode `traced`: per place in the code, how often it ran, bytes, sectors of 32 bytes, shared-memory wavefronts.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "kforge_emulator/runtime.h"

namespace kforge_emulator {

class Profile {
 public:
  struct Line {
    uint64_t threads = 0, bytes = 0;             // all blocks: executions by threads
    uint64_t requests = 0, units = 0, ideal = 0;  // sampled blocks: by warps; sectors, or wavefronts if shared
    unsigned size = 0, kind = 0;
    bool shared = false;
  };

  void clear() {
    lines_.clear();
    warps_.clear();
    read = written = 0;
  }
  void touch(const Thread& t, unsigned site, unsigned kind, bool shared, uintptr_t address, unsigned bytes) {
    if (site >= lines_.size()) lines_.resize(site + 1);
    Line& line = lines_[site];
    line.kind |= kind & 1 ? 2 : 1;  // bit 0: reads, bit 1: writes
    line.shared = shared;
    line.size = bytes;
    ++line.threads;
    line.bytes += bytes;
    if (!shared) (kind & 1 ? written : read) += bytes;
    if (sampled(t.block->number)) group(t, site, address);
  }
  // An atomic: the store that was counted is a load too.
  void reads_too(unsigned site, unsigned bytes) {
    if (site >= lines_.size() || !lines_[site].threads) return;
    lines_[site].kind |= 1;
    if (!lines_[site].shared) read += bytes;
  }
  // A point that all lanes of the warp have reached: requests are whole.
  void flush(const Warp* warp) {
    auto at = warps_.find(warp);
    if (at == warps_.end()) return;
    for (auto& [site, pending] : at->second) {
      for (Request& r : pending.requests) close(lines_[site], r);
      pending = Pending{};
    }
  }
  void flush_all() {
    for (auto& [warp, unused] : warps_) flush(warp);
  }
  const std::vector<Line>& lines() const { return lines_; }
  uint64_t read = 0, written = 0;  // bytes of global memory

 private:
  struct Request {
    std::vector<uintptr_t> addresses;
  };
  // Lanes run one after the other: the k-th execution of each lane makes the k-th request of the warp.
  struct Pending {
    uint32_t count[32] = {};
    uint32_t closed = 0;  // requests before this one are complete
    std::deque<Request> requests;
  };
  static bool sampled(uint32_t block) { return block < 8 || (block % 61 == 0 && block < 61 * 24); }

  void group(const Thread& t, unsigned site, uintptr_t address) {
    Pending& p = warps_[t.warp][site];
    uint32_t k = p.count[t.lane]++ - p.closed;
    if (k >= 4096) return;
    while (p.requests.size() <= k) p.requests.emplace_back();
    Request& r = p.requests[k];
    r.addresses.push_back(address);
    if (k == 0 && r.addresses.size() == std::min(32u, t.block->size - (t.rank & ~31u))) {
      close(lines_[site], r);
      p.requests.pop_front();
      ++p.closed;
    }
  }
  static void close(Line& line, Request& r) {
    std::vector<uintptr_t>& a = r.addresses;
    if (a.empty()) return;
    ++line.requests;
    uintptr_t grain = line.shared ? 4 : 32;
    std::vector<uintptr_t> grains;
    for (uintptr_t x : a)
      for (uintptr_t g = x / grain; g <= (x + line.size - 1) / grain; ++g) grains.push_back(g);
    auto unique = [](std::vector<uintptr_t>& v) {
      std::sort(v.begin(), v.end());
      v.erase(std::unique(v.begin(), v.end()), v.end());
    };
    unique(grains);
    unique(a);
    if (line.shared) {
      unsigned banks[32] = {}, most = 0;
      for (uintptr_t word : grains) most = std::max(most, ++banks[word % 32]);
      line.units += most;
      line.ideal += (grains.size() + 31) / 32;
    } else {
      line.units += grains.size();
      line.ideal += (a.size() * line.size + 31) / 32;
    }
  }
  std::vector<Line> lines_;
  std::unordered_map<const Warp*, std::unordered_map<unsigned, Pending>> warps_;
};

}  // namespace kforge_emulator
