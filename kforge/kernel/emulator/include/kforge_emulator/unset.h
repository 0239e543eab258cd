// What a local float holds before anything is stored in it (unset.py puts the macro behind its declaration).
#pragma once
#include <cstring>
#include <type_traits>

namespace kforge_emulator {
template <class V>
inline void unset(V& value) {
  if constexpr (std::is_floating_point_v<std::remove_all_extents_t<V>>) std::memset(&value, 0xFF, sizeof value);
}
}  // namespace kforge_emulator

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define KFORGE_UNSET(name)
#else
#define KFORGE_UNSET(name) ::kforge_emulator::unset(name)
#endif
