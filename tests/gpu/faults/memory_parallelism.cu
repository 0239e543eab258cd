// Sums. fault: one load of four bytes at a time, few threads. good: four loads of sixteen bytes, many threads.
extern "C" __global__ void fault(const float* x, float* y, int n) {
    float sum = 0.0f;
#pragma unroll 1
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum = sum * 0.5f + x[i];
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" __global__ void good(const float* x, float* y, int n) {
    const float4* wide = reinterpret_cast<const float4*>(x);
    int stride = gridDim.x * blockDim.x;
    float sum = 0.0f;
#pragma unroll 1
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i + 3 * stride < n / 4; i += 4 * stride) {
        float4 a = wide[i], b = wide[i + stride], c = wide[i + 2 * stride], d = wide[i + 3 * stride];
        sum += a.x + a.y + a.z + a.w + b.x + b.y + b.z + b.w + c.x + c.y + c.z + c.w + d.x + d.y + d.z + d.w;
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
