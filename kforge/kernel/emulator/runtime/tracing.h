// What the scheduler tells mode `traced`. The tracer is a library of its own (trace/), loaded when something is traced.
#pragma once
#include "kforge_emulator/runtime.h"

namespace kforge_emulator {

class Scheduler;

struct Tracing {
  virtual ~Tracing() = default;
  virtual void begin(const LaunchRequest& request, const Scheduler& scheduler) = 0;
  virtual void end() = 0;
  virtual void block_starts(Block& block) = 0;
  virtual void thread_exits(Thread& thread) = 0;
  virtual void arrives(Barrier& barrier, bool stays) = 0;
  virtual void waits(Barrier& barrier, bool passed) = 0;
  virtual void completes(Barrier& barrier) = 0;
  virtual void collective(Warp& warp, unsigned members) = 0;
  virtual void copy_starts(const Copy& copy) = 0;
  virtual void copy_arrives(const Copy& copy) = 0;
  virtual void reads(const void* address, size_t bytes, const Site& site) = 0;
  // Writes to shared memory by ordinary stores are seen by tensor copies and wgmma after a fence.proxy.async alone.
  virtual void proxy_fence() = 0;
  virtual void written_by_copy(const void* address, size_t bytes) = 0;
  virtual bool unfenced(const void* address, size_t bytes) = 0;
  virtual void memory_moved() = 0;  // the scheduler allocated
  int muted = 0;                    // the emulator itself works
};

#pragma GCC visibility push(default)
extern thread_local Tracing* tracing;  // null: this OS thread traces nothing
void register_tracer(Tracing* tracer);
#pragma GCC visibility pop

}  // namespace kforge_emulator
