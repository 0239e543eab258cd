extern "C" __global__ void decoy(float* y, int n) {
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) y[i] = 1.0f;
}
