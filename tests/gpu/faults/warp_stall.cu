// fault: each load's address comes from the load before it. good: independent arithmetic, warps enough to take turns.
extern "C" __global__ void fault(const float* x, float* y, int n, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, at = i % n;
    float sum = 0.0f;
#pragma unroll 1
    for (int r = 0; r < rounds; ++r) {
        float v = x[at];
        sum += v;
        at = (at + 97 + (v > 1e30f)) & (n - 1);
    }
    y[i] = sum;
}

extern "C" __global__ void good(const float* x, float* y, int n, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a = x[i % n], b = a + 1.0f, c = a + 2.0f, d = a + 3.0f;
#pragma unroll 8
    for (int r = 0; r < rounds; ++r) {
        a = a * 0.5f + 1.0f;
        b = b * 0.5f + 1.0f;
        c = c * 0.5f + 1.0f;
        d = d * 0.5f + 1.0f;
    }
    y[i] = a + b + c + d;
}
