// fault: many launches of it, each for a small part. good: one for everything.
extern "C" __global__ void fault(const float* x, float* y, int begin, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[begin + i] = x[begin + i] + 1.0f;
}

extern "C" __global__ void good(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + 1.0f;
}
