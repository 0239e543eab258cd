// c = a b, square. fault: every thread fetches its row and column. good: tiles of 32 x 32 in shared memory.
extern "C" __global__ void fault(const float* a, const float* b, float* c, int n) {
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}

extern "C" __global__ void good(const float* a, const float* b, float* c, int n) {
    __shared__ float left[32][32], right[32][32];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    float sum = 0.0f;
    for (int base = 0; base < n; base += 32) {
        left[threadIdx.y][threadIdx.x] = a[row * n + base + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(base + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < 32; ++k) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}
