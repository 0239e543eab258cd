// total = x + residual and its layer norm, the row held in registers: two reads and two writes an element, the least
// there can be.
//
// Mean and variance come from two passes over the registers, which cost no memory traffic. The second pass also sums the
// deviations: what is left of them is the first mean's rounding, and it corrects both. E[x^2] - E[x]^2 would cancel.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename V, int N>
struct alignas(sizeof(V) * N) Pack {
    V at[N];
};

template <int N>
__device__ __forceinline__ float pairwise(const float (&v)[N]) {
    if constexpr (N == 1) {
        return v[0];
    } else {
        float half[(N + 1) / 2];
#pragma unroll
        for (int k = 0; k < N / 2; ++k) half[k] = v[2 * k] + v[2 * k + 1];
        if constexpr (N % 2 == 1) half[N / 2] = v[N - 1];
        return pairwise(half);
    }
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) v += __shfl_xor_sync(0xffffffffu, v, mask);
    return v;
}

// Two sums over a team of TEAM threads, in each of them; `shared` (TEAM / 32 elements) is for one use.
template <int TEAM>
__device__ __forceinline__ float2 team_sums(float2 v, float2* shared) {
    v = {warp_sum(v.x), warp_sum(v.y)};
    if constexpr (TEAM > 32) {
        const int lane = threadIdx.x % 32;
        if (lane == 0) shared[threadIdx.x / 32] = v;
        __syncthreads();
        v = lane < TEAM / 32 ? shared[lane] : float2{0.0f, 0.0f};
        v = {warp_sum(v.x), warp_sum(v.y)};
    }
    return v;
}

// A team of TEAM threads for each row: a warp, or the whole block.
template <typename T, typename W, int VEC, int ITEMS, int TEAM, int BLOCK>
__global__ void __launch_bounds__(BLOCK) add_norm(
    const T* __restrict__ x, const T* __restrict__ residual, const W* __restrict__ weight, const W* __restrict__ bias,
    T* __restrict__ normed, T* __restrict__ total, long long rows, int cols, float eps) {
    __shared__ float2 shared[2][BLOCK / 32];
    const int thread = threadIdx.x % TEAM;
    const long long row = blockIdx.x * static_cast<long long>(BLOCK / TEAM) + threadIdx.x / TEAM;
    if (row >= rows) return;  // whole warps only, or none: TEAM < BLOCK has no barrier
    const long long start = row * cols;

    Pack<T, VEC> a[ITEMS], b[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const int own = (k * TEAM + thread) * VEC;
        const long long from = start + (own < cols ? own : cols - VEC);
        a[k] = *reinterpret_cast<const Pack<T, VEC>*>(x + from);
        b[k] = *reinterpret_cast<const Pack<T, VEC>*>(residual + from);
    }
    float v[ITEMS][VEC], part[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const int col = (k * TEAM + thread) * VEC;
        Pack<T, VEC> sum;
#pragma unroll
        for (int j = 0; j < VEC; ++j) {
            sum.at[j] = T(static_cast<float>(a[k].at[j]) + static_cast<float>(b[k].at[j]));
            v[k][j] = static_cast<float>(sum.at[j]);  // as rounded to T: what the reference normalises
        }
        part[k] = col < cols ? pairwise(v[k]) : 0.0f;
        if (col < cols) *reinterpret_cast<Pack<T, VEC>*>(total + start + col) = sum;
    }
    const float mean = team_sums<TEAM>({pairwise(part), 0.0f}, shared[0]).x / cols;

    float square[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const bool inside = (k * TEAM + thread) * VEC < cols;
        float squares[VEC];
#pragma unroll
        for (int j = 0; j < VEC; ++j) {
            v[k][j] -= mean;
            squares[j] = v[k][j] * v[k][j];
        }
        part[k] = inside ? pairwise(v[k]) : 0.0f;
        square[k] = inside ? pairwise(squares) : 0.0f;
    }
    const float2 sums = team_sums<TEAM>({pairwise(part), pairwise(square)}, shared[1]);
    const float rest = sums.x / cols;  // of the mean
    const float variance = (sums.y - sums.x * rest) / cols;
    const float scale = 1.0f / sqrtf(variance + eps);  // rsqrtf is off by up to two units, for a whole row at once

#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const int col = (k * TEAM + thread) * VEC;
        if (col < cols) {
            const Pack<W, VEC> w = *reinterpret_cast<const Pack<W, VEC>*>(weight + col);
            const Pack<W, VEC> shift = *reinterpret_cast<const Pack<W, VEC>*>(bias + col);
            Pack<T, VEC> out;
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                const float scaled = (v[k][j] - rest) * scale;
                out.at[j] = T(scaled * static_cast<float>(w.at[j]) + static_cast<float>(shift.at[j]));
            }
            *reinterpret_cast<Pack<T, VEC>*>(normed + start + col) = out;
        }
    }
}
