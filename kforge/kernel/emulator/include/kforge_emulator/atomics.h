// Atomics, for the types that CUDA has them for. Fibers of one OS thread need no locked instruction, and a source
// that uses atomics is never spread over OS threads, so that results do not depend on timing.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>

#include "runtime.h"

namespace kforge_emulator {

template <class T, class Op>
inline T read_modify_write(T* address, Op op, Site site) {
  spin_hint(site);
  if constexpr (kTraced) {
    T before;
    traced_copy(&before, address, sizeof(T));
    T after = op(before);
    // What changes nothing (atomicAdd of 0, a failed swap) is an atomic load.
    traced_atomic(address, sizeof(T), memcmp(&before, &after, sizeof(T)) != 0, site);
    traced_copy(address, &after, sizeof(T));
    return before;
  }
  ++atomic_operations;
  T old = *address;
  *address = op(old);
  return old;
}

}  // namespace kforge_emulator

#define KFORGE_ATOMIC_1(name, T, expression)                                                             \
  inline T name(T* address, T value, ::kforge_emulator::Site site = KFORGE_HERE(#name)) {                \
    return ::kforge_emulator::read_modify_write(address, [&](T old) -> T { return expression; }, site);  \
  }
#define KFORGE_ATOMIC(name, T, expression)        \
  KFORGE_ATOMIC_1(name, T, expression)            \
  KFORGE_ATOMIC_1(name##_block, T, expression)    \
  KFORGE_ATOMIC_1(name##_system, T, expression)

KFORGE_ATOMIC(atomicAdd, int, int(unsigned(old) + unsigned(value)))
KFORGE_ATOMIC(atomicAdd, unsigned, old + value)
KFORGE_ATOMIC(atomicAdd, unsigned long long, old + value)
KFORGE_ATOMIC(atomicAdd, float, old + value)
KFORGE_ATOMIC(atomicAdd, double, old + value)
KFORGE_ATOMIC(atomicAdd, __half, __hadd(old, value))
KFORGE_ATOMIC(atomicAdd, __half2, __hadd2(old, value))
KFORGE_ATOMIC(atomicAdd, __nv_bfloat16, __hadd(old, value))
KFORGE_ATOMIC(atomicAdd, __nv_bfloat162, __hadd2(old, value))
KFORGE_ATOMIC(atomicAdd, float2, make_float2(old.x + value.x, old.y + value.y))
KFORGE_ATOMIC(atomicAdd, float4, make_float4(old.x + value.x, old.y + value.y, old.z + value.z, old.w + value.w))
KFORGE_ATOMIC(atomicSub, int, int(unsigned(old) - unsigned(value)))
KFORGE_ATOMIC(atomicSub, unsigned, old - value)
KFORGE_ATOMIC(atomicExch, int, value)
KFORGE_ATOMIC(atomicExch, unsigned, value)
KFORGE_ATOMIC(atomicExch, unsigned long long, value)
KFORGE_ATOMIC(atomicExch, float, value)
KFORGE_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
KFORGE_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)
#define KFORGE_ATOMIC_ORDER(T)                             \
  KFORGE_ATOMIC(atomicMin, T, value < old ? value : old)   \
  KFORGE_ATOMIC(atomicMax, T, value > old ? value : old)
KFORGE_ATOMIC_ORDER(int)
KFORGE_ATOMIC_ORDER(unsigned)
KFORGE_ATOMIC_ORDER(long long)
KFORGE_ATOMIC_ORDER(unsigned long long)
#define KFORGE_ATOMIC_BITS(T)              \
  KFORGE_ATOMIC(atomicAnd, T, old & value) \
  KFORGE_ATOMIC(atomicOr, T, old | value)  \
  KFORGE_ATOMIC(atomicXor, T, old ^ value)
KFORGE_ATOMIC_BITS(int)
KFORGE_ATOMIC_BITS(unsigned)
KFORGE_ATOMIC_BITS(unsigned long long)

#define KFORGE_ATOMIC_CAS_1(name, T)                                                                          \
  inline T name(T* address, T compare, T value, ::kforge_emulator::Site site = KFORGE_HERE(#name)) {          \
    return ::kforge_emulator::read_modify_write(                                                              \
        address, [&](T old) -> T { return memcmp(&old, &compare, sizeof(T)) == 0 ? value : old; }, site);     \
  }
#define KFORGE_ATOMIC_CAS(T)           \
  KFORGE_ATOMIC_CAS_1(atomicCAS, T)    \
  KFORGE_ATOMIC_CAS_1(atomicCAS_block, T) \
  KFORGE_ATOMIC_CAS_1(atomicCAS_system, T)
KFORGE_ATOMIC_CAS(int)
KFORGE_ATOMIC_CAS(unsigned)
KFORGE_ATOMIC_CAS(unsigned long long)
KFORGE_ATOMIC_CAS(unsigned short)
