// Sums of 1,024 floats a block. fault: a barrier for each step of a tree, and idle warps. good: shuffles, two barriers.
extern "C" __global__ void fault(const float* x, float* y, int n, int rounds) {
    __shared__ float tile[1024];
    float total = 0.0f;
#pragma unroll 1
    for (int r = 0; r < rounds; ++r) {
        tile[threadIdx.x] = x[blockIdx.x * 1024 + threadIdx.x] + r;
        __syncthreads();
#pragma unroll 1
        for (int step = 512; step > 0; step /= 2) {
            if (threadIdx.x < step) tile[threadIdx.x] += tile[threadIdx.x + step];
            __syncthreads();
        }
        total += tile[0];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = total;
}

extern "C" __global__ void good(const float* x, float* y, int n, int rounds) {
    __shared__ float warps[32];
    float total = 0.0f;
#pragma unroll 1
    for (int r = 0; r < rounds; ++r) {
        float v = x[blockIdx.x * 1024 + threadIdx.x] + r;
        for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
        total += v;
    }
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int k = 0; k < 32; ++k) sum += warps[k];
        y[blockIdx.x] = sum;
    }
}
