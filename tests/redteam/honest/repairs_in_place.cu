extern "C" __global__ void mend(float* y, int n) {
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i >= n) return;
    if (isnan(y[i])) y[i] = 0.f;
    if (isinf(y[i])) y[i] = y[i] > 0.f ? 3.4028234663852886e38f : -3.4028234663852886e38f;
}
