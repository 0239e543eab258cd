// Three passes. fault: all blocks pass over everything, then again. good: each block passes over its own tile.
extern "C" __global__ void fault(const float4* x, float* y, int n) {
    float sum = 0.0f;
    for (int pass = 0; pass < 3; ++pass)
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
            float4 v = x[i];
            sum = sum * 0.5f + v.x + v.y + v.z + v.w;
        }
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" __global__ void good(const float4* x, float* y, int n) {
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        for (int pass = 0; pass < 3; ++pass) {
            float4 v = x[i];
            sum = sum * 0.5f + v.x + v.y + v.z + v.w;
        }
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
