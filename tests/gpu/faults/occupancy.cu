// fault: 47 KB of shared memory for 64 threads, so that few warps fit. good: 1 KB for 256 threads.
template <int FLOATS>
__device__ __forceinline__ void work(const float* x, float* y, int n) {
    __shared__ float tile[FLOATS];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = threadIdx.x; k < FLOATS; k += blockDim.x) tile[k] = x[(i + k) % n];
    __syncthreads();
    if (i < n) y[i] = tile[(threadIdx.x * 5) % FLOATS];
}

extern "C" __global__ void fault(const float* x, float* y, int n) { work<12000>(x, y, n); }

extern "C" __global__ void good(const float* x, float* y, int n) { work<256>(x, y, n); }
