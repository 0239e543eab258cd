// What the source pass turns Hopper's asynchronous instructions into: mbarrier, bulk tensor copies (TMA), wgmma.
// Nothing arrives before it is waited for: until then targets hold NaN, as they might on a GPU.
#pragma once
#include "ptx.h"
#include "runtime.h"

namespace kforge_emulator {

// A CUtensorMap as kforge.kernel.tensor_map writes it for the emulator. Innermost dimension first.
struct TensorMap {
  uint64_t magic;
  char* pointer;
  uint64_t strides[4];  // bytes, of dimensions 1 and up
  uint32_t sizes[5];
  uint16_t box[5];
  uint16_t rank, element_bytes, swizzle;  // swizzle: bytes of the pattern, 0 for none
  uint8_t fill, type;                     // fill 1: NaN outside; type: CUtensorMapDataType
};

// One lane's part of wgmma.mma_async: 64 x n sums of 32 bytes of depth.
struct MatrixProduct {
  enum Type { F16, BF16, TF32 };
  float** sums;  // n / 2 registers
  unsigned n;
  Type type;
  bool a_in_registers;
  uint32_t a_registers[4];
  uint64_t a, b;  // descriptors
  bool accumulate;
  int scale_a, scale_b;
  bool transposed_a, transposed_b;  // "MN-major"
};

#pragma GCC visibility push(default)
void mbarrier_init(char* at, unsigned count, Site site);
void mbarrier_invalidate(char* at, Site site);
// Arrivals and announced bytes; the answer is the state that a wait may name.
uint64_t mbarrier_arrive(char* at, unsigned count, unsigned bytes, Site site);
// Whether the phase of this parity is over. blocks: if not, the thread waits for its end.
bool mbarrier_wait(char* at, unsigned parity, bool blocks, Site site);
void proxy_fence();
// mask: the blocks of the cluster that get it; 0 for one copy to where the addresses say.
void tensor_load(const void* map, char* to, const int* at, unsigned rank, char* barrier, unsigned mask, Site site);
void tensor_store(const void* map, const char* from, const int* at, unsigned rank, Site site);
void bulk_commit();
void bulk_wait(unsigned keep);
void set_registers(unsigned count, Site site);
void matrix_fence(Site site);
void matrix_issue(const MatrixProduct& product, Site site);
void matrix_commit(Site site);
void matrix_wait(unsigned keep, Site site);
#pragma GCC visibility pop

namespace ptx {
inline unsigned parity_of(uint64_t state) { return unsigned(state >> 62) & 1; }
inline unsigned elect(unsigned mask, Site site) {
  warp_collective(mask, nullptr, &no_effect, site);
  return unsigned(__builtin_ctz(live_members(mask)));
}
}  // namespace ptx
}  // namespace kforge_emulator
