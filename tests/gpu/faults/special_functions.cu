// fault: a chain of exponentials and reciprocals. good: as many multiply-adds.
extern "C" __global__ void fault(const float* x, float* y, int n, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float a = x[i], b = a + 0.5f;
#pragma unroll 8
    for (int r = 0; r < rounds; ++r) {
        asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(a));
        asm volatile("rcp.approx.ftz.f32 %0, %0;" : "+f"(b));
    }
    y[i] = a + b;
}

extern "C" __global__ void good(const float* x, float* y, int n, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float a = x[i], b = a + 0.5f;
#pragma unroll 8
    for (int r = 0; r < rounds; ++r) {
        a = a * 0.5f + 1.0f;
        b = b * 0.5f + 1.0f;
    }
    y[i] = a + b;
}
