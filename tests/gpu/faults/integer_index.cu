// y = x in another order of four dimensions. fault: coordinates by / and % of variables in each step of a loop.
// good: coordinates from the block and the thread.
extern "C" __global__ void fault(const float* x, float* y, int a, int b, int c, int d) {
    int n = a * b * c * d;
#pragma unroll 1
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        int l = i % d, k = i / d % c, j = i / (d * c) % b, h = i / (d * c * b);
        y[((h * c + k) * b + j) * d + l] = x[i];
    }
}

extern "C" __global__ void good(const float* x, float* y, int a, int b, int c, int d) {
    int h = blockIdx.z, j = blockIdx.y, k = blockIdx.x;
    const float* from = x + ((h * b + j) * c + k) * d;
    float* to = y + ((h * c + k) * b + j) * d;
    for (int l = threadIdx.x; l < d; l += blockDim.x) to[l] = from[l];
}
