// How the runtime calls a kernel: arguments come as pointers to values, one per parameter.
#pragma once
#include <type_traits>
#include <utility>

#include "shared.h"

#if defined(__SANITIZE_THREAD__)
#define KFORGE_UNTRACED __attribute__((no_sanitize("thread")))
#else
#define KFORGE_UNTRACED __attribute__((no_sanitize("alignment")))  // ctypes places arguments as it likes
#endif

namespace kforge_emulator {

template <class... A>
struct Parameters {
  static constexpr unsigned count = sizeof...(A);
  static constexpr unsigned sizes[sizeof...(A) + 1] = {unsigned(sizeof(std::decay_t<A>))..., 0};

  template <size_t... I>
  KFORGE_UNTRACED static void call(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
#if defined(__SANITIZE_THREAD__)
    void (*volatile kept_apart)(A...) = kernel;  // this function is not instrumented
    kept_apart(*static_cast<std::decay_t<A>*>(arguments[I])...);
#else
    kernel(*static_cast<std::decay_t<A>*>(arguments[I])...);
#endif
  }
};

template <class... A>
KFORGE_UNTRACED __attribute__((always_inline)) inline void invoke(void (*kernel)(A...), void** arguments) {
  Parameters<A...>::call(kernel, arguments, std::index_sequence_for<A...>{});
}
template <class... A>
constexpr unsigned parameter_count(void (*)(A...)) {
  return sizeof...(A);
}
template <class... A>
constexpr const unsigned* parameter_sizes(void (*)(A...)) {
  return Parameters<A...>::sizes;
}

}  // namespace kforge_emulator

// The source pass ends a translation unit with BEGIN, one ENTRY per kernel, END.
#define KFORGE_ENTRY(number, ...) \
  KFORGE_UNTRACED static void kforge_entry_##number(void** a) { ::kforge_emulator::invoke(&__VA_ARGS__, a); }
#define KFORGE_TABLE_BEGIN KFORGE_API const ::kforge_emulator::EntryPoint* kforge_emulator_entries(unsigned* n) { \
  static const ::kforge_emulator::EntryPoint table[] = {
#define KFORGE_TABLE_ROW(number, ...)                                                               \
  {#__VA_ARGS__, kforge_entry_##number, ::kforge_emulator::parameter_sizes(&__VA_ARGS__),           \
   ::kforge_emulator::parameter_count(&__VA_ARGS__)},
#define KFORGE_TABLE_END };                                                                         \
  *n = sizeof(table) / sizeof(table[0]);                                                            \
  return table;                                                                                     \
  }                                                                                                 \
  KFORGE_API const ::kforge_emulator::SharedVariable* kforge_emulator_shared(size_t* n, size_t* bytes) { \
    auto& layout = ::kforge_emulator::shared_layout();                                              \
    *n = layout.variables.size();                                                                   \
    *bytes = layout.bytes;                                                                          \
    return layout.variables.data();                                                                 \
  }
