// Sum and maximum over the middle dimension of (batch, rows, cols), in one read.
//
// A block of WARPS warps owns 32 * VEC neighbouring columns. A warp reads 32 vectors side by side, so that a request is
// coalesced; the warps take every WARPS-th row and meet in shared memory. Where that gives too few blocks, `chunks`
// blocks share the rows, and join_chunks adds their results in a fixed order: no atomics, the same bits every time.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename V, int N>
struct alignas(sizeof(V) * N) Pack {
    V at[N];
};

__device__ __forceinline__ float larger(float a, float b) { return a > b || a != a ? a : b; }  // keeps a NaN

// A sum whose levels take 64 terms each before they move up: rounding grows with the levels, not with the length.
struct Cascade {
    float level[3] = {};
    int count = 0;

    __device__ __forceinline__ void add(float v) {
        level[0] += v;
        if (++count % 64 == 0) {
            level[1] += level[0];
            level[0] = 0.0f;
        }
        if (count == 4096) {
            level[2] += level[1];
            level[1] = 0.0f;
            count = 0;
        }
    }
    __device__ __forceinline__ float total() const { return (level[0] + level[1]) + level[2]; }
};

// P: type of a chunk's result, the output's own where one chunk holds all rows.
template <typename T, typename P, int VEC, int WARPS>
__global__ void __launch_bounds__(32 * WARPS) reduce_rows(
    const T* __restrict__ x, P* __restrict__ sums, P* __restrict__ maxima, int batch, long long rows, long long cols,
    int chunks) {
    constexpr int AHEAD = 4;  // rows that are loaded before the first is used
    __shared__ float sum_of[WARPS][VEC][32];
    __shared__ float max_of[WARPS][VEC][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned int tiles = (cols + 32 * VEC - 1) / (32 * VEC);
    const long long tile = blockIdx.x % tiles, chunk = blockIdx.x / tiles % chunks, item = blockIdx.x / tiles / chunks;
    const long long share = (rows + chunks - 1) / chunks;
    const long long begin = chunk * share, end = begin + share < rows ? begin + share : rows;
    const long long col = (tile * 32 + lane) * VEC;

    Cascade sum[VEC];
    float peak[VEC];
#pragma unroll
    for (int j = 0; j < VEC; ++j) peak[j] = -INFINITY;
    if (col < cols) {
        const T* from = x + item * rows * cols + col;
        for (long long row = begin + warp; row < end; row += WARPS * AHEAD) {
            Pack<T, VEC> in[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) {  // the last row again, where there is none: no load waits for a condition
                const long long own = row + k * WARPS < end ? row + k * WARPS : end - 1;
                in[k] = *reinterpret_cast<const Pack<T, VEC>*>(from + own * cols);
            }
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                float term[AHEAD];
#pragma unroll
                for (int k = 0; k < AHEAD; ++k) {
                    const float v = static_cast<float>(in[k].at[j]);
                    peak[j] = larger(peak[j], v);
                    term[k] = row + k * WARPS < end ? v : 0.0f;
                }
                sum[j].add((term[0] + term[1]) + (term[2] + term[3]));
            }
        }
    }
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        sum_of[warp][j][lane] = sum[j].total();
        max_of[warp][j][lane] = peak[j];
    }
    __syncthreads();
    if (warp > 0 || col >= cols) return;
    Pack<P, VEC> total, top;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        float part[WARPS], most = -INFINITY;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            part[w] = sum_of[w][j][lane];
            most = larger(most, max_of[w][j][lane]);
        }
#pragma unroll
        for (int step = WARPS / 2; step > 0; step /= 2) {
#pragma unroll
            for (int w = 0; w < step; ++w) part[w] += part[w + step];
        }
        total.at[j] = P(part[0]);
        top.at[j] = P(most);
    }
    const long long to = (item * chunks + chunk) * cols + col;
    *reinterpret_cast<Pack<P, VEC>*>(sums + to) = total;
    *reinterpret_cast<Pack<P, VEC>*>(maxima + to) = top;
}

// One thread for each of batch * cols results.
template <typename T>
__global__ void __launch_bounds__(128) join_chunks(
    const float* __restrict__ sums, const float* __restrict__ maxima, T* __restrict__ sum, T* __restrict__ max,
    long long results, long long cols, int chunks) {
    const long long i = blockIdx.x * 128ll + threadIdx.x;
    if (i >= results) return;
    const long long from = i / cols * chunks * cols + i % cols;
    Cascade total;
    float most = -INFINITY;
    for (int chunk = 0; chunk < chunks; ++chunk) {
        total.add(sums[from + chunk * cols]);
        most = larger(most, maxima[from + chunk * cols]);
    }
    sum[i] = T(total.total());
    max[i] = T(most);
}
