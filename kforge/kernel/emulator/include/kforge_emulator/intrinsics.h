// Device functions that are no part of the host's math library. fp32 math is the host's libm: more exact than the GPU.
#pragma once
#include <math.h>
#include <vector_functions.h>

#include <cfenv>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runtime.h"

// ---- bits ----------------------------------------------------------------------------------------------------

namespace kforge_emulator {
template <class To, class From>
inline To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To to;
  memcpy(static_cast<void*>(&to), &from, sizeof to);
  return to;
}
}  // namespace kforge_emulator

inline int __float_as_int(float x) { return ::kforge_emulator::bits<int>(x); }
inline unsigned __float_as_uint(float x) { return ::kforge_emulator::bits<unsigned>(x); }
inline float __int_as_float(int x) { return ::kforge_emulator::bits<float>(x); }
inline float __uint_as_float(unsigned x) { return ::kforge_emulator::bits<float>(x); }
inline long long __double_as_longlong(double x) { return ::kforge_emulator::bits<long long>(x); }
inline double __longlong_as_double(long long x) { return ::kforge_emulator::bits<double>(x); }
inline int __double2hiint(double x) { return int(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return int(__double_as_longlong(x)); }
inline double __hiloint2double(int high, int low) {
  return __longlong_as_double((long long)(((unsigned long long)(unsigned)high << 32) | (unsigned)low));
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
inline unsigned long long __brevll(unsigned long long x) {
  return (unsigned long long)__brev(unsigned(x)) << 32 | __brev(unsigned(x >> 32));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  unsigned long long all = (unsigned long long)y << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    unsigned s = selector >> 4 * i & 0xf, byte = unsigned(all >> 8 * (s & 7)) & 0xff;
    if (s & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << 8 * i;
  }
  return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
  n &= 31;
  return n ? high << n | low >> (32 - n) : high;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n) {
  n &= 31;
  return n ? low >> n | high << (32 - n) : low;
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned n) {
  return n >= 32 ? low : __funnelshift_l(low, high, n);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned n) {
  return n >= 32 ? high : __funnelshift_r(low, high, n);
}

// ---- integers ------------------------------------------------------------------------------------------------

inline int __mul24(int a, int b) { return int((long long)(a << 8 >> 8) * (b << 8 >> 8)); }
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __hadd(int a, int b) { return int(((long long)a + b) >> 1); }
inline int __rhadd(int a, int b) { return int(((long long)a + b + 1) >> 1); }
inline unsigned __uhadd(unsigned a, unsigned b) { return unsigned(((unsigned long long)a + b) >> 1); }
inline unsigned __urhadd(unsigned a, unsigned b) { return unsigned(((unsigned long long)a + b + 1) >> 1); }
inline unsigned __sad(int a, int b, unsigned c) { return c + unsigned(a > b ? (long long)a - b : (long long)b - a); }
inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return c + (a > b ? a - b : b - a); }

namespace kforge_emulator {
template <class A, class B, class C>
inline C dot4(unsigned a, unsigned b, C c) {
  for (int i = 0; i < 4; ++i) c += C(A(a >> 8 * i)) * C(B(b >> 8 * i));
  return c;
}
template <class A, class B, class C>
inline C dot2(unsigned a, unsigned b, C c, int half) {
  for (int i = 0; i < 2; ++i) c += C(A(a >> 16 * i)) * C(B(b >> (8 * (i + 2 * half))));
  return c;
}
}  // namespace kforge_emulator
inline int __dp4a(int a, int b, int c) { return ::kforge_emulator::dot4<signed char, signed char>(a, b, c); }
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  return ::kforge_emulator::dot4<unsigned char, unsigned char>(a, b, c);
}
inline int __dp4a(char4 a, char4 b, int c) { return __dp4a(::kforge_emulator::bits<int>(a), ::kforge_emulator::bits<int>(b), c); }
inline unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) {
  return __dp4a(::kforge_emulator::bits<unsigned>(a), ::kforge_emulator::bits<unsigned>(b), c);
}
inline int __dp2a_lo(int a, int b, int c) { return ::kforge_emulator::dot2<short, signed char>(a, b, c, 0); }
inline int __dp2a_hi(int a, int b, int c) { return ::kforge_emulator::dot2<short, signed char>(a, b, c, 1); }
inline unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c) {
  return ::kforge_emulator::dot2<unsigned short, unsigned char>(a, b, c, 0);
}
inline unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c) {
  return ::kforge_emulator::dot2<unsigned short, unsigned char>(a, b, c, 1);
}

