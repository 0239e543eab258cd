// How a launch fails: what is said, and the way back to the caller from any fiber.
#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "scheduler.h"

namespace kforge_emulator {

std::string describe(const Site& site) {
  std::string text = site.file ? site.file : "?";
  text += ":" + std::to_string(site.line);
  if (site.what && *site.what) text += std::string(" (") + site.what + ")";
  return text;
}

static std::string thread_name(const Thread& t) {
  char text[96];
  const uint3& b = t.block->index;
  snprintf(text, sizeof text, "thread (%u,%u,%u) of block (%u,%u,%u)", t.index.x, t.index.y, t.index.z, b.x, b.y, b.z);
  return text;
}

std::string hexadecimal(unsigned mask) {
  char text[16];
  snprintf(text, sizeof text, "0x%08x", mask);
  return text;
}

void Scheduler::fail(Failure failure, const std::string& message) {
  if (!outcome_->claimed.test_and_set()) {
    outcome_->message = message;
    outcome_->failure.store(failure);
  }
  back_to_main();
}

void fail(Failure failure, Site site, const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (failure == GPU_ONLY) scheduler->fail(failure, std::string(text) + "\n" + describe(site));
  scheduler->fail(failure, describe(site) + ": " + text + ", " + thread_name(*current));
}

std::string Scheduler::waiting_summary() const {
  struct Place {
    std::string name;
    const Thread* first;
    unsigned threads;
  };
  std::vector<Place> places;
  auto add = [&](const Thread& t) {
    if (!t.site.what) return;
    std::string name = describe(t.site);
    auto known = std::find_if(places.begin(), places.end(), [&](const Place& p) { return p.name == name; });
    if (known == places.end())
      places.push_back({name, &t, 1});
    else
      ++known->threads;
  };
  for (const auto& gang : gangs_)
    if (gang->live)
      for (const Thread& t : gang->threads) add(t);
  std::string text;
  for (const Place& p : places)
    text += (text.empty() ? "" : "; ") + std::to_string(p.threads) +
            (p.threads == 1 ? " thread waits at " : " threads wait at ") + p.name + ", first " + thread_name(*p.first);
  return text.empty() ? "no thread waits" : text;
}

void Scheduler::deadlock() {
  std::string why = "deadlock: " + waiting_summary();
  if (sources_left_ && gangs_.size() >= window_)
    why += "; " + std::to_string(window_ * gang_blocks_) + " blocks are alive, the most that the emulator keeps (" +
           std::to_string(kWindowThreads) + " threads, " + std::to_string(kWindowBytes >> 20) +
           " MiB of shared memory), and later ones have not started";
  fail(FAILED, why);
}

}  // namespace kforge_emulator
