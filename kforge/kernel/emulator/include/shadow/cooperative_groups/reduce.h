// reduce and reduce_update over tiles and coalesced groups; folds in rank order.
#pragma once
#include "../cooperative_groups.h"

namespace cooperative_groups {

template <class T = void>
struct plus {
  T operator()(T a, T b) const { return a + b; }
};
template <class T = void>
struct less {
  T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T = void>
struct greater {
  T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T = void>
struct bit_and {
  T operator()(T a, T b) const { return a & b; }
};
template <class T = void>
struct bit_or {
  T operator()(T a, T b) const { return a | b; }
};
template <class T = void>
struct bit_xor {
  T operator()(T a, T b) const { return a ^ b; }
};
#define KFORGE_ANY_TYPE(name, expression)              \
  template <>                                          \
  struct name<void> {                                  \
    template <class T>                                 \
    T operator()(T a, T b) const {                     \
      return expression;                               \
    }                                                  \
  };
KFORGE_ANY_TYPE(plus, a + b)
KFORGE_ANY_TYPE(less, b < a ? b : a)
KFORGE_ANY_TYPE(greater, a < b ? b : a)
KFORGE_ANY_TYPE(bit_and, a& b)
KFORGE_ANY_TYPE(bit_or, a | b)
KFORGE_ANY_TYPE(bit_xor, a ^ b)
#undef KFORGE_ANY_TYPE

template <class Group, class T, class Op>
inline T reduce(const Group& group, T value, Op op, KFORGE_SITE("reduce")) {
  return kf::warp_reduce(group.mask(), value, op, site);
}

}  // namespace cooperative_groups
