// A row for each warp, or for each block where it is longer: read once in vectors, kept in registers, written once.
template <int N>
struct alignas(4 * N) Pack {
    float at[N];
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

template <int VEC, int ITEMS, int TEAM, int BLOCK>
__global__ void __launch_bounds__(BLOCK) unit_rows(
    const float* __restrict__ x, float* __restrict__ y, long long rows, int cols) {
    __shared__ float shared[BLOCK / 32];
    const int thread = threadIdx.x % TEAM;
    const long long row = blockIdx.x * static_cast<long long>(BLOCK / TEAM) + threadIdx.x / TEAM;
    if (row >= rows) return;  // whole warps, or none: a team below the block has no barrier
    Pack<VEC> v[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const int own = (k * TEAM + thread) * VEC;
        v[k] = *reinterpret_cast<const Pack<VEC>*>(x + row * cols + (own < cols ? own : cols - VEC));
    }
    float part[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        float square[VEC];
#pragma unroll
        for (int j = 0; j < VEC; ++j) square[j] = v[k].at[j] * v[k].at[j];
        part[k] = (k * TEAM + thread) * VEC < cols ? pairwise(square) : 0.0f;
    }
    float sum = warp_sum(pairwise(part));
    if constexpr (TEAM > 32) {
        const int lane = threadIdx.x % 32;
        if (lane == 0) shared[threadIdx.x / 32] = sum;
        __syncthreads();
        sum = warp_sum(lane < TEAM / 32 ? shared[lane] : 0.0f);
    }
    const float length = sqrtf(sum);
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const int col = (k * TEAM + thread) * VEC;
        if (col < cols) {
#pragma unroll
            for (int j = 0; j < VEC; ++j) v[k].at[j] /= length;
            *reinterpret_cast<Pack<VEC>*>(y + row * cols + col) = v[k];
        }
    }
}
