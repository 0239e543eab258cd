// One block a row. The row is read three times, by the second time from L1.

__device__ float wider(float a, float b) { return a != a || a > b ? a : b; }  // NaN wins, as in torch

// The maximum over the block, in every thread.
__device__ float block_max(float value) {
    __shared__ float parts[BLOCK / 32];
    for (int offset = 16; offset > 0; offset /= 2) value = wider(value, __shfl_xor_sync(0xffffffffu, value, offset));
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
    for (int warp = 1; warp < BLOCK / 32; ++warp) value = wider(value, parts[warp]);
    return value;
}

// The sum of this thread's value and those of the threads before it; total: of the whole block.
__device__ double block_scan(double value, double* total) {
    __shared__ double parts[BLOCK / 32];
    for (int offset = 1; offset < 32; offset *= 2) {
        const double before = __shfl_up_sync(0xffffffffu, value, offset);
        if (threadIdx.x % 32 >= offset) value += before;
    }
    __syncthreads();  // parts may still be read by the scan before
    if (threadIdx.x % 32 == 31) parts[threadIdx.x / 32] = value;
    __syncthreads();
    double sum = 0.0;
    for (int warp = 0; warp < BLOCK / 32; ++warp) {
        if (warp == threadIdx.x / 32) value += sum;
        sum += parts[warp];
    }
    *total = sum;
    return value;
}

extern "C" __global__ void softmax_cdf(
    const float* __restrict__ x, float* __restrict__ y, long long rows, long long cols) {
    const float* row = x + blockIdx.x * cols;
    float* out = y + blockIdx.x * cols;

    float top = -INFINITY;
    for (long long i = threadIdx.x; i < cols; i += BLOCK) top = wider(row[i], top);
    top = block_max(top);

    double sum = 0.0, total;
    for (long long i = threadIdx.x; i < cols; i += BLOCK) sum += expf(row[i] - top);
    block_scan(sum, &total);

    double carry = 0.0;
    for (long long first = 0; first < cols; first += BLOCK) {
        const long long i = first + threadIdx.x;
        const double share = i < cols ? expf(row[i] - top) / total : 0.0;
        double chunk;
        const double running = carry + block_scan(share, &chunk);
        if (i < cols) out[i] = (float)running;
        carry += chunk;
    }
}
