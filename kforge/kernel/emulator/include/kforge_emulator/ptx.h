// What the source pass turns inline PTX into. Layouts of fragments: PTX ISA, "Matrix Fragments for mma".
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "atomics.h"
#include "intrinsics.h"
#include "memory.h"
#include "shared.h"
#include "warp.h"

namespace kforge_emulator {
namespace ptx {

// Registers have no type: equal sizes are copied bit by bit.
template <class From, class To>
inline void assign(To& to, From from) {
  if constexpr (sizeof(To) == sizeof(From))
    memcpy(static_cast<void*>(&to), &from, sizeof to);
  else
    to = To(from);
}
// `Cell` may be volatile in memory: one access.
template <class Cell, class Place, class From>
inline void store(Place& place, From from) {
  Cell value;
  assign<From>(value, from);
  place = value;
}
template <class T>
inline uint32_t word(T value) {
  uint32_t u = 0;
  memcpy(&u, &value, sizeof(T) < 4 ? sizeof(T) : 4);
  return u;
}
template <class T>
inline float as_float(T value) {
  return bits<float>(word(value));
}

// An address operand: a pointer or 64-bit integer for global memory, a 32-bit window address for shared memory.
template <class T>
inline char* global(T address) {
  return (char*)(size_t)address;
}
template <class T>
inline char* shared(T address) {
  return from_shared((size_t)address);
}
inline unsigned map_rank(unsigned address, unsigned rank) { return ((rank + 1) << 24) | (address & 0xffffff); }

inline unsigned round_tf32(unsigned bits) {
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;  // its payload may not round over into the sign
  return nan ? 0x7fffffffu : (bits + 0x1000u) & ~0x1fffu;
}
inline unsigned pack_half(float high, float low) {
  return word(__float2half(low)) | word(__float2half(high)) << 16;
}
inline unsigned pack_bfloat16(float high, float low) {
  return word(__float2bfloat16(low)) | word(__float2bfloat16(high)) << 16;
}

// ldmatrix: 8x8 matrices of 16-bit elements; lane 8i+r brings the address of row r of matrix i.
struct LoadMatrix {
  const char* row;
  uint32_t registers[4];
  int count;
  bool transposed;
  static void combine(void** slots, unsigned members) {
    if (members != ~0u) fail(FAILED, KFORGE_HERE("ldmatrix"), "needs all 32 lanes of the warp");
    auto slot = [&](int lane) { return static_cast<LoadMatrix*>(slots[lane]); };
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < slot(lane)->count; ++i)
        for (int half = 0; half < 2; ++half) {
          int pair = 2 * (lane % 4) + half, other = lane / 4;
          int row = slot(lane)->transposed ? pair : other, column = slot(lane)->transposed ? other : pair;
          memcpy((char*)&slot(lane)->registers[i] + 2 * half, slot(8 * i + row)->row + 2 * column, 2);
        }
  }
};
inline void load_matrix(uint32_t* registers, int count, bool transposed, const char* row, Site site) {
  if ((size_t)row % 16) fail(FAILED, site, "a row of ldmatrix is not aligned to 16 bytes");
  if (kTraced && current->lane < 8u * unsigned(count)) traced_access(row, 16, false, site);
  LoadMatrix slot{row, {}, count, transposed};
  warp_collective(~0u, &slot, &LoadMatrix::combine, site);
  memcpy(registers, slot.registers, 4 * count);
}

// How many elements a 32-bit register holds, and their values.
struct f16 {
  static constexpr int per_register = 2;
  using Sum = float;
  static float get(uint32_t r, int i) { return __half2float(bits<__half>((unsigned short)(r >> 16 * i))); }
};
struct bf16 {
  static constexpr int per_register = 2;
  using Sum = float;
  static float get(uint32_t r, int i) { return bits<float>(r >> 16 * i << 16); }
};
struct tf32 {
  static constexpr int per_register = 1;
  using Sum = float;
  static float get(uint32_t r, int) { return bits<float>(r & ~0x1fffu); }
};
struct s8 {
  static constexpr int per_register = 4;
  using Sum = int;
  static int get(uint32_t r, int i) { return (signed char)(r >> 8 * i); }
};
struct u8 {
  static constexpr int per_register = 4;
  using Sum = int;
  static int get(uint32_t r, int i) { return (unsigned char)(r >> 8 * i); }
};
template <__nv_fp8_interpretation_t Kind>
struct fp8 {
  static constexpr int per_register = 4;
  using Sum = float;
  static float get(uint32_t r, int i) {
    return __half2float(__half(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)(r >> 8 * i), Kind)));
  }
};
using e4m3 = fp8<__NV_E4M3>;
using e5m2 = fp8<__NV_E5M2>;

// mma.sync m16n8kK: 16x8 sums, in fp32 or int32 (four registers) or half (two).
template <class A, class B, int K, bool HalfSums>
struct Multiply {
  static constexpr int a_count = K / (2 * A::per_register), b_count = K / (4 * B::per_register);
  uint32_t a[a_count], b[b_count], c[HalfSums ? 2 : 4];
  static void combine(void** slots, unsigned members) {
    if (members != ~0u) fail(FAILED, KFORGE_HERE("mma.sync"), "needs all 32 lanes of the warp");
    using Sum = typename A::Sum;
    auto slot = [&](int lane) { return static_cast<Multiply*>(slots[lane]); };
    Sum as[16][K], bs[K][8];
    for (int lane = 0; lane < 32; ++lane) {
      int group = lane / 4, column = lane % 4;
      for (int i = 0; i < a_count; ++i)
        for (int e = 0; e < A::per_register; ++e)
          as[group + 8 * (i & 1)][(column + 4 * (i >> 1)) * A::per_register + e] = A::get(slot(lane)->a[i], e);
      for (int i = 0; i < b_count; ++i)
        for (int e = 0; e < B::per_register; ++e)
          bs[(column + 4 * i) * B::per_register + e][group] = B::get(slot(lane)->b[i], e);
    }
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        int row = lane / 4 + 8 * (i >> 1), column = 2 * (lane % 4) + (i & 1);
        uint32_t& c = slot(lane)->c[HalfSums ? i >> 1 : i];
        Sum sum = HalfSums ? Sum(f16::get(c, i & 1)) : bits<Sum>(c);
        for (int k = 0; k < K; ++k) sum += as[row][k] * bs[k][column];
        if constexpr (HalfSums)
          c = (c & (i & 1 ? 0xffffu : 0xffff0000u)) | word(__float2half(float(sum))) << 16 * (i & 1);
        else
          c = bits<uint32_t>(sum);
      }
  }
};
template <class A, class B, int K, bool HalfSums>
inline void multiply(uint32_t* c, const uint32_t* a, const uint32_t* b, Site site) {
  using Slot = Multiply<A, B, K, HalfSums>;
  Slot slot;
  memcpy(slot.a, a, sizeof slot.a), memcpy(slot.b, b, sizeof slot.b), memcpy(slot.c, c, sizeof slot.c);
  warp_collective(~0u, &slot, &Slot::combine, site);
  memcpy(c, slot.c, sizeof slot.c);
}

inline void cluster_arrive(Site site) {
  Barrier& barrier = current->block->cluster->barrier;
  current->cluster_generation = barrier.generation;
  arrive(barrier, 0, site);
}
inline void cluster_wait(Site site) { wait(current->block->cluster->barrier, current->cluster_generation, site); }

}  // namespace ptx
}  // namespace kforge_emulator
