// Loads and stores with cache hints, and asynchronous copies that arrive when they are waited for, not before:
// a kernel that forgets the wait reads poison.
#pragma once
#include <cstring>

#include "runtime.h"

namespace kforge_emulator {

template <class T>
struct Same {
  using type = T;
};

inline void copy_async(void* to, const void* from, unsigned size, unsigned bytes, Site site = KFORGE_HERE("cp.async")) {
  if (size != 4 && size != 8 && size != 16) fail(FAILED, site, "cp.async of %u bytes: 4, 8 or 16 are allowed", size);
  if (((size_t)to | (size_t)from) % size) fail(FAILED, site, "cp.async of %u bytes from or to a misaligned address", size);
  copy_issue({(char*)to, (const char*)from, bytes < size ? bytes : size, size, current->copies.group, site});
}
inline void copy_commit() { ++current->copies.group; }
inline void copy_wait(unsigned keep) { copy_complete(keep); }
inline void copy_wait_all() {
  copy_commit();
  copy_wait(0);
}

}  // namespace kforge_emulator

#define KFORGE_LOAD(name)                 \
  template <class T>                      \
  inline T name(const T* address) {       \
    return *address;                      \
  }
KFORGE_LOAD(__ldg)
KFORGE_LOAD(__ldca)
KFORGE_LOAD(__ldcs)
KFORGE_LOAD(__ldlu)
// These pass by the L1 cache, so they see what another block published.
#define KFORGE_UNCACHED_LOAD(name, is_strong)                                              \
  template <class T>                                                                       \
  inline T name(const T* address, ::kforge_emulator::Site site = KFORGE_HERE(#name)) {     \
    if constexpr (::kforge_emulator::kTraced) {                                            \
      T value;                                                                             \
      ::kforge_emulator::traced_load(&value, address, sizeof(T), is_strong, site);         \
      return value;                                                                        \
    }                                                                                      \
    return *address;                                                                       \
  }
KFORGE_UNCACHED_LOAD(__ldcg, false)
KFORGE_UNCACHED_LOAD(__ldcv, true)
#define KFORGE_STORE(name)                                                                  \
  template <class T>                                                                        \
  inline void name(T* address, typename ::kforge_emulator::Same<T>::type value) {           \
    *address = value;                                                                       \
  }
KFORGE_STORE(__stcg)
KFORGE_STORE(__stcs)
KFORGE_STORE(__stwb)
KFORGE_STORE(__stwt)
