// fault: literals without f make the expression double. good: float all through.
extern "C" __global__ void fault(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 0.1 + 0.7 * x[i] * x[i];
}

extern "C" __global__ void good(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 0.1f + 0.7f * x[i] * x[i];
}
