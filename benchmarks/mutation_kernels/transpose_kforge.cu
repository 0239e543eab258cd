// Tiles of 32 x 32 through shared memory; the 33rd column keeps the banks apart.
extern "C" __global__ void transpose_tiles(const float* x, float* y, int rows, int cols) {
    __shared__ float tile[32][33];
    int col = blockIdx.x * 32 + threadIdx.x;
    int row = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) {
        if (row + k < rows && col < cols) {
            tile[threadIdx.y + k][threadIdx.x] = x[(long long)(row + k) * cols + col];
        }
    }
    __syncthreads();
    col = blockIdx.y * 32 + threadIdx.x;
    row = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) {
        if (row + k < cols && col < rows) {
            y[(long long)(row + k) * rows + col] = tile[threadIdx.x][threadIdx.y + k];
        }
    }
}
