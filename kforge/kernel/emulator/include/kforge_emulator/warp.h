// Barriers and warp operations: shuffles, votes, match, reduce.
#pragma once
#include <cstring>
#include <type_traits>

#include "runtime.h"

namespace kforge_emulator {

inline Barrier& block_barrier() { return current->block->barrier; }
inline void no_effect(void**, unsigned) {}

// bar.sync id, count: count threads (whole warps) of the block.
inline void named_barrier(unsigned id, unsigned count, bool waits, Site site) {
  if (id == 0 && count == current->block->size) {
    if (!waits) return arrive(block_barrier(), 0, site);
    synchronize(block_barrier(), 0, site);
    return;
  }
  if (id == 0 || id > 15) fail(FAILED, site, "barrier %u with %u threads is not supported", id, count);
  Barrier& barrier = current->block->named[id - 1];
  if (barrier.arrived == 0) barrier.expected = count;
  if (barrier.expected != count)
    fail(FAILED, site, "barrier %u is used with %u and with %u threads", id, barrier.expected, count);
  unsigned generation = barrier.generation;
  arrive(barrier, 0, site);
  if (waits) wait(barrier, generation, site);
}

// What a lane hands in and gets back. An undefined result (source lane absent) is all ones: NaN as a float.
template <class T>
struct Shuffle {
  T in, out;
  unsigned source;

  static void combine(void** slots, unsigned members) {
    for (unsigned left = members; left; left &= left - 1) {
      auto* s = static_cast<Shuffle*>(slots[__builtin_ctz(left)]);
      if (members >> s->source & 1)
        memcpy(&s->out, &static_cast<Shuffle*>(slots[s->source])->in, sizeof(T));
      else
        memset(static_cast<void*>(&s->out), 0xff, sizeof(T));
    }
  }
};

template <class T>
inline T shuffle(unsigned mask, T value, unsigned source, Site site) {
  static_assert(std::is_trivially_copyable<T>::value, "shuffles move plain values");
  Shuffle<T> slot{value, value, source};
  warp_collective(mask, &slot, &Shuffle<T>::combine, site);
  return slot.out;
}
inline unsigned lane_id() { return kTraced ? traced_lane() : current->lane; }
// The source lanes as PTX's shfl defines them; `width` is a power of two up to 32.
inline unsigned source_index(unsigned lane, int width) { return (lane_id() & ~(width - 1)) | (lane & (width - 1)); }
inline unsigned source_up(unsigned delta, int width) {
  return (lane_id() & (width - 1)) >= delta ? lane_id() - delta : lane_id();
}
inline unsigned source_down(unsigned delta, int width) {
  return (lane_id() & (width - 1)) + delta < unsigned(width) ? lane_id() + delta : lane_id();
}
inline unsigned source_xor(unsigned lanes, int width) {
  unsigned source = lane_id() ^ lanes;
  return source <= (lane_id() | (width - 1)) ? source : lane_id();
}

struct Vote {
  unsigned predicate, result;
  static void ballot(void** slots, unsigned members) {
    unsigned ballot = 0;
    for (unsigned left = members; left; left &= left - 1) {
      unsigned lane = __builtin_ctz(left);
      ballot |= unsigned(static_cast<Vote*>(slots[lane])->predicate != 0) << lane;
    }
    for (unsigned left = members; left; left &= left - 1) static_cast<Vote*>(slots[__builtin_ctz(left)])->result = ballot;
  }
};
inline unsigned vote(unsigned mask, int predicate, Site site) {
  Vote slot{unsigned(predicate != 0), 0};
  warp_collective(mask, &slot, &Vote::ballot, site);
  return slot.result;
}
inline unsigned live_members(unsigned mask) { return mask & current->warp->live; }

template <class T>
struct Match {
  T value;
  unsigned same, all;
  static void combine(void** slots, unsigned members) {
    for (unsigned i = members; i; i &= i - 1) {
      auto* a = static_cast<Match*>(slots[__builtin_ctz(i)]);
      a->same = 0;
      for (unsigned j = members; j; j &= j - 1) {
        unsigned lane = __builtin_ctz(j);
        if (!memcmp(&static_cast<Match*>(slots[lane])->value, &a->value, sizeof(T))) a->same |= 1u << lane;
      }
      a->all = a->same == members;
    }
  }
};

// Folds in lane order; every member gets the result.
template <class T, class Op>
struct Reduce {
  T value, out;
  Op op;
  static void combine(void** slots, unsigned members) {
    auto slot = [&](unsigned set) { return static_cast<Reduce*>(slots[__builtin_ctz(set)]); };
    T total = slot(members)->value;
    for (unsigned left = members & (members - 1); left; left &= left - 1)
      total = slot(members)->op(total, slot(left)->value);
    for (unsigned left = members; left; left &= left - 1) slot(left)->out = total;
  }
};
template <class T, class Op>
inline T warp_reduce(unsigned mask, T value, Op op, Site site) {
  Reduce<T, Op> slot{value, value, op};
  warp_collective(mask, &slot, &Reduce<T, Op>::combine, site);
  return slot.out;
}

}  // namespace kforge_emulator

