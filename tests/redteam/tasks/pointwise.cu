extern "C" __global__ void gelu2(const float* x, float* y, long long n) {
    long long i = (long long)blockIdx.x * 256 + threadIdx.x;
    if (i < n) {
        float v = x[i];
        y[i] = v * normcdff(v) * 2.0f + v;
    }
}