// Byte-wise video instructions that quantised kernels use.
#define KFORGE_BYTES(name, T, expression)                     \
  inline unsigned name(unsigned x, unsigned y) {              \
    unsigned result = 0;                                      \
    for (int i = 0; i < 4; ++i) {                             \
      int a = (T)(x >> 8 * i), b = (T)(y >> 8 * i);           \
      result |= (unsigned(expression) & 0xff) << 8 * i;       \
    }                                                         \
    return result;                                            \
  }
KFORGE_BYTES(__vadd4, unsigned char, a + b)
KFORGE_BYTES(__vsub4, unsigned char, a - b)
KFORGE_BYTES(__vmaxs4, signed char, a > b ? a : b)
KFORGE_BYTES(__vmins4, signed char, a < b ? a : b)
KFORGE_BYTES(__vmaxu4, unsigned char, a > b ? a : b)
KFORGE_BYTES(__vminu4, unsigned char, a < b ? a : b)
KFORGE_BYTES(__vcmpeq4, unsigned char, a == b ? 0xff : 0)
KFORGE_BYTES(__vcmpne4, unsigned char, a != b ? 0xff : 0)
KFORGE_BYTES(__vabsdiffu4, unsigned char, a > b ? a - b : b - a)

// ---- min, max: CUDA has overloads for every mix, no template ---------------------------------------------------

#define KFORGE_MIN_MAX(R, A, B)                                         \
  inline R min(A a, B b) { return (R)a < (R)b ? (R)a : (R)b; }          \
  inline R max(A a, B b) { return (R)a < (R)b ? (R)b : (R)a; }
KFORGE_MIN_MAX(int, int, int)
KFORGE_MIN_MAX(unsigned, unsigned, unsigned)
KFORGE_MIN_MAX(unsigned, int, unsigned)
KFORGE_MIN_MAX(unsigned, unsigned, int)
KFORGE_MIN_MAX(long, long, long)
KFORGE_MIN_MAX(unsigned long, unsigned long, unsigned long)
KFORGE_MIN_MAX(unsigned long, long, unsigned long)
KFORGE_MIN_MAX(unsigned long, unsigned long, long)
KFORGE_MIN_MAX(long long, long long, long long)
KFORGE_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
KFORGE_MIN_MAX(unsigned long long, long long, unsigned long long)
KFORGE_MIN_MAX(unsigned long long, unsigned long long, long long)
#define KFORGE_FLOAT_MIN_MAX(R, A, B)                                   \
  inline R min(A a, B b) { return R(::std::fmin(R(a), R(b))); }         \
  inline R max(A a, B b) { return R(::std::fmax(R(a), R(b))); }
KFORGE_FLOAT_MIN_MAX(float, float, float)
KFORGE_FLOAT_MIN_MAX(double, double, double)
KFORGE_FLOAT_MIN_MAX(double, float, double)
KFORGE_FLOAT_MIN_MAX(double, double, float)
inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
inline long long llmin(long long a, long long b) { return min(a, b); }
inline long long llmax(long long a, long long b) { return max(a, b); }

// ---- fp32 and fp64 math --------------------------------------------------------------------------------------

