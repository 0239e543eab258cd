// The library's one entry: runs all blocks of a launch, on several OS threads when the caller says it is safe.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>

#include <dlfcn.h>

#include "scheduler.h"
#include "tracing.h"

namespace kforge_emulator {
namespace {

// Schedulers keep their stacks from launch to launch.
std::mutex pool_mutex;
std::vector<std::unique_ptr<Scheduler>> pool;

std::unique_ptr<Scheduler> take_scheduler() {
  std::lock_guard<std::mutex> lock(pool_mutex);
  if (pool.empty()) return std::make_unique<Scheduler>();
  auto s = std::move(pool.back());
  pool.pop_back();
  return s;
}

void give_scheduler(std::unique_ptr<Scheduler> s) {
  std::lock_guard<std::mutex> lock(pool_mutex);
  pool.push_back(std::move(s));
}

Tracing* registered_tracer = nullptr;

void work(const LaunchRequest& request, Outcome& outcome, GangSource source) {
  auto s = take_scheduler();
  static std::mutex one_at_a_time;
  std::unique_lock<std::mutex> lock(one_at_a_time, std::defer_lock);
  if (request.traced) {
    lock.lock();
    tracing = registered_tracer;
    tracing->begin(request, *s);
  }
  s->prepare(request, outcome, source);
  s->run();
  if (request.traced) tracing->end();
  tracing = nullptr;
  give_scheduler(std::move(s));
}

}  // namespace

void register_tracer(Tracing* tracer) { registered_tracer = tracer; }
}  // namespace kforge_emulator

// 0, or a Failure with its text in `message`.
KFORGE_API int kforge_emulator_launch(const kforge_emulator::LaunchRequest* request, char* message, size_t capacity) {
  using namespace kforge_emulator;
  Outcome outcome;
  std::atomic<uint64_t> next{0};
  uint64_t blocks = uint64_t(request->grid[0]) * request->grid[1] * request->grid[2];
  uint64_t gangs =
      request->cooperative ? 1 : blocks / (request->cluster[0] * request->cluster[1] * request->cluster[2]);
  uint64_t workers = std::min<uint64_t>(request->workers, gangs);
  uint64_t chunk = std::max<uint64_t>(1, std::min<uint64_t>(64, gangs / (workers * 8)));
  std::vector<std::thread> helpers;
  for (uint64_t w = 1; w < workers; ++w)
    helpers.emplace_back([&] { work(*request, outcome, {next, gangs, chunk}); });
  work(*request, outcome, {next, gangs, chunk});
  for (auto& h : helpers) h.join();
  fflush(stdout);
  if (outcome.failure.load()) snprintf(message, capacity, "%s", outcome.message.c_str());
  return outcome.failure.load();
}

KFORGE_API unsigned long long kforge_emulator_atomic_operations() { return kforge_emulator::atomic_operations; }
// Where the library that holds this address was loaded.
KFORGE_API size_t kforge_emulator_base(const void* address) {
  Dl_info info;
  return dladdr(address, &info) ? reinterpret_cast<size_t>(info.dli_fbase) : 0;
}
