// fault: 140 values alive, so that few warps fit, and none is spilled. good: eight.
template <int K>
__device__ __forceinline__ void work(const float* x, float* y, int n, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float a[K];
#pragma unroll
    for (int k = 0; k < K; ++k) a[k] = x[i] + k;
#pragma unroll 1
    for (int r = 0; r < rounds; ++r) {
#pragma unroll
        for (int k = 0; k < K; ++k) a[k] = a[k] * a[(k + 7) % K] + 0.5f;
    }
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < K; ++k) sum += a[k];
    y[i] = sum;
}

extern "C" __global__ void __launch_bounds__(256) fault(const float* x, float* y, int n, int rounds) {
    work<140>(x, y, n, rounds);
}

extern "C" __global__ void __launch_bounds__(256) good(const float* x, float* y, int n, int rounds) {
    work<8>(x, y, n, rounds);
}
