// y = (x + 1) * 2 - 3. fault: three kernels with intermediate results in memory. good: one.
extern "C" __global__ void fault(const float4* x, float4* y, int n, float scale, float shift) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = x[i];
    y[i] = make_float4(v.x * scale + shift, v.y * scale + shift, v.z * scale + shift, v.w * scale + shift);
}

extern "C" __global__ void good(const float4* x, float4* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = x[i];
    y[i] = make_float4((v.x + 1.0f) * 2.0f - 3.0f, (v.y + 1.0f) * 2.0f - 3.0f, (v.z + 1.0f) * 2.0f - 3.0f,
                       (v.w + 1.0f) * 2.0f - 3.0f);
}
