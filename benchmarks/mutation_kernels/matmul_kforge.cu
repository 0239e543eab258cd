// Tiles of 16 x 16 of both operands in shared memory; one output element for each thread.
extern "C" __global__ void matmul_tiles(
    const float* a, const float* b, const float* bias, float* c, int m, int n, int k) {
    __shared__ float left[16][16];
    __shared__ float right[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    float sum = 0.f;
    for (int start = 0; start < k; start += 16) {
        int ka = start + threadIdx.x, kb = start + threadIdx.y;
        left[threadIdx.y][threadIdx.x] = row < m && ka < k ? a[(long long)row * k + ka] : 0.f;
        right[threadIdx.y][threadIdx.x] = kb < k && col < n ? b[(long long)kb * n + col] : 0.f;
        __syncthreads();
        for (int i = 0; i < 16; i++) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && col < n) c[(long long)row * n + col] = sum + bias[col];
}
