// Context switch and stacks of fibers. Only callee-saved registers travel; AddressSanitizer is told where it is.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

// Present only when libasan is preloaded (mode `checked`).
extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void** fake_stack_save, const void* bottom, size_t size);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void* fake, const void** bottom_old, size_t* size_old);
__attribute__((weak)) void __asan_poison_memory_region(void const volatile* address, size_t size);
__attribute__((weak)) void __asan_unpoison_memory_region(void const volatile* address, size_t size);
void kforge_switch(void** save, void* load);
}

namespace kforge_emulator {

// A stack that starts `entry` when it is switched to.
inline void* fresh_context(char* top, void (*entry)()) {
#if defined(__x86_64__)
  void** sp = reinterpret_cast<void**>(top);
  sp[-1] = nullptr;  // return address of entry: keeps the stack aligned as a call would
  sp[-2] = reinterpret_cast<void*>(entry);
  for (int i = 3; i <= 8; ++i) sp[-i] = nullptr;
  return sp - 8;
#else
  uint64_t* sp = reinterpret_cast<uint64_t*>(top) - 20;
  for (int i = 0; i < 20; ++i) sp[i] = 0;
  sp[11] = reinterpret_cast<uint64_t>(entry);  // x30
  return sp;
#endif
}

// Stacks are mapped once and reused; pages are touched only by fibers that stop at a barrier.
class StackPool {
 public:
  ~StackPool() {
    for (auto& m : mappings_) munmap(m.base, m.bytes);
  }
  static size_t size() { return __sanitizer_start_switch_fiber ? 512u << 10 : 128u << 10; }

  char* take() {
    if (free_.empty()) grow();
    char* stack = free_.back();
    free_.pop_back();
    return stack;
  }
  bool contains(const char* p) const {
    for (const auto& m : mappings_)
      if (p >= m.base && p < m.base + m.bytes) return true;
    return false;
  }
  void give(char* stack) { free_.push_back(stack); }
  // Tops are staggered: stacks whose tops share the low 12 bits fight for the same sets of the cache.
  static char* top(char* stack) { return stack + size() - (reinterpret_cast<uintptr_t>(stack) / size() % 29) * 192 - 64; }
  void reset() {
    free_.clear();
    for (; mappings_.size() > kKept; mappings_.pop_back()) munmap(mappings_.back().base, mappings_.back().bytes);
    for (auto& m : mappings_)
      for (char* s = m.base + m.bytes - size(); s >= m.base; s -= size()) {
        if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(s, size());
        free_.push_back(s);
      }
  }

 private:
  static constexpr size_t kKept = 64;  // mappings of 64 stacks that stay for the next launch
  struct Mapping {
    char* base;
    size_t bytes;
  };
  void grow() {
    constexpr size_t kCount = 64;
    size_t bytes = kCount * size();
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) abort();
    mappings_.push_back({static_cast<char*>(p), bytes});
    // One guard page per mapping and stack, while the number of maps stays far below the kernel's limit of 65530.
    for (size_t i = kCount; i-- > 0;) {
      char* stack = static_cast<char*>(p) + i * size();
      if (mappings_.size() <= 128) mprotect(stack, 4096, PROT_NONE);
      free_.push_back(stack);
    }
  }
  std::vector<Mapping> mappings_;
  std::vector<char*> free_;
};

}  // namespace kforge_emulator
