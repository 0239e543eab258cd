// Running sum along rows of what a mask keeps: one read, one write.
//
// A thread scans VEC neighbours of its own, a warp scans the threads' totals by shuffles, the block adds those of its
// warps. What a tile has before it is carried by the block that walks the row (scan_rows) or, where rows are few and
// long, told from block to block (scan_tiles: single pass, decoupled look-back, Merrill and Garland 2016).
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename V, int N>
struct alignas(sizeof(V) * N) Pack {
    V at[N];
};

// The sum of all threads before this one; `total` is that of the whole block. sums: of one tile, not of two in a row.
template <int BLOCK>
__device__ __forceinline__ double before_thread(double own, double (&sums)[BLOCK / 32], double& total) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    double upto = own;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const double other = __shfl_up_sync(0xffffffffu, upto, step);
        if (lane >= step) upto += other;
    }
    if (lane == 31) sums[warp] = upto;
    __syncthreads();
    double before = __shfl_up_sync(0xffffffffu, upto, 1);  // upto - own would make a NaN of an infinity
    if (lane == 0) before = 0;
    total = 0;
#pragma unroll
    for (int w = 0; w < BLOCK / 32; ++w) {
        if (w == warp) before += total;
        total += sums[w];
    }
    return before;
}

// VEC neighbours that the mask keeps; nothing behind the end of the row.
template <typename T, int VEC>
__device__ __forceinline__ void kept(float (&values)[VEC], const T* x, const bool* keep, long long col, long long cols) {
    if (col < cols) {
        const auto in = *reinterpret_cast<const Pack<T, VEC>*>(x + col);
        const auto mask = *reinterpret_cast<const Pack<bool, VEC>*>(keep + col);
#pragma unroll
        for (int j = 0; j < VEC; ++j) values[j] = static_cast<float>(in.at[j]) * static_cast<float>(mask.at[j]);
    } else {
#pragma unroll
        for (int j = 0; j < VEC; ++j) values[j] = 0.0f;
    }
}

template <int VEC>
__device__ __forceinline__ double sum_of(const float (&values)[VEC]) {
    double sum = 0;
#pragma unroll
    for (int j = 0; j < VEC; ++j) sum += values[j];
    return sum;
}

// Running sums from `before` on, in double until they are stored.
template <typename T, int VEC>
__device__ __forceinline__ void store_running(T* y, const float (&values)[VEC], double before, long long col, long long cols) {
    Pack<T, VEC> out;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        before += values[j];
        out.at[j] = T(static_cast<float>(before));
    }
    if (col < cols) *reinterpret_cast<Pack<T, VEC>*>(y + col) = out;
}

// One block a row, tile by tile; the next tile is on its way while this one is scanned.
template <typename T, int BLOCK, int VEC>
__global__ void __launch_bounds__(BLOCK) scan_rows(
    const T* __restrict__ x, const bool* __restrict__ keep, T* __restrict__ y, long long rows, long long cols) {
    __shared__ double sums[2][BLOCK / 32];  // of two tiles in turn: one barrier a tile is enough
    const long long row = blockIdx.x;
    x += row * cols;
    keep += row * cols;
    y += row * cols;
    double carry = 0;
    int turn = 0;
    float now[VEC], next[VEC];
    kept(now, x, keep, static_cast<long long>(threadIdx.x) * VEC, cols);
    for (long long tile = 0; tile < cols; tile += BLOCK * VEC) {
        const long long col = tile + threadIdx.x * VEC;
        kept(next, x, keep, col + BLOCK * VEC, cols);
        double total;
        const double before = before_thread<BLOCK>(sum_of(now), sums[turn], total);
        store_running(y, now, carry + before, col, cols);
        carry += total;
        turn ^= 1;
#pragma unroll
        for (int j = 0; j < VEC; ++j) now[j] = next[j];
    }
}

// A double on its way to other blocks: each half travels with a mark in one access of 8 bytes, so that who sees both
// marks has the value, and no fence stands between them.
struct Message {
    volatile unsigned long long half[2];

    __device__ __forceinline__ void send(double value) {
        const unsigned long long bits = __double_as_longlong(value);
        half[0] = 1ull << 32 | (bits & 0xffffffffu);
        half[1] = 1ull << 32 | bits >> 32;
    }
    __device__ __forceinline__ bool read(double& value) const {
        const unsigned long long low = half[0], high = half[1];
        value = __longlong_as_double(static_cast<long long>(high << 32 | (low & 0xffffffffu)));
        return low >> 32 != 0 && high >> 32 != 0;
    }
};

// What the row has before a tile, by one warp: lane l asks the tile l before the nearest. Totals are added up to the
// first tile that already knows the sum up to its own end.
__device__ __forceinline__ double look_back(const Message* totals, const Message* ends, int tile) {
    const int lane = threadIdx.x % 32;
    double before = 0;
    for (int nearest = tile - 1; nearest >= 0; nearest -= 32) {
        const int asked = nearest - lane;
        double end = 0, total = 0;
        bool knows_end = asked < 0, knows_total = asked < 0;  // before the row there is nothing
        while (!__all_sync(0xffffffffu, knows_end || knows_total)) {
            if (!knows_end) knows_end = ends[asked].read(end);
            if (!knows_end && !knows_total) knows_total = totals[asked].read(total);
        }
        const unsigned int known = __ballot_sync(0xffffffffu, knows_end);
        const int last = known ? __ffs(known) - 1 : 31;
        double part = lane < last || !known ? total : lane == last ? end : 0;
#pragma unroll
        for (int mask = 16; mask > 0; mask /= 2) part += __shfl_xor_sync(0xffffffffu, part, mask);
        before += part;
        if (known) break;
    }
    return before;
}

// One block a tile. Blocks take tickets, so that the tiles before have started when one waits for them.
template <typename T, int BLOCK, int VEC>
__global__ void __launch_bounds__(BLOCK) scan_tiles(
    const T* __restrict__ x, const bool* __restrict__ keep, T* __restrict__ y, long long rows, long long cols,
    unsigned char* __restrict__ workspace) {
    __shared__ double sums[BLOCK / 32], told;
    __shared__ unsigned int ticket;
    const unsigned int tiles = gridDim.x / static_cast<unsigned int>(rows);
    if (threadIdx.x == 0) ticket = atomicAdd(reinterpret_cast<unsigned int*>(workspace + rows * tiles * 32), 1u);
    __syncthreads();
    const long long row = ticket / tiles;
    const int tile = ticket % tiles;
    Message* const totals = reinterpret_cast<Message*>(workspace) + row * tiles;
    Message* const ends = totals + rows * tiles;
    const long long col = static_cast<long long>(tile) * (BLOCK * VEC) + threadIdx.x * VEC;

    float values[VEC];
    kept(values, x + row * cols, keep + row * cols, col, cols);
    double total;
    const double before = before_thread<BLOCK>(sum_of(values), sums, total);
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) totals[tile].send(total);
        const double ahead = look_back(totals, ends, tile);
        if (threadIdx.x == 0) {
            ends[tile].send(ahead + total);
            told = ahead;
        }
    }
    __syncthreads();
    store_running(y + row * cols, values, told + before, col, cols);
}
