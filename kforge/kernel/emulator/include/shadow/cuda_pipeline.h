// The pipeline primitives (cp.async). cuda::pipeline is not supported.
#pragma once
#include "kforge_emulator/prelude.h"

inline void __pipeline_memcpy_async(void* to, const void* from, size_t size, size_t zero_fill = 0,
                                    KFORGE_SITE("__pipeline_memcpy_async")) {
  ::kforge_emulator::copy_async(to, from, unsigned(size), unsigned(size - zero_fill), site);
}
inline void __pipeline_commit() { ::kforge_emulator::copy_commit(); }
inline void __pipeline_wait_prior(size_t keep) { ::kforge_emulator::copy_wait(unsigned(keep)); }
