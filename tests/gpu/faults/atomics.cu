// The sum of everything. fault: an atomic a thread. good: shuffles, then one atomic a block.
extern "C" __global__ void fault(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? x[i] : 0.0f;
    atomicAdd(y + threadIdx.x % 2, v);
}

extern "C" __global__ void good(const float* x, float* y, int n) {
    __shared__ float warps[8];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? x[i] : 0.0f;
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int k = 0; k < 8; ++k) sum += warps[k];
        atomicAdd(y, sum);
    }
}
