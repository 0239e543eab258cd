// Eight threads share a column, then add up through shared memory.
extern "C" __global__ void column_sum(const float* x, float* y, int rows, int cols) {
    __shared__ float part[8][32];
    int col = blockIdx.x * 32 + threadIdx.x;
    float sum = 0.f;
    if (col < cols) {
        for (int row = threadIdx.y; row < rows; row += 8) sum += x[(long long)row * cols + col];
    }
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    for (int s = 4; s > 0; s /= 2) {
        if (threadIdx.y < s) part[threadIdx.y][threadIdx.x] += part[threadIdx.y + s][threadIdx.x];
        __syncthreads();
    }
    if (threadIdx.y == 0 && col < cols) y[col] = part[0][threadIdx.x];
}
