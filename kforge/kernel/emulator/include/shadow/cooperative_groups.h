// Cooperative groups on the emulator: thread_block, tiles up to a warp, coalesced groups, grid and cluster.
#pragma once
#include "kforge_emulator/prelude.h"

namespace cooperative_groups {
namespace kf = ::kforge_emulator;

struct thread_block;

// A subset of one warp's lanes; what tiles and coalesced groups share.
class warp_group {
 public:
  explicit warp_group(unsigned mask) : mask_(mask) {}
  unsigned mask() const { return mask_; }
  unsigned num_threads() const { return __builtin_popcount(mask_); }
  unsigned size() const { return num_threads(); }
  unsigned thread_rank() const { return __builtin_popcount(mask_ & ((1u << kf::lane_id()) - 1)); }
  void sync(KFORGE_SITE("tile.sync")) const { kf::warp_collective(mask_, nullptr, &kf::no_effect, site); }
  template <class T>
  T shfl(T value, int rank, KFORGE_SITE("tile.shfl")) const {
    return kf::shuffle(mask_, value, lane_of(unsigned(rank) % size()), site);
  }
  template <class T>
  T shfl_down(T value, unsigned delta, KFORGE_SITE("tile.shfl_down")) const {
    unsigned r = thread_rank();
    return kf::shuffle(mask_, value, lane_of(r + delta < size() ? r + delta : r), site);
  }
  template <class T>
  T shfl_up(T value, unsigned delta, KFORGE_SITE("tile.shfl_up")) const {
    unsigned r = thread_rank();
    return kf::shuffle(mask_, value, lane_of(r >= delta ? r - delta : r), site);
  }
  template <class T>
  T shfl_xor(T value, unsigned lanes, KFORGE_SITE("tile.shfl_xor")) const {
    unsigned r = thread_rank() ^ lanes;
    return kf::shuffle(mask_, value, lane_of(r < size() ? r : thread_rank()), site);
  }
  int any(int predicate, KFORGE_SITE("tile.any")) const { return kf::vote(mask_, predicate, site) != 0; }
  int all(int predicate, KFORGE_SITE("tile.all")) const { return kf::vote(mask_, !predicate, site) == 0; }
  unsigned ballot(int predicate, KFORGE_SITE("tile.ballot")) const { return packed(kf::vote(mask_, predicate, site)); }
  template <class T>
  unsigned match_any(T value, KFORGE_SITE("tile.match_any")) const {
    return packed(__match_any_sync(mask_, value, site));
  }
  template <class T>
  unsigned match_all(T value, int& all, KFORGE_SITE("tile.match_all")) const {
    return packed(__match_all_sync(mask_, value, &all, site));
  }

 protected:
  unsigned lane_of(unsigned rank) const {
    unsigned left = mask_;
    while (rank--) left &= left - 1;
    return __builtin_ctz(left);
  }
  unsigned packed(unsigned lanes) const {  // bit i: the member with rank i
    unsigned out = 0, rank = 0;
    for (unsigned left = mask_; left; left &= left - 1, ++rank) out |= (lanes >> __builtin_ctz(left) & 1) << rank;
    return out;
  }
  unsigned mask_;
};

struct thread_group_base {};

class coalesced_group : public warp_group {
 public:
  using warp_group::warp_group;
  unsigned meta_group_rank() const { return 0; }
  unsigned meta_group_size() const { return 1; }
};

template <unsigned Size, class Parent = void>
class thread_block_tile : public warp_group {
  static_assert(Size && !(Size & (Size - 1)), "tiles have a power of two of threads");
  static_assert(Size <= 32, "the emulator has tiles up to a warp");