// glibc 2.41 and 2.42 took some of CUDA's names into <math.h>.
#if !defined(__GLIBC__) || !__GLIBC_PREREQ(2, 42)
inline float rsqrtf(float x) { return float(1.0 / sqrt(double(x))); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
#endif
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return float(1.0 / cbrt(double(x))); }
inline double rcbrt(double x) { return 1.0 / cbrt(x); }
inline float fdividef(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return float(exp10(double(x))); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __tanhf(float x) { return tanhf(x); }
inline void __sincosf(float x, float* s, float* c) { *s = sinf(x), *c = cosf(x); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float saturate(float x) { return __saturatef(x); }
#if !defined(__GLIBC__) || !__GLIBC_PREREQ(2, 41)
inline float sinpif(float x) { return float(sin(M_PI * remainder(double(x), 2.0))); }
inline float cospif(float x) { return float(cos(M_PI * remainder(double(x), 2.0))); }
inline double sinpi(double x) { return sin(M_PI * remainder(x, 2.0)); }
inline double cospi(double x) { return cos(M_PI * remainder(x, 2.0)); }
#endif
inline void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
inline void sincospi(double x, double* s, double* c) { *s = sinpi(x), *c = cospi(x); }
inline double normcdf(double x) { return 0.5 * erfc(-x * M_SQRT1_2); }
inline float normcdff(float x) { return float(normcdf(double(x))); }
inline double erfcx(double x) {
  if (x < 20.0) return exp(x * x) * erfc(x);  // above, the product of what overflows and what vanishes
  const double z = 1.0 / (2.0 * x * x);
  return (1.0 - z * (1.0 - 3.0 * z * (1.0 - 5.0 * z * (1.0 - 7.0 * z)))) / (x * sqrt(M_PI));
}
// By Newton's method on the side where nothing cancels; p up to one half.
inline double normcdfinv_below(double p) {
  const double t = sqrt(-2.0 * log(p));
  double x = p > 0.25 ? (p - 0.5) * sqrt(2.0 * M_PI) : (2.30753 + 0.27061 * t) / (1.0 + 0.99229 * t + 0.04481 * t * t) - t;
  for (int k = 0; k < 6; ++k) {
    const double gap = (normcdf(x) - p) * sqrt(2.0 * M_PI) * exp(0.5 * x * x);
    x -= gap / (1.0 + 0.5 * x * gap);
  }
  return x;
}
inline double normcdfinv(double p) {
  if (!(p >= 0.0 && p <= 1.0)) return NAN;
  if (p == 0.0 || p == 1.0) return p == 0.0 ? -INFINITY : INFINITY;
  return p <= 0.5 ? normcdfinv_below(p) : -normcdfinv_below(1.0 - p);
}
inline float normcdfinvf(float p) { return float(normcdfinv(double(p))); }
inline double erfinv(double x) {
  if (!(fabs(x) <= 1.0) || fabs(x) == 1.0) return fabs(x) == 1.0 ? copysign(INFINITY, x) : NAN;
  if (fabs(x) > 0.5) return copysign(-normcdfinv_below(0.5 * (1.0 - fabs(x))) * M_SQRT1_2, x);
  double y = 0.5 * sqrt(M_PI) * x;
  for (int k = 0; k < 6; ++k) y -= (erf(y) - x) * 0.5 * sqrt(M_PI) * exp(y * y);
  return y;
}
inline float erfinvf(float x) { return float(erfinv(double(x))); }
inline float erfcxf(float x) { return float(erfcx(double(x))); }
inline float norm3df(float a, float b, float c) { return float(sqrt(double(a) * a + double(b) * b + double(c) * c)); }
inline float norm4df(float a, float b, float c, float d) {
  return float(sqrt(double(a) * a + double(b) * b + double(c) * c + double(d) * d));
}
inline float rhypotf(float a, float b) { return float(1.0 / hypot(double(a), double(b))); }

// Directed rounding: the operation runs under the host's rounding mode.
namespace kforge_emulator {
template <class F>
__attribute__((noinline)) auto rounded(int mode, F operation) {
  int before = fegetround();
  fesetround(mode);
  auto result = operation();
  fesetround(before);
  return result;
}
}  // namespace kforge_emulator
#define KFORGE_DIRECTED(name, T, parameters, expression)                                                              \
  inline T name##_rn parameters { return expression; }                                                                \
  inline T name##_rz parameters { return ::kforge_emulator::rounded(FE_TOWARDZERO, [=]() -> T { volatile T r = expression; return r; }); } \
  inline T name##_ru parameters { return ::kforge_emulator::rounded(FE_UPWARD, [=]() -> T { volatile T r = expression; return r; }); }     \
  inline T name##_rd parameters { return ::kforge_emulator::rounded(FE_DOWNWARD, [=]() -> T { volatile T r = expression; return r; }); }
namespace kforge_emulator {
template <class T>
inline T opaque(T x) {  // keeps the compiler from computing before the mode is set
  asm volatile("" : "+m"(x));
  return x;
}
}  // namespace kforge_emulator
#define KFORGE_O(x) ::kforge_emulator::opaque(x)
KFORGE_DIRECTED(__fadd, float, (float a, float b), KFORGE_O(a) + KFORGE_O(b))
KFORGE_DIRECTED(__fsub, float, (float a, float b), KFORGE_O(a) - KFORGE_O(b))
KFORGE_DIRECTED(__fmul, float, (float a, float b), KFORGE_O(a) * KFORGE_O(b))
KFORGE_DIRECTED(__fdiv, float, (float a, float b), KFORGE_O(a) / KFORGE_O(b))
KFORGE_DIRECTED(__frcp, float, (float a), 1.0f / KFORGE_O(a))
KFORGE_DIRECTED(__fsqrt, float, (float a), sqrtf(KFORGE_O(a)))
KFORGE_DIRECTED(__fmaf, float, (float a, float b, float c), fmaf(KFORGE_O(a), KFORGE_O(b), KFORGE_O(c)))
KFORGE_DIRECTED(__dadd, double, (double a, double b), KFORGE_O(a) + KFORGE_O(b))
KFORGE_DIRECTED(__dsub, double, (double a, double b), KFORGE_O(a) - KFORGE_O(b))
KFORGE_DIRECTED(__dmul, double, (double a, double b), KFORGE_O(a) * KFORGE_O(b))
KFORGE_DIRECTED(__ddiv, double, (double a, double b), KFORGE_O(a) / KFORGE_O(b))
KFORGE_DIRECTED(__drcp, double, (double a), 1.0 / KFORGE_O(a))
KFORGE_DIRECTED(__dsqrt, double, (double a), sqrt(KFORGE_O(a)))
KFORGE_DIRECTED(__fma, double, (double a, double b, double c), fma(KFORGE_O(a), KFORGE_O(b), KFORGE_O(c)))
KFORGE_DIRECTED(__double2float, float, (double a), float(KFORGE_O(a)))
KFORGE_DIRECTED(__int2float, float, (int a), float(KFORGE_O(a)))
KFORGE_DIRECTED(__uint2float, float, (unsigned a), float(KFORGE_O(a)))
KFORGE_DIRECTED(__ll2float, float, (long long a), float(KFORGE_O(a)))
KFORGE_DIRECTED(__ull2float, float, (unsigned long long a), float(KFORGE_O(a)))
KFORGE_DIRECTED(__ll2double, double, (long long a), double(KFORGE_O(a)))
KFORGE_DIRECTED(__ull2double, double, (unsigned long long a), double(KFORGE_O(a)))
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }

// Conversions to integers saturate, and NaN gives 0 (64-bit results: the least value), as the instruction does.
namespace kforge_emulator {
template <class I, class F>
inline I saturate_to(F x) {
  constexpr bool is_signed = I(-1) < I(0);
  constexpr I least = is_signed ? I(1) << (sizeof(I) * 8 - 1) : I(0);
  constexpr I most = I(~least);
  if (x != x) return sizeof(I) == 8 ? I(1) << 63 : I(0);
  F limit = is_signed ? -F(least) : F(most / 2 + 1) * F(2);
  if (x >= limit) return most;
  if (x < (is_signed ? F(least) : F(0))) return least;
  return I(x);
}
}  // namespace kforge_emulator
#define KFORGE_TO_INTEGER(name, I, F)                                                                \
  inline I name##_rn(F x) { return ::kforge_emulator::saturate_to<I>(::std::nearbyint(x)); }         \
  inline I name##_rz(F x) { return ::kforge_emulator::saturate_to<I>(::std::trunc(x)); }             \
  inline I name##_ru(F x) { return ::kforge_emulator::saturate_to<I>(::std::ceil(x)); }              \
  inline I name##_rd(F x) { return ::kforge_emulator::saturate_to<I>(::std::floor(x)); }
KFORGE_TO_INTEGER(__float2int, int, float)
KFORGE_TO_INTEGER(__float2uint, unsigned, float)
KFORGE_TO_INTEGER(__float2ll, long long, float)
KFORGE_TO_INTEGER(__float2ull, unsigned long long, float)
KFORGE_TO_INTEGER(__double2int, int, double)
KFORGE_TO_INTEGER(__double2uint, unsigned, double)
KFORGE_TO_INTEGER(__double2ll, long long, double)
KFORGE_TO_INTEGER(__double2ull, unsigned long long, double)

// ---- clocks, hints, assert -----------------------------------------------------------------------------------

inline long long clock64() {
#if defined(__x86_64__)
  return (long long)__builtin_ia32_rdtsc();
#else
  long long t;
  asm volatile("mrs %0, cntvct_el0" : "=r"(t));
  return t;
#endif
}
#define __builtin_assume(condition) ((void)0)
#define __builtin_nontemporal_load(pointer) (*(pointer))
inline void __prof_trigger(int) {}

// <assert.h> may be included again by the source: what it calls is ours, so that the process survives.
#define __assert_fail kforge_assert_fail
#include <assert.h>
extern "C" [[noreturn]] inline void kforge_assert_fail(const char* text, const char* file, unsigned line,
                                                       const char*) noexcept(true) {
  ::kforge_emulator::fail(::kforge_emulator::FAILED, {"assert", file, int(line)}, "assertion failed: %s", text);
}
