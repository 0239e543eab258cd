// (batch, rows, cols) -> (batch, cols, rows) through a square tile in shared memory.
//
// A tile has SIDE = 32 * VEC rows and columns: a warp reads 32 * VEC neighbouring elements of one row, and writes as many
// of one column of the input, so both directions are coalesced. Rows of the tile are one 4-byte word longer than they
// need be: without that, the elements of a column would all lie in one bank.
//
// T is an integer of the element's size: only bits move.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
    T at[N];
};

template <typename T, int VEC>
__global__ void __launch_bounds__(256) transpose(
    const T* __restrict__ x, T* __restrict__ y, long long batch, long long rows, long long cols) {
    constexpr int SIDE = 32 * VEC;
    constexpr int PITCH = SIDE + (sizeof(T) < 4 ? 4 / sizeof(T) : 1);
    __shared__ __align__(16) T tile[SIDE][PITCH];
    // the batch lies in grid x with the tiles: y and z end at 65,535
    const unsigned int across = (cols + SIDE - 1) / SIDE, down = (rows + SIDE - 1) / SIDE;
    const long long col = static_cast<long long>(blockIdx.x % across) * SIDE;
    const long long row = static_cast<long long>(blockIdx.x / across % down) * SIDE;
    const long long item = blockIdx.x / across / down * rows * cols;
    const int lane = threadIdx.x % 32 * VEC, warp = threadIdx.x / 32;

#pragma unroll
    for (int k = 0; k < SIDE; k += 8) {
        const int r = k + warp;
        if (row + r < rows && col + lane < cols) {
            *reinterpret_cast<Pack<T, VEC>*>(&tile[r][lane]) =
                *reinterpret_cast<const Pack<T, VEC>*>(x + item + (row + r) * cols + col + lane);
        }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < SIDE; k += 8) {
        const int c = k + warp;
        if (col + c < cols && row + lane < rows) {
            Pack<T, VEC> out;
#pragma unroll
            for (int j = 0; j < VEC; ++j) out.at[j] = tile[lane + j][c];
            *reinterpret_cast<Pack<T, VEC>*>(y + item + (col + c) * rows + row + lane) = out;
        }
    }
}
