// fault: reads everything eight times over. good: once.
extern "C" __global__ void fault(const float4* x, float4* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = x[i];
    for (int k = 1; k < 8; ++k) {
        float4 w = x[(i + k * (n / 8)) % n];
        v.x += 1e-30f * w.x;
    }
    y[i] = make_float4(v.x + 1.0f, v.y + 1.0f, v.z + 1.0f, v.w + 1.0f);
}

extern "C" __global__ void good(const float4* x, float4* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = x[i];
    y[i] = make_float4(v.x + 1.0f, v.y + 1.0f, v.z + 1.0f, v.w + 1.0f);
}