#define KFORGE_SITE(what) ::kforge_emulator::Site site = KFORGE_HERE(what)

inline void __syncthreads(KFORGE_SITE("__syncthreads")) {
  ::kforge_emulator::synchronize(::kforge_emulator::block_barrier(), 0, site);
}
inline int __syncthreads_count(int predicate, KFORGE_SITE("__syncthreads_count")) {
  return ::kforge_emulator::synchronize(::kforge_emulator::block_barrier(), predicate != 0, site);
}
inline int __syncthreads_or(int predicate, KFORGE_SITE("__syncthreads_or")) {
  return ::kforge_emulator::synchronize(::kforge_emulator::block_barrier(), predicate != 0, site) != 0;
}
inline int __syncthreads_and(int predicate, KFORGE_SITE("__syncthreads_and")) {
  return ::kforge_emulator::synchronize(::kforge_emulator::block_barrier(), predicate == 0, site) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu, KFORGE_SITE("__syncwarp")) {
  ::kforge_emulator::warp_collective(mask, nullptr, &::kforge_emulator::no_effect, site);
}

template <class T>
inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, KFORGE_SITE("__shfl_sync")) {
  return ::kforge_emulator::shuffle(mask, value, ::kforge_emulator::source_index(lane, width), site);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, KFORGE_SITE("__shfl_up_sync")) {
  return ::kforge_emulator::shuffle(mask, value, ::kforge_emulator::source_up(delta, width), site);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, KFORGE_SITE("__shfl_down_sync")) {
  return ::kforge_emulator::shuffle(mask, value, ::kforge_emulator::source_down(delta, width), site);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, KFORGE_SITE("__shfl_xor_sync")) {
  return ::kforge_emulator::shuffle(mask, value, ::kforge_emulator::source_xor(lanes, width), site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, KFORGE_SITE("__ballot_sync")) {
  return ::kforge_emulator::vote(mask, predicate, site);
}
inline int __any_sync(unsigned mask, int predicate, KFORGE_SITE("__any_sync")) {
  return ::kforge_emulator::vote(mask, predicate, site) != 0;
}
inline int __all_sync(unsigned mask, int predicate, KFORGE_SITE("__all_sync")) {
  return ::kforge_emulator::vote(mask, !predicate, site) == 0;
}
inline unsigned __activemask(KFORGE_SITE("__activemask")) { return ::kforge_emulator::active_lanes(site); }

template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, KFORGE_SITE("__match_any_sync")) {
  ::kforge_emulator::Match<T> slot{value, 0, 0};
  ::kforge_emulator::warp_collective(mask, &slot, &::kforge_emulator::Match<T>::combine, site);
  return slot.same;
}
template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int* all, KFORGE_SITE("__match_all_sync")) {
  ::kforge_emulator::Match<T> slot{value, 0, 0};
  ::kforge_emulator::warp_collective(mask, &slot, &::kforge_emulator::Match<T>::combine, site);
  *all = int(slot.all);
  return slot.all ? slot.same : 0;
}

#define KFORGE_WARP_REDUCE(name, T, expression)                                                               \
  inline T name(unsigned mask, T value, KFORGE_SITE(#name)) {                                                 \
    return ::kforge_emulator::warp_reduce(mask, value, [](T a, T b) -> T { return expression; }, site);       \
  }
KFORGE_WARP_REDUCE(__reduce_add_sync, unsigned, a + b)
KFORGE_WARP_REDUCE(__reduce_add_sync, int, int(unsigned(a) + unsigned(b)))
KFORGE_WARP_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
KFORGE_WARP_REDUCE(__reduce_min_sync, int, a < b ? a : b)
KFORGE_WARP_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
KFORGE_WARP_REDUCE(__reduce_max_sync, int, a > b ? a : b)
KFORGE_WARP_REDUCE(__reduce_and_sync, unsigned, a & b)
KFORGE_WARP_REDUCE(__reduce_or_sync, unsigned, a | b)
KFORGE_WARP_REDUCE(__reduce_xor_sync, unsigned, a ^ b)

inline void __nanosleep(unsigned, KFORGE_SITE("__nanosleep")) { ::kforge_emulator::yield(site); }
inline void __threadfence(KFORGE_SITE("__threadfence")) { ::kforge_emulator::memory_fence(true, site); }
inline void __threadfence_block(KFORGE_SITE("__threadfence_block")) { ::kforge_emulator::memory_fence(false, site); }
inline void __threadfence_system(KFORGE_SITE("__threadfence_system")) { ::kforge_emulator::memory_fence(true, site); }
[[noreturn]] inline void __trap(KFORGE_SITE("__trap")) {
  ::kforge_emulator::fail(::kforge_emulator::FAILED, site, "the kernel stopped itself");
}
inline void __brkpt(KFORGE_SITE("__brkpt")) { __trap(site); }
