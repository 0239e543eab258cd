// What -fsanitize=thread calls (libtsan is not linked), and what the headers call in such builds.
#include "tracer.h"

namespace kforge_emulator {
namespace {

bool watched(const void* address) {
  if (!tracing || !current || tracing->muted) return false;
  uintptr_t depth = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(current->stack);
  return depth >= StackPool::size();  // a local variable otherwise
}

__attribute__((noinline)) void plain(const void* address, size_t bytes, bool writes, const void* pc) {
  tracer()->access(reinterpret_cast<uintptr_t>(address), bytes, writes ? WRITE : READ, tracer()->site_of(pc));
}

__attribute__((noinline)) void is_volatile(const void* address, size_t bytes, bool writes, const void* pc) {
  unsigned site = tracer()->site_of(pc);
  if (writes) return tracer()->strong_write(reinterpret_cast<uintptr_t>(address), bytes, site);
  spin_hint(Site{"volatile read", "", 0}, 16);  // before the read: what it sees is what counts
  tracer()->strong_read(reinterpret_cast<uintptr_t>(address), bytes, site);
}

void range(const void* address, size_t bytes, bool writes, const void* pc) {
  const char* p = static_cast<const char*>(address);
  for (size_t at = 0, n; at < bytes; at += n) {
    uintptr_t from = reinterpret_cast<uintptr_t>(p + at) | 16;
    n = std::min<size_t>(size_t(1) << __builtin_ctzll(from), bytes - at);
    plain(p + at, n, writes, pc);
    tracer()->held = true;
  }
  tracer()->held = false;
}

}  // namespace

uint3 traced_thread_index() { return current->index; }
uint3 traced_block_index() { return current->block->index; }
dim3 traced_block_dim() { return current->block->dim; }
dim3 traced_grid_dim() { return current->block->grid; }
unsigned traced_lane() { return current->lane; }
char* traced_shared() { return current->block->shared; }
char* traced_dynamic() { return current->block->shared + current->block->dynamic_offset; }

void traced_fence(bool device) {
  if (tracing && current) tracer()->fence(device);
}
void traced_acquire() {
  if (tracing && current) tracer()->acquire_pending();
}
void traced_access(const void* address, size_t bytes, bool writes, Site site) {
  if (watched(address))
    tracer()->access(reinterpret_cast<uintptr_t>(address), bytes, writes ? WRITE : READ, tracer()->site_of(site));
}
void traced_load(void* to, const void* address, size_t bytes, bool is_strong, Site site) {
  if (watched(address)) {
    unsigned s = tracer()->site_of(site);
    if (is_strong)
      tracer()->strong_read(reinterpret_cast<uintptr_t>(address), bytes, s);
    else
      tracer()->access(reinterpret_cast<uintptr_t>(address), bytes, READ, s, true);
  }
  memcpy(to, address, bytes);
}
void traced_atomic(const void* address, size_t bytes, bool changes, Site site) {
  ++atomic_operations;
  if (watched(address)) tracer()->atomic(reinterpret_cast<uintptr_t>(address), bytes, tracer()->site_of(site), !changes);
}
void traced_copy(void* to, const void* from, size_t bytes) { memcpy(to, from, bytes); }

}  // namespace kforge_emulator

