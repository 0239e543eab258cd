// Device-only functions of half and bfloat16. The types, their conversions and operators are NVIDIA's own host code;
// a function here computes in fp32 (fma in fp64) and rounds once.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>

#include "intrinsics.h"

namespace kforge_emulator {
inline float widen(__half x) { return __half2float(x); }
inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class T>
T narrow(float x);
template <>
inline __half narrow<__half>(float x) { return __float2half(x); }
template <>
inline __nv_bfloat16 narrow<__nv_bfloat16>(float x) { return __float2bfloat16(x); }
template <class T>
T narrow_double(double x);
template <>
inline __half narrow_double<__half>(double x) { return __double2half(x); }
template <>
inline __nv_bfloat16 narrow_double<__nv_bfloat16>(double x) { return __double2bfloat16(x); }

template <class T>
inline T fused(T a, T b, T c) {
  // The product of two halves is exact in fp64, and so is the sum wherever the double rounding could matter.
  return narrow_double<T>(double(widen(a)) * double(widen(b)) + double(widen(c)));
}
template <class T>
inline T relu(T x) {
  float f = widen(x);
  return f < 0.0f ? narrow<T>(0.0f) : x;
}
template <class T>
inline T clamp01(T x) {
  return narrow<T>(__saturatef(widen(x)));
}
}  // namespace kforge_emulator

#define KFORGE_HALF_UNARY(T, T2, suffix, expression)                                            \
  inline T h##suffix(T a) {                                                                     \
    float x = ::kforge_emulator::widen(a);                                                      \
    return ::kforge_emulator::narrow<T>(expression);                                            \
  }                                                                                             \
  inline T2 h2##suffix(T2 a) { return T2(h##suffix(a.x), h##suffix(a.y)); }

#define KFORGE_HALF(T, T2)                                                                      \
  KFORGE_HALF_UNARY(T, T2, exp, expf(x))                                                        \
  KFORGE_HALF_UNARY(T, T2, exp2, exp2f(x))                                                      \
  KFORGE_HALF_UNARY(T, T2, exp10, __exp10f(x))                                                  \
  KFORGE_HALF_UNARY(T, T2, log, logf(x))                                                        \
  KFORGE_HALF_UNARY(T, T2, log2, log2f(x))                                                      \
  KFORGE_HALF_UNARY(T, T2, log10, log10f(x))                                                    \
  KFORGE_HALF_UNARY(T, T2, sin, sinf(x))                                                        \
  KFORGE_HALF_UNARY(T, T2, cos, cosf(x))                                                        \
  KFORGE_HALF_UNARY(T, T2, sqrt, sqrtf(x))                                                      \
  KFORGE_HALF_UNARY(T, T2, rsqrt, rsqrtf(x))                                                    \
  KFORGE_HALF_UNARY(T, T2, rcp, 1.0f / x)                                                       \
  KFORGE_HALF_UNARY(T, T2, tanh, tanhf(x))                                                      \
  KFORGE_HALF_UNARY(T, T2, tanh_approx, tanhf(x))                                               \
  KFORGE_HALF_UNARY(T, T2, ceil, ceilf(x))                                                      \
  KFORGE_HALF_UNARY(T, T2, floor, floorf(x))                                                    \
  KFORGE_HALF_UNARY(T, T2, trunc, truncf(x))                                                    \
  KFORGE_HALF_UNARY(T, T2, rint, nearbyintf(x))                                                 \
  inline T __hfma(T a, T b, T c) { return ::kforge_emulator::fused(a, b, c); }                  \
  inline T __hfma_sat(T a, T b, T c) { return ::kforge_emulator::clamp01(__hfma(a, b, c)); }    \
  inline T __hfma_relu(T a, T b, T c) { return ::kforge_emulator::relu(__hfma(a, b, c)); }      \
  inline T2 __hfma2(T2 a, T2 b, T2 c) { return T2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); }                 \
  inline T2 __hfma2_sat(T2 a, T2 b, T2 c) { return T2(__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)); }     \
  inline T2 __hfma2_relu(T2 a, T2 b, T2 c) { return T2(__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)); }  \
  inline T2 __hcmadd(T2 a, T2 b, T2 c) {                                                        \
    T minus_ay = ::kforge_emulator::narrow<T>(-::kforge_emulator::widen(a.y));                  \
    return T2(__hfma(minus_ay, b.y, __hfma(a.x, b.x, c.x)), __hfma(a.y, b.x, __hfma(a.x, b.y, c.y)));              \
  }
KFORGE_HALF(__half, __half2)
KFORGE_HALF(__nv_bfloat16, __nv_bfloat162)

#define KFORGE_HALF_TO_INTEGER(prefix, T, name, I)                                                                   \
  inline I prefix##2##name##_rn(T x) { return ::kforge_emulator::saturate_to<I>(nearbyintf(::kforge_emulator::widen(x))); } \
  inline I prefix##2##name##_ru(T x) { return ::kforge_emulator::saturate_to<I>(ceilf(::kforge_emulator::widen(x))); }      \
  inline I prefix##2##name##_rd(T x) { return ::kforge_emulator::saturate_to<I>(floorf(::kforge_emulator::widen(x))); }
#define KFORGE_HALF_TO_INTEGERS(prefix, T)                         \
  KFORGE_HALF_TO_INTEGER(prefix, T, int, int)                      \
  KFORGE_HALF_TO_INTEGER(prefix, T, uint, unsigned)                \
  KFORGE_HALF_TO_INTEGER(prefix, T, short, short)                  \
  KFORGE_HALF_TO_INTEGER(prefix, T, ushort, unsigned short)        \
  KFORGE_HALF_TO_INTEGER(prefix, T, ll, long long)                 \
  KFORGE_HALF_TO_INTEGER(prefix, T, ull, unsigned long long)
KFORGE_HALF_TO_INTEGERS(__half, __half)
KFORGE_HALF_TO_INTEGERS(__bfloat16, __nv_bfloat16)
