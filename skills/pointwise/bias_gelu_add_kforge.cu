// y = residual + gelu(x + bias), bias along the last dimension: each element read once and written once.
//
// One vector of VEC elements (16 bytes) a thread and a plain grid. Nothing loops: the loads of a thread are independent,
// and the GPU has enough threads to keep memory busy.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename V, int N>
struct alignas(sizeof(V) * N) Pack {
    V at[N];
};

// Half of x's type rounds between the operators of the reference; `T(...)` does the same here.
template <typename T>
__device__ __forceinline__ float as_stored(float v) {
    return static_cast<float>(T(v));
}

__device__ __forceinline__ float gelu(float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678f)); }

// WIDE: whether an index takes 64 bits. The column costs a division, which in 64 bits is a subroutine.
template <int WIDE>
struct IndexType {
    using type = unsigned int;
};
template <>
struct IndexType<1> {
    using type = long long;
};

template <typename T, int VEC, int BLOCK, int WIDE>
__global__ void __launch_bounds__(BLOCK) bias_gelu_add(
    const T* __restrict__ x, const T* __restrict__ bias, const T* __restrict__ residual, T* __restrict__ y, long long n,
    long long cols) {
    using Index = typename IndexType<WIDE>::type;
    const Index i = (static_cast<Index>(blockIdx.x) * BLOCK + threadIdx.x) * VEC;
    if (i >= static_cast<Index>(n)) return;
    const Index col = i % static_cast<Index>(cols);  // VEC divides cols: a vector stays in its row
    const Pack<T, VEC> a = *reinterpret_cast<const Pack<T, VEC>*>(x + i);
    const Pack<T, VEC> r = *reinterpret_cast<const Pack<T, VEC>*>(residual + i);
    const Pack<T, VEC> b = *reinterpret_cast<const Pack<T, VEC>*>(bias + col);
    Pack<T, VEC> out;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        const float v = as_stored<T>(static_cast<float>(a.at[j]) + static_cast<float>(b.at[j]));
        out.at[j] = T(static_cast<float>(r.at[j]) + as_stored<T>(gelu(v)));
    }
    *reinterpret_cast<Pack<T, VEC>*>(y + i) = out;
}
