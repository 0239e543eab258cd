// A transposition through a tile. fault: columns of the tile lie in one bank. good: a padded tile.
template <int WIDTH>
__device__ __forceinline__ void transpose(const float* x, float* y, int n) {
    __shared__ float tile[32][WIDTH];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32;
    for (int k = threadIdx.y; k < 32; k += 8) tile[k][threadIdx.x] = x[(long long)(row + k) * n + column];
    __syncthreads();
    int out = blockIdx.y * 32 + threadIdx.x, line = blockIdx.x * 32;
    for (int k = threadIdx.y; k < 32; k += 8) y[(long long)(line + k) * n + out] = tile[threadIdx.x][k];
}

extern "C" __global__ void fault(const float* x, float* y, int n) { transpose<32>(x, y, n); }

extern "C" __global__ void good(const float* x, float* y, int n) { transpose<33>(x, y, n); }
