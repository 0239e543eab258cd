// fault: neighbouring threads read and write rows that lie n floats apart. good: neighbouring floats.
extern "C" __global__ void fault(const float* x, float* y, int n) {
    int row = blockIdx.y * blockDim.x + threadIdx.x, column = blockIdx.x;
    y[(long long)row * n + column] = x[(long long)row * n + column] + 1.0f;
}

extern "C" __global__ void good(const float* x, float* y, int n) {
    int column = blockIdx.y * blockDim.x + threadIdx.x, row = blockIdx.x;
    y[(long long)row * n + column] = x[(long long)row * n + column] + 1.0f;
}
