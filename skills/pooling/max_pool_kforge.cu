// Maximum over windows of 3 x 3 with a border of one, of `planes` images of height x width.
//
// A warp owns a tile of 32 * VEC columns and ROWS lines. A lane reads one vector of each line, once, and gets the
// columns beside it from its neighbours; the maximum along a line is then shared by the three windows it lies in.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename V, int N>
struct alignas(sizeof(V) * N) Pack {
    V at[N];
};

__device__ __forceinline__ float larger(float a, float b) { return a > b || a != a ? a : b; }  // keeps a NaN

template <typename T, int VEC, int ROWS>
__global__ void __launch_bounds__(128) max_pool(
    const T* __restrict__ x, T* __restrict__ y, long long planes, int height, int width) {
    const int lane = threadIdx.x % 32;
    const unsigned int across = (width + 32 * VEC - 1) / (32 * VEC), down = (height + ROWS - 1) / ROWS;
    const long long tile = blockIdx.x * 4ll + threadIdx.x / 32;
    const long long plane = tile / across / down;
    if (plane >= planes) return;  // the whole warp
    const int col = (static_cast<int>(tile % across) * 32 + lane) * VEC;
    const int row = static_cast<int>(tile / across % down) * ROWS;
    x += plane * height * width;
    y += plane * height * width;

    Pack<T, VEC> in[ROWS + 2];
    bool there[ROWS + 2];
#pragma unroll
    for (int r = 0; r < ROWS + 2; ++r) {  // all lines are on their way before the first is used
        const int line = row - 1 + r;
        there[r] = line >= 0 && line < height;
        if (there[r] && col < width) {
            in[r] = *reinterpret_cast<const Pack<T, VEC>*>(x + static_cast<long long>(line) * width + col);
        }
    }
    float best[3][VEC];  // along the lines: of the one above, this one, the one below
#pragma unroll
    for (int r = 0; r < ROWS + 2; ++r) {
        float own[VEC];
#pragma unroll
        for (int j = 0; j < VEC; ++j) own[j] = there[r] && col < width ? static_cast<float>(in[r].at[j]) : -INFINITY;
        float left = __shfl_up_sync(0xffffffffu, own[VEC - 1], 1);
        float right = __shfl_down_sync(0xffffffffu, own[0], 1);
        const T* line = x + static_cast<long long>(row - 1 + r) * width;
        if (lane == 0) left = there[r] && col > 0 ? static_cast<float>(line[col - 1]) : -INFINITY;
        if (lane == 31) right = there[r] && col + VEC < width ? static_cast<float>(line[col + VEC]) : -INFINITY;
#pragma unroll
        for (int j = 0; j < VEC; ++j) {
            best[0][j] = best[1][j];
            best[1][j] = best[2][j];
            best[2][j] = larger(larger(j > 0 ? own[j - 1] : left, own[j]), j + 1 < VEC ? own[j + 1] : right);
        }
        if (r >= 2 && row + r - 2 < height && col < width) {
            Pack<T, VEC> out;
#pragma unroll
            for (int j = 0; j < VEC; ++j) out.at[j] = T(larger(larger(best[0][j], best[1][j]), best[2][j]));
            *reinterpret_cast<Pack<T, VEC>*>(y + static_cast<long long>(row + r - 2) * width + col) = out;
        }
    }
}
