// nvcuda::wmma. Which element a lane holds is unspecified in CUDA; here lane l holds elements l*n .. l*n+n-1 of the
// tile in row order. Products are summed in fp32 (fp64 for double, exact int32 for bytes).
#pragma once
#include "kforge_emulator/prelude.h"

namespace nvcuda {
namespace wmma {
namespace kf = ::kforge_emulator;

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
}  // namespace precision

template <class Use, int M, int N, int K>
struct tile_shape {
  static constexpr int rows = M, cols = N;
};
template <int M, int N, int K>
struct tile_shape<matrix_a, M, N, K> {
  static constexpr int rows = M, cols = K;
};
template <int M, int N, int K>
struct tile_shape<matrix_b, M, N, K> {
  static constexpr int rows = K, cols = N;
};
template <class T>
struct element {
  using type = T;
};
template <>
struct element<precision::tf32> {
  using type = float;
};

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static constexpr int rows = tile_shape<Use, M, N, K>::rows, cols = tile_shape<Use, M, N, K>::cols;
  static constexpr int num_elements = rows * cols / 32;
  static constexpr int num_storage_elements = num_elements;
  using element_type = typename element<T>::type;
  element_type x[num_elements];
};

inline float __float_to_tf32(float x) {  // round to nearest, ties away, to 10 bits of mantissa
  unsigned u = __float_as_uint(x);
  return (u & 0x7f800000u) == 0x7f800000u ? x : __uint_as_float((u + 0x1000u) & ~0x1fffu);
}

template <class F, class T>
inline void fill_fragment(F& f, const T& value) {
  for (auto& e : f.x) e = typename F::element_type(value);
}

template <class F, class Move>
inline void each_element(F& f, unsigned stride, bool row_order, Move move) {
  for (int i = 0; i < F::num_elements; ++i) {
    unsigned e = kf::lane_id() * F::num_elements + i, r = e / F::cols, c = e % F::cols;
    move(f.x[i], row_order ? r * stride + c : c * stride + r);
  }
}
template <class Use, int M, int N, int K, class T, class Layout, class E>
inline void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f, const E* p, unsigned stride,
                             KFORGE_SITE("wmma::load_matrix_sync")) {
  each_element(f, stride, std::is_same<Layout, row_major>::value, [&](auto& x, unsigned at) { x = p[at]; });
  __syncwarp(~0u, site);
}
template <int M, int N, int K, class T, class E>
inline void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const E* p, unsigned stride, layout_t layout,
                             KFORGE_SITE("wmma::load_matrix_sync")) {
  each_element(f, stride, layout == mem_row_major, [&](auto& x, unsigned at) { x = p[at]; });
  __syncwarp(~0u, site);
}
template <int M, int N, int K, class T, class E>
inline void store_matrix_sync(E* p, const fragment<accumulator, M, N, K, T>& f, unsigned stride, layout_t layout,
                              KFORGE_SITE("wmma::store_matrix_sync")) {
  each_element(f, stride, layout == mem_row_major, [&](const auto& x, unsigned at) { p[at] = x; });
  __syncwarp(~0u, site);
}

// The last lane that arrives multiplies for the whole warp.
template <class D, class A, class B, class C>
struct multiply {
  D* d;
  const A* a;
  const B* b;
  const C* c;
  template <class T>
  static auto widen(T x) {
    if constexpr (std::is_same<T, double>::value)
      return x;
    else if constexpr (std::is_integral<T>::value)
      return int(x);
    else
      return float(x);
  }
  static void combine(void** slots, unsigned members) {
    if (members != ~0u) kf::fail(kf::FAILED, KFORGE_HERE("wmma::mma_sync"), "needs all 32 lanes of the warp");
    using Sum = decltype(widen(std::declval<typename A::element_type>()));
    static thread_local Sum as[A::rows * A::cols], bs[B::rows * B::cols];
    auto slot = [&](int lane) { return static_cast<multiply*>(slots[lane]); };
    for (int e = 0; e < A::rows * A::cols; ++e) as[e] = widen(slot(e / A::num_elements)->a->x[e % A::num_elements]);
    for (int e = 0; e < B::rows * B::cols; ++e) bs[e] = widen(slot(e / B::num_elements)->b->x[e % B::num_elements]);
    for (int e = 0; e < D::rows * D::cols; ++e) {
      int r = e / D::cols, q = e % D::cols;
      Sum sum = Sum(widen(slot(e / C::num_elements)->c->x[e % C::num_elements]));
      for (int k = 0; k < A::cols; ++k) sum += as[r * A::cols + k] * bs[k * B::cols + q];
      slot(e / D::num_elements)->d->x[e % D::num_elements] = typename D::element_type(sum);
    }
  }
};
template <int M, int N, int K, class TD, class TA, class LA, class TB, class LB, class TC>
inline void mma_sync(fragment<accumulator, M, N, K, TD>& d, const fragment<matrix_a, M, N, K, TA, LA>& a,
                     const fragment<matrix_b, M, N, K, TB, LB>& b, const fragment<accumulator, M, N, K, TC>& c,
                     bool = false, KFORGE_SITE("wmma::mma_sync")) {
  using Slot = multiply<fragment<accumulator, M, N, K, TD>, fragment<matrix_a, M, N, K, TA, LA>,
                        fragment<matrix_b, M, N, K, TB, LB>, fragment<accumulator, M, N, K, TC>>;
  Slot slot{&d, &a, &b, &c};
  kf::warp_collective(~0u, &slot, &Slot::combine, site);
}

}  // namespace wmma
}  // namespace nvcuda