 public:
  thread_block_tile()
      : warp_group((Size == 32 ? ~0u : (1u << Size) - 1) << (kf::lane_id() & ~(Size - 1))) {}
  template <class Other>
  thread_block_tile(const thread_block_tile<Size, Other>& other) : warp_group(other) {}
  static constexpr unsigned num_threads() { return Size; }
  static constexpr unsigned size() { return Size; }
  unsigned thread_rank() const { return kf::lane_id() & (Size - 1); }
  unsigned meta_group_rank() const { return kf::current->rank / Size; }
  unsigned meta_group_size() const { return (kf::current->block->size + Size - 1) / Size; }
};

// A group whose kind is known at run time only (tiled_partition(group, n)).
class thread_group : public warp_group {
 public:
  using warp_group::warp_group;
  thread_group(const warp_group& g) : warp_group(g) {}
};

struct thread_block {
  static void sync(KFORGE_SITE("block.sync")) { kf::synchronize(kf::block_barrier(), 0, site); }
  static unsigned thread_rank() { return kf::current->rank; }
  static unsigned num_threads() { return kf::current->block->size; }
  static unsigned size() { return num_threads(); }
  static dim3 group_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
  static dim3 thread_index() { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
  struct arrival_token {
    unsigned generation;
  };
  static arrival_token barrier_arrive(KFORGE_SITE("block.barrier_arrive")) {
    unsigned generation = kf::block_barrier().generation;
    kf::arrive(kf::block_barrier(), 0, site);
    return {generation};
  }
  static void barrier_wait(arrival_token&& token, KFORGE_SITE("block.barrier_wait")) {
    kf::wait(kf::block_barrier(), token.generation, site);
  }
};

struct grid_group {
  static bool is_valid() { return kf::current->block->grid_barrier != nullptr; }
  static void sync(KFORGE_SITE("grid.sync")) {
    if (!is_valid()) kf::fail(kf::FAILED, site, "grid.sync() needs a cooperative launch");
    kf::synchronize(*kf::current->block->grid_barrier, 0, site);
  }
  static dim3 group_dim() { return gridDim; }
  static dim3 dim_blocks() { return gridDim; }
  static dim3 block_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
  static unsigned long long num_blocks() { return 1ull * gridDim.x * gridDim.y * gridDim.z; }
  static unsigned long long block_rank() {
    return (1ull * blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  }
  static unsigned long long num_threads() { return num_blocks() * kf::current->block->size; }
  static unsigned long long size() { return num_threads(); }
  static unsigned long long thread_rank() { return block_rank() * kf::current->block->size + kf::current->rank; }
};

struct cluster_group {
  struct arrival_token {
    unsigned generation;
  };
  static void sync(KFORGE_SITE("cluster.sync")) { kf::synchronize(barrier(), 0, site); }
  static arrival_token barrier_arrive(KFORGE_SITE("cluster.barrier_arrive")) {
    unsigned generation = barrier().generation;
    kf::current->cluster_generation = generation;
    kf::arrive(barrier(), 0, site);
    return {generation};
  }
  static void barrier_wait(KFORGE_SITE("cluster.barrier_wait")) {
    kf::wait(barrier(), kf::current->cluster_generation, site);
  }
  static void barrier_wait(arrival_token&& token, KFORGE_SITE("cluster.barrier_wait")) {
    kf::wait(barrier(), token.generation, site);
  }
  static unsigned block_rank() { return kf::current->block->rank_in_cluster; }
  static unsigned num_blocks() { return kf::current->block->cluster->size; }
  static dim3 block_index() {
    const uint3& i = kf::current->block->index_in_cluster;
    return dim3(i.x, i.y, i.z);
  }
  static dim3 dim_blocks() { return kf::current->block->cluster->dim; }
  static dim3 dim_threads() {
    dim3 c = dim_blocks(), b = blockDim;
    return dim3(c.x * b.x, c.y * b.y, c.z * b.z);
  }
  static unsigned num_threads() { return num_blocks() * kf::current->block->size; }
  static unsigned size() { return num_threads(); }
  static unsigned thread_rank() { return block_rank() * kf::current->block->size + kf::current->rank; }
  // The same variable in the block of that rank. `address` lies in shared memory of the calling block.
  template <class T>
  static T* map_shared_rank(T* address, int rank, KFORGE_SITE("map_shared_rank")) {
    const kf::Block& mine = *kf::current->block;
    if (rank < 0 || unsigned(rank) >= mine.cluster->size)
      kf::fail(kf::FAILED, site, "rank %d of a cluster of %u blocks", rank, mine.cluster->size);
    if (!__isShared(address)) kf::fail(kf::FAILED, site, "the pointer does not point into the block's shared memory");
    return (T*)((char*)address - mine.shared + mine.cluster->blocks[rank].shared);
  }
  static unsigned query_shared_rank(const void* address) { return (kf::to_shared(address) >> 24) - 1; }

 private:
  static kf::Barrier& barrier() { return kf::current->block->cluster->barrier; }
};

inline thread_block this_thread_block() { return {}; }
inline grid_group this_grid() { return {}; }
inline cluster_group this_cluster() { return {}; }
inline coalesced_group coalesced_threads(KFORGE_SITE("coalesced_threads")) {
  return coalesced_group(kf::active_lanes(site));
}
inline thread_block_tile<1> this_thread() { return {}; }

template <unsigned Size, class Parent>
inline thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
  return {};
}
template <class Parent>
inline thread_group tiled_partition(const Parent&, unsigned size) {
  return thread_group((size == 32 ? ~0u : (1u << size) - 1) << (kf::lane_id() & ~(size - 1)));
}
template <class Group>
inline coalesced_group binary_partition(const Group& group, bool predicate, KFORGE_SITE("binary_partition")) {
  unsigned yes = kf::vote(group.mask(), predicate, site);
  return coalesced_group(predicate ? yes : group.mask() & ~yes);
}
template <class Group, class T>
inline coalesced_group labeled_partition(const Group& group, T label, KFORGE_SITE("labeled_partition")) {
  return coalesced_group(__match_any_sync(group.mask(), label, site));
}

template <class Group>
inline void sync(const Group& group, KFORGE_SITE("sync")) {
  group.sync(site);
}
template <class Group>
inline unsigned thread_rank(const Group& group) {
  return unsigned(group.thread_rank());
}
template <class Group>
inline unsigned group_size(const Group& group) {
  return unsigned(group.size());
}

}  // namespace cooperative_groups