using namespace kforge_emulator;
#define KFORGE_PC __builtin_return_address(0)
#define KFORGE_HOOK(name, body) KFORGE_API void __tsan_##name(void* address) { if (watched(address)) body; }
#define KFORGE_HOOKS(n)                                                       \
  KFORGE_HOOK(read##n, plain(address, n, false, KFORGE_PC))                   \
  KFORGE_HOOK(write##n, plain(address, n, true, KFORGE_PC))                   \
  KFORGE_HOOK(volatile_read##n, is_volatile(address, n, false, KFORGE_PC))    \
  KFORGE_HOOK(volatile_write##n, is_volatile(address, n, true, KFORGE_PC))
#define KFORGE_UNALIGNED_HOOKS(n)                                                       \
  KFORGE_HOOK(unaligned_read##n, range(address, n, false, KFORGE_PC))                   \
  KFORGE_HOOK(unaligned_write##n, range(address, n, true, KFORGE_PC))                   \
  KFORGE_HOOK(unaligned_volatile_read##n, is_volatile(address, n, false, KFORGE_PC))    \
  KFORGE_HOOK(unaligned_volatile_write##n, is_volatile(address, n, true, KFORGE_PC))
KFORGE_HOOKS(1)
KFORGE_HOOKS(2)
KFORGE_HOOKS(4)
KFORGE_HOOKS(8)
KFORGE_HOOKS(16)
KFORGE_UNALIGNED_HOOKS(2)
KFORGE_UNALIGNED_HOOKS(4)
KFORGE_UNALIGNED_HOOKS(8)
KFORGE_UNALIGNED_HOOKS(16)
KFORGE_API void __tsan_read_range(void* a, size_t n) { if (watched(a)) range(a, n, false, KFORGE_PC); }
KFORGE_API void __tsan_write_range(void* a, size_t n) { if (watched(a)) range(a, n, true, KFORGE_PC); }
KFORGE_API void __tsan_init() {}
KFORGE_API void __tsan_func_entry(void*) {}
KFORGE_API void __tsan_func_exit() {}
KFORGE_API void __tsan_vptr_update(void*, void*) {}
KFORGE_API void __tsan_vptr_read(void*) {}

// cuda::atomic_ref and the like: host atomics with an explicit order.
namespace {
constexpr bool acquires(int order) { return order == __ATOMIC_ACQUIRE || order >= __ATOMIC_ACQ_REL || order == __ATOMIC_CONSUME; }
constexpr bool releases(int order) { return order == __ATOMIC_RELEASE || order >= __ATOMIC_ACQ_REL; }
template <class T>
void ordered_atomic(const volatile T* a, int order, bool reads, bool writes, const void* pc) {
  ++atomic_operations;
  if (!watched(const_cast<const T*>(a))) return;
  spin_hint(Site{"atomic", "", 0}, 16);
  unsigned site = tracer()->site_of(pc);
  uintptr_t address = reinterpret_cast<uintptr_t>(a);
  if (writes && releases(order)) tracer()->fence(true);
  if (reads && writes) tracer()->atomic(address, sizeof(T), site);
  else if (writes) tracer()->strong_write(address, sizeof(T), site);
  else tracer()->strong_read(address, sizeof(T), site);
  if (acquires(order)) tracer()->acquire_pending();
}
}  // namespace
#define KFORGE_FETCH(n, T, name, expression)                                         \
  KFORGE_API T __tsan_atomic##n##_##name(volatile T* a, T v, int order) {            \
    ordered_atomic(a, order, true, true, KFORGE_PC);                                 \
    T old = *a;                                                                      \
    *a = expression;                                                                 \
    return old;                                                                      \
  }
#define KFORGE_EXCHANGE(n, T, name)                                                                   \
  KFORGE_API int __tsan_atomic##n##_##name(volatile T* a, T* expected, T v, int order, int) {         \
    ordered_atomic(a, order, true, true, KFORGE_PC);                                                  \
    if (*a == *expected) return *a = v, 1;                                                            \
    return *expected = *a, 0;                                                                         \
  }
#define KFORGE_ATOMICS(n, T)                                                                                         \
  KFORGE_API T __tsan_atomic##n##_load(const volatile T* a, int o) { return ordered_atomic(a, o, true, false, KFORGE_PC), *a; } \
  KFORGE_API void __tsan_atomic##n##_store(volatile T* a, T v, int o) { ordered_atomic(a, o, false, true, KFORGE_PC), *a = v; } \
  KFORGE_FETCH(n, T, exchange, v)                                                                                    \
  KFORGE_FETCH(n, T, fetch_add, static_cast<T>(old + v))                                                                          \
  KFORGE_FETCH(n, T, fetch_sub, static_cast<T>(old - v))                                                                          \
  KFORGE_FETCH(n, T, fetch_and, static_cast<T>(old & v))                                                                          \
  KFORGE_FETCH(n, T, fetch_or, static_cast<T>(old | v))                                                                           \
  KFORGE_FETCH(n, T, fetch_xor, static_cast<T>(old ^ v))                                                                          \
  KFORGE_FETCH(n, T, fetch_nand, static_cast<T>(~(old & v)))                                                                      \
  KFORGE_EXCHANGE(n, T, compare_exchange_strong)                                                                     \
  KFORGE_EXCHANGE(n, T, compare_exchange_weak)
KFORGE_ATOMICS(8, unsigned char)
KFORGE_ATOMICS(16, unsigned short)
KFORGE_ATOMICS(32, unsigned)
KFORGE_ATOMICS(64, unsigned long long)
KFORGE_API void __tsan_atomic_thread_fence(int) { traced_fence(true); }
KFORGE_API void __tsan_atomic_signal_fence(int) {}
