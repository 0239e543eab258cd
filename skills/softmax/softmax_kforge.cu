// Softmax over the last dimension: each element is read once, written once, and its exponential computed once.
//
// softmax_warp and softmax_block hold a row in registers, ITEMS vectors of VEC neighbouring columns for each thread;
// softmax_long, for rows that no block can hold, reads twice and keeps a running maximum and sum for each thread.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename V, int N>
struct alignas(sizeof(V) * N) Pack {
    V at[N];
};

__device__ __forceinline__ float larger(float a, float b) { return a > b || a != a ? a : b; }  // fmaxf drops a NaN

// The sum of N values by pairs.
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

__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) v = larger(v, __shfl_xor_sync(0xffffffffu, v, mask));
    return v;
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) v += __shfl_xor_sync(0xffffffffu, v, mask);
    return v;
}

// Of a team of TEAM threads, in each of them. `shared` (TEAM / 32 floats) is for one use only: no barrier guards it
// against the next.
template <int TEAM>
__device__ __forceinline__ float team_max(float v, float* shared) {
    v = warp_max(v);
    if constexpr (TEAM > 32) {
        if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
        __syncthreads();
        v = warp_max(shared[threadIdx.x % (TEAM / 32)]);
    }
    return v;
}

template <int TEAM>
__device__ __forceinline__ float team_sum(float v, float* shared) {
    v = warp_sum(v);
    if constexpr (TEAM > 32) {
        if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
        __syncthreads();
        v = warp_sum(threadIdx.x % 32 < TEAM / 32 ? shared[threadIdx.x % 32] : 0.0f);
    }
    return v;
}

template <typename T, int VEC, int ITEMS, int TEAM>
__device__ __forceinline__ void softmax_row(
    const T* __restrict__ x, T* __restrict__ y, int cols, int thread, float* shared) {
    Pack<T, VEC> in[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {  // all loads before the first use, none under a condition
        const int own = (k * TEAM + thread) * VEC;
        in[k] = *reinterpret_cast<const Pack<T, VEC>*>(x + (own < cols ? own : cols - VEC));
    }
    float top = -INFINITY;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
#pragma unroll
        for (int j = 0; j < VEC; ++j) top = larger(top, static_cast<float>(in[k].at[j]));  // a repeat changes nothing
    }
    top = team_max<TEAM>(top, shared);

    float e[ITEMS][VEC], part[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
#pragma unroll
        for (int j = 0; j < VEC; ++j) e[k][j] = expf(static_cast<float>(in[k].at[j]) - top);
        part[k] = (k * TEAM + thread) * VEC < cols ? pairwise(e[k]) : 0.0f;
    }
    const float sum = team_sum<TEAM>(pairwise(part), shared + TEAM / 32);

#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const int col = (k * TEAM + thread) * VEC;
        if (col < cols) {
            Pack<T, VEC> out;
#pragma unroll
            for (int j = 0; j < VEC; ++j) out.at[j] = T(e[k][j] / sum);
            *reinterpret_cast<Pack<T, VEC>*>(y + col) = out;
        }
    }
}

// One warp a row: up to 1,024 columns.
template <typename T, int VEC, int ITEMS>
__global__ void __launch_bounds__(128) softmax_warp(
    const T* __restrict__ x, T* __restrict__ y, long long rows, int cols) {
    const long long row = blockIdx.x * 4ll + threadIdx.x / 32;
    if (row < rows) softmax_row<T, VEC, ITEMS, 32>(x + row * cols, y + row * cols, cols, threadIdx.x % 32, nullptr);
}

// One block a row: up to 32,768 columns.
template <typename T, int VEC, int ITEMS, int BLOCK>
__global__ void __launch_bounds__(BLOCK) softmax_block(
    const T* __restrict__ x, T* __restrict__ y, long long rows, int cols) {
    __shared__ float shared[BLOCK / 32 * 2];
    const long long row = blockIdx.x;
    softmax_row<T, VEC, ITEMS, BLOCK>(x + row * cols, y + row * cols, cols, threadIdx.x, shared);
}

// exp(from - to); equal infinities scale by 1, so that a side that has seen nothing yet stays neutral.
__device__ __forceinline__ float rescale(float from, float to) { return from == to ? 1.0f : expf(from - to); }

// One block a row of any length.
template <typename T, int VEC, int BLOCK>
__global__ void __launch_bounds__(BLOCK) softmax_long(
    const T* __restrict__ x, T* __restrict__ y, long long rows, long long cols) {
    constexpr int ITEMS = 4;
    __shared__ float shared[BLOCK / 32 * 2];
    x += blockIdx.x * cols;
    y += blockIdx.x * cols;
    float top = -INFINITY, low = 0.0f, high = 0.0f;  // of this thread; the sum in two levels
    int added = 0;
    for (long long tile = threadIdx.x * VEC; tile < cols; tile += BLOCK * VEC * ITEMS) {
        Pack<T, VEC> in[ITEMS];
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            const long long own = tile + k * BLOCK * VEC;
            in[k] = *reinterpret_cast<const Pack<T, VEC>*>(x + (own < cols ? own : cols - VEC));
        }
        float next = top;
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
#pragma unroll
            for (int j = 0; j < VEC; ++j) next = larger(next, static_cast<float>(in[k].at[j]));
        }
        const float factor = rescale(top, next);
        float e[ITEMS][VEC], part[ITEMS];
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
#pragma unroll
            for (int j = 0; j < VEC; ++j) e[k][j] = rescale(static_cast<float>(in[k].at[j]), next);
            part[k] = tile + k * BLOCK * VEC < cols ? pairwise(e[k]) : 0.0f;
        }
        top = next;
        high *= factor;
        low = low * factor + pairwise(part);
        if (++added % 64 == 0) {
            high += low;
            low = 0.0f;
        }
    }
    const float row_top = team_max<BLOCK>(top, shared);
    float sum = team_sum<BLOCK>((low + high) * rescale(top, row_top), shared + BLOCK / 32);
    if (isinf(row_top)) sum = NAN;  // an infinite maximum: infinity minus itself, as PyTorch has it
    for (long long col = threadIdx.x * VEC; col < cols; col += BLOCK * VEC) {
        Pack<T, VEC> v = *reinterpret_cast<const Pack<T, VEC>*>(x + col);
#pragma unroll
        for (int j = 0; j < VEC; ++j) v.at[j] = T(expf(static_cast<float>(v.at[j]) - row_top) / sum);
        *reinterpret_cast<Pack<T, VEC>*>(y + col) = v;
    }
}
