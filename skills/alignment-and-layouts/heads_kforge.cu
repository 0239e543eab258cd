// y = x * factor + bias[head] for x of any strides, y contiguous: no copy of x is made before.
//
// A thread writes VEC neighbouring elements of y. Where x has them side by side too (its last stride is 1), at multiples
// of VEC (every other stride, and the address), it reads them as one vector; `require` decides it, with VEC = 1 for the
// rest: sliced, expanded, transposed, one element past an aligned address.
template <int N>
struct alignas(4 * N) Pack {
    float at[N];
};

// Indices of y are taken apart in 32 bits where they fit; offsets into x are always of 64.
template <int WIDE>
struct IndexType {
    using type = unsigned int;
};
template <>
struct IndexType<1> {
    using type = long long;
};

template <int VEC, int BLOCK, int WIDE>
__global__ void __launch_bounds__(BLOCK) scale_heads(
    const float* __restrict__ x, const float* __restrict__ bias, float* __restrict__ y, float factor, long long batch,
    long long heads, long long length, long long dim, long long of_batch, long long of_head, long long of_length,
    long long of_dim) {
    using Index = typename IndexType<WIDE>::type;
    const Index i = (static_cast<Index>(blockIdx.x) * BLOCK + threadIdx.x) * VEC;
    if (i >= static_cast<Index>(batch * heads * length * dim)) return;
    const Index row = i / static_cast<Index>(dim), d = i - row * static_cast<Index>(dim);
    const Index plane = row / static_cast<Index>(length), l = row - plane * static_cast<Index>(length);
    const Index b = plane / static_cast<Index>(heads), h = plane - b * static_cast<Index>(heads);
    const float* from = x + b * of_batch + h * of_head + l * of_length + d * of_dim;
    const Pack<VEC> shift = *reinterpret_cast<const Pack<VEC>*>(bias + h * dim + d);
    Pack<VEC> v = *reinterpret_cast<const Pack<VEC>*>(from);
#pragma unroll
    for (int j = 0; j < VEC; ++j) v.at[j] = v.at[j] * factor + shift.at[j];
    *reinterpret_cast<Pack<VEC>*>(y + i) = v;
}
