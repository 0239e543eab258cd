// inclusive_scan and exclusive_scan over tiles and coalesced groups.
#pragma once
#include "reduce.h"

namespace cooperative_groups {

template <class T, class Op>
struct scan_slot {
  T value, inclusive, exclusive;
  Op op;
  static void combine(void** slots, unsigned members) {
    T total = T();
    bool first = true;
    for (unsigned left = members; left; left &= left - 1) {
      auto* s = static_cast<scan_slot*>(slots[__builtin_ctz(left)]);
      s->exclusive = total;  // T() for the first
      total = s->inclusive = first ? s->value : s->op(total, s->value);
      first = false;
    }
  }
};

template <class Group, class T, class Op = plus<>>
inline T inclusive_scan(const Group& group, T value, Op op = Op(), KFORGE_SITE("inclusive_scan")) {
  scan_slot<T, Op> slot{value, value, value, op};
  kf::warp_collective(group.mask(), &slot, &scan_slot<T, Op>::combine, site);
  return slot.inclusive;
}
template <class Group, class T, class Op = plus<>>
inline T exclusive_scan(const Group& group, T value, Op op = Op(), KFORGE_SITE("exclusive_scan")) {
  scan_slot<T, Op> slot{value, value, value, op};
  kf::warp_collective(group.mask(), &slot, &scan_slot<T, Op>::combine, site);
  return slot.exclusive;
}

}  // namespace cooperative_groups
