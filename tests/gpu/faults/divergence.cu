// A long loop for an eighth of the threads. fault: four of each warp. good: whole warps.
__device__ __forceinline__ void work(const float* x, float* y, int n, int rounds, bool busy) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    if (busy) {
#pragma unroll 1
        for (int r = 0; r < rounds; ++r) v = v * 0.5f + 1.0f;
    }
    y[i] = v;
}

extern "C" __global__ void fault(const float* x, float* y, int n, int rounds) {
    work(x, y, n, rounds, threadIdx.x % 8 == 0);
}

extern "C" __global__ void good(const float* x, float* y, int n, int rounds) {
    work(x, y, n, rounds, threadIdx.x / 32 % 8 == 0);
}
