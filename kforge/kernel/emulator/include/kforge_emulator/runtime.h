// What kernels and the runtime library share: the thread hierarchy and the calls that may stop a thread.
//
// A CUDA thread is a fiber. It runs until it meets a barrier, a warp operation or its end; the scheduler
// (runtime/scheduler.h) then switches to the next thread that can run. Memory of a block lives in one arena per
// block, static variables first, so that blocks may run side by side and reach each other's memory in a cluster.
#pragma once
#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#define KFORGE_API extern "C" __attribute__((visibility("default")))

namespace kforge_emulator {

// Where in the user's source a thread stands; default arguments of the intrinsics fill it in.
struct Site {
  const char* what;
  const char* file;
  int line;
};
inline Site here(const char* what, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return {what, file, line};
}
#define KFORGE_HERE(what) ::kforge_emulator::here(what)

struct Block;
struct Gang;
struct Thread;
struct View;

// cp.async copies that are issued and not yet waited for.
struct Copy {
  char* to;
  const char* from;
  unsigned bytes, size;  // bytes copied, bytes written (the rest is zero)
  unsigned group;
  Site site;
};
struct CopyQueue {
  std::vector<Copy> copies;
  unsigned group = 0;

  bool arrives(const Copy& c, unsigned keep) const { return c.group < group && group - c.group > keep; }
  // Carries out all committed groups but the newest `keep`.
  void complete(unsigned keep) {
    size_t kept = 0;
    for (const Copy& c : copies) {
      if (arrives(c, keep)) {
        memcpy(c.to, c.from, c.bytes);
        memset(c.to + c.bytes, 0, c.size - c.bytes);
      } else {
        copies[kept++] = c;
      }
    }
    copies.resize(kept);
  }
};

// Combines the slots of the lanes in `members`; called once, by the last lane that arrives.
using Combine = void (*)(void** slots, unsigned members);

struct Warp {
  unsigned live;     // lanes that exist and have not exited
  unsigned waiting;  // lanes inside a warp operation
  unsigned masks[32];
  void* slots[32];
  Combine combines[32];
  Thread* threads;  // lane 0
};

// A barrier of `expected` threads. Exited threads are subtracted from `expected` (as on sm_70 and later).
struct Barrier {
  unsigned expected = 0, arrived = 0, generation = 0;
  unsigned votes = 0, result = 0;  // __syncthreads_count: votes so far, and of the last generation
  unsigned exited = 0;
  bool one_place = false;  // __syncthreads: all must wait at the same line
  bool split = false;      // somebody arrived without waiting
  Thread* first = nullptr;  // waiting threads, in order of arrival
  Thread* last = nullptr;
  Site site{};
};

// An mbarrier's waiting threads, and what mode `traced` knows of it. Its counts are in the eight bytes themselves.
struct Mbarrier {
  Barrier barrier;              // its list of waiting threads; generation: phases completed
  const Thread* unseen_by = nullptr;  // who initialised it and has not fenced since
  std::vector<struct BulkCopy*> copies;  // in flight, that will arrive here
};

struct Cluster {
  Barrier barrier;
  Block* blocks;
  unsigned size;
  dim3 dim;
};

struct Block {
  uint3 index;
  unsigned number;  // counts the grid's blocks, those of one cluster in a row
  dim3 dim, grid;
  unsigned size;  // threads
  unsigned rank_in_cluster;
  uint3 index_in_cluster;
  Gang* gang;
  Cluster* cluster;
  Barrier* grid_barrier;  // null unless the launch is cooperative
  Barrier barrier;
  Barrier named[15];  // bar.sync 1 .. 15
  char* shared;       // arena: static variables, then dynamic memory
  size_t dynamic_offset, dynamic_bytes;
  std::map<const char*, Mbarrier> mbarriers;  // by address
  unsigned registers[8];  // a thread of each warpgroup, once setmaxnreg has said so
  Warp* warps;
  Thread* threads;
};

struct Thread {
  uint3 index;
  unsigned lane, rank;  // rank in the block
  Block* block;
  Warp* warp;
  // Owned by the scheduler.
  void* stack;    // null while the thread has not started
  void* context;  // stack pointer while it is switched out
  Thread* next;   // in a barrier's list
  Site site;      // where it waits; what == nullptr: it does not
  unsigned spins;
  unsigned gathered;  // result of active_lanes
  unsigned cluster_generation;  // of the last cluster barrier_arrive
  CopyQueue copies;
  struct BulkStores* stores;  // bulk copies to global memory, and matrix products, that are not waited for
  struct MatrixQueue* products;
  View* view;  // mode `traced`: what it knows of others
};

#pragma GCC visibility push(default)  // what the runtime library exports
extern __thread Thread* current __attribute__((tls_model("initial-exec")));
extern unsigned long long atomic_operations;  // carried out since the library was loaded

// Stops the calling lane until all live lanes of `mask` are here; `combine` then works on their slots.
void warp_collective(unsigned mask, void* slot, Combine combine, Site site);
// The lanes of the warp that reach this place together: those that arrive before every thread has stopped.
unsigned active_lanes(Site site);
// Arrives and waits. Returns how many of the threads voted true.
unsigned synchronize(Barrier& barrier, unsigned vote, Site site);
void arrive(Barrier& barrier, unsigned vote, Site site);
void wait(Barrier& barrier, unsigned generation, Site site);
// Let other threads and blocks run: __nanosleep, and what a spinning thread calls often (atomics, fences).
void yield(Site site);
void spin(Site site);
#if defined(__SANITIZE_THREAD__)
constexpr bool kTraced = true;
#else
constexpr bool kTraced = false;
#endif
inline void spin_hint(Site site, unsigned patience = kTraced ? 16 : 1024) {
  if ((++current->spins & (patience - 1)) == 0) spin(site);
}

void copy_issue(const Copy& copy);
// Carries out all committed copies but those of the newest `keep` groups.
void copy_complete(unsigned keep);

// Mode `traced` (runtime/tracer.h), which builds with -fsanitize=thread. What follows is called in such builds only.
__attribute__((const)) uint3 traced_thread_index();
__attribute__((const)) uint3 traced_block_index();
__attribute__((const)) dim3 traced_block_dim();
__attribute__((const)) dim3 traced_grid_dim();
__attribute__((const)) unsigned traced_lane();
__attribute__((pure)) char* traced_shared();  // not const: stores through it would be dead to g++
__attribute__((pure)) char* traced_dynamic();
void traced_fence(bool device);
void traced_acquire();
void traced_access(const void* address, size_t bytes, bool writes, Site site);
void traced_load(void* to, const void* address, size_t bytes, bool is_strong, Site site);
void traced_atomic(const void* address, size_t bytes, bool changes, Site site);
void traced_copy(void* to, const void* from, size_t bytes);
inline void memory_fence(bool device, Site site) {
  spin_hint(site);
  if constexpr (kTraced) traced_fence(device);
}
inline void acquire_fence() {
  if constexpr (kTraced) traced_acquire();
}

enum Failure { FAILED = 1, GPU_ONLY = 2, TIMED_OUT = 3, MISALIGNED = 4 };
[[noreturn]] void fail(Failure failure, Site site, const char* format, ...);
#pragma GCC visibility pop
[[noreturn]] inline void gpu_only(const char* instruction, Site site = KFORGE_HERE("")) {
  fail(GPU_ONLY, site, "%s", instruction);
}

// One static __shared__ variable of a module.
struct SharedVariable {
  const char* name;
  size_t offset, bytes;
};

struct EntryPoint {
  const char* name;
  void (*call)(void** arguments);
  const unsigned* sizes;  // bytes of each parameter
  unsigned parameters;
};

struct LaunchRequest {
  void (*call)(void**);
  void** arguments;
  unsigned grid[3], block[3], cluster[3];
  uint64_t static_bytes, dynamic_bytes;
  const SharedVariable* variables;
  uint64_t variable_count;
  unsigned order, workers, cooperative, strict;
  double seconds;
  const struct TracedBuffer* traced;  // null: not traced
  uint64_t traced_count;
  int traced_descriptor;
};

}  // namespace kforge_emulator
