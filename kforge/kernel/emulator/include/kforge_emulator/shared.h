// Shared memory. The source pass turns `__shared__ float tile[8][33], x;` into references into the block's arena:
//   struct Tag1 {...}; float (&tile)[8][33] = ::kforge_emulator::Shared<Tag1>{};
// A tag is local to its function, so each instantiation of a template has its own variable, as in CUDA.
#pragma once
#include <vector>

#include "runtime.h"

namespace kforge_emulator {

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kRedzone = 64;  // poisoned by the runtime
#else
constexpr size_t kRedzone = 0;
#endif

struct SharedLayout {
  std::vector<SharedVariable> variables;
  size_t bytes = kRedzone;

  size_t reserve(const char* name, size_t size, size_t alignment) {
#if !defined(__SANITIZE_ADDRESS__)
    if (size >= 16 && alignment < 16) alignment = 16;  // what ptxas does for arrays that are read as vectors
#endif
    if (alignment < 8 && kRedzone) alignment = 8;  // AddressSanitizer's granule
    size_t offset = (bytes + alignment - 1) / alignment * alignment;
    variables.push_back({name, offset, size});
    bytes = offset + size + kRedzone;
    return offset;
  }
};

inline SharedLayout& shared_layout() {
  static SharedLayout layout;
  return layout;
}

template <class Tag, class T>
struct SharedSlot {
  inline static const size_t offset =
      shared_layout().reserve(Tag::name(), sizeof(T), Tag::alignment() > alignof(T) ? Tag::alignment() : alignof(T));
};

template <class Tag>
struct Shared {
  template <class T>
  operator T&() const {
    char* base = kTraced ? traced_shared() : current->block->shared;
    return *reinterpret_cast<T*>(base + SharedSlot<Tag, T>::offset);
  }
};

struct DynamicShared {
  template <class T>
  operator T*() const {
    if constexpr (kTraced) return reinterpret_cast<T*>(traced_dynamic());
    return reinterpret_cast<T*>(current->block->shared + current->block->dynamic_offset);
  }
};

// Addresses in the shared window as PTX sees them: rank in the cluster + 1 above bit 24, offset in the arena below.
inline unsigned to_shared(const volatile void* pointer) {
  const char* p = (const char*)pointer;
  const Cluster& cluster = *current->block->cluster;
  for (unsigned r = 0; r < cluster.size; ++r) {
    const Block& b = cluster.blocks[r];
    if (p >= b.shared && p <= b.shared + b.dynamic_offset + b.dynamic_bytes)
      return ((r + 1) << 24) + unsigned(p - b.shared);
  }
  fail(FAILED, KFORGE_HERE("__cvta_generic_to_shared"), "the pointer does not point into shared memory");
}
inline char* from_shared(size_t address) {
  unsigned rank = unsigned(address >> 24) - 1;
  if (rank >= current->block->cluster->size)
    fail(FAILED, KFORGE_HERE(""), "0x%zx is no address in shared memory", address);
  return current->block->cluster->blocks[rank].shared + (address & 0xffffff);
}

}  // namespace kforge_emulator

// Declarations that the pass did not see (inside macros): one copy per OS thread.
#undef __shared__
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define __shared__ static
#else
#define __shared__ static thread_local
#endif

inline size_t __cvta_generic_to_shared(const void* p) { return ::kforge_emulator::to_shared(p); }
inline void* __cvta_shared_to_generic(size_t a) { return ::kforge_emulator::from_shared(a); }
inline size_t __cvta_generic_to_global(const void* p) { return (size_t)p; }
inline unsigned __isShared(const void* pointer) {
  const ::kforge_emulator::Block& b = *::kforge_emulator::current->block;
  return (const char*)pointer >= b.shared && (const char*)pointer < b.shared + b.dynamic_offset + b.dynamic_bytes;
}
inline unsigned __isGlobal(const void* p) { return !__isShared(p); }
