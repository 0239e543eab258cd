// memcpy_async of a group: each thread copies its share of 4-byte words; the bytes arrive at wait().
#pragma once
#include "../cooperative_groups.h"

namespace cooperative_groups {

template <class Group>
inline void memcpy_async(const Group& group, void* to, const void* from, size_t bytes, KFORGE_SITE("memcpy_async")) {
  kf::CopyQueue& queue = kf::current->copies;
  for (size_t at = group.thread_rank() * 16; at < bytes; at += size_t(group.size()) * 16) {
    unsigned n = unsigned(bytes - at < 16 ? bytes - at : 16);
    kf::copy_issue({(char*)to + at, (const char*)from + at, n, n, queue.group, site});
  }
  ++queue.group;
}
template <class Group>
inline void wait(const Group& group, KFORGE_SITE("wait")) {
  kf::copy_wait(0);
  group.sync(site);
}
template <unsigned Stages, class Group>
inline void wait_prior(const Group& group, KFORGE_SITE("wait_prior")) {
  kf::copy_wait(Stages);
  group.sync(site);
}

}  // namespace cooperative_groups
