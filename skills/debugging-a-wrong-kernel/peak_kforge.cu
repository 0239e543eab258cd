// One block a row. The row stays in shared memory between its three passes, so that it is read once.
constexpr int BLOCK = 128, WARPS = BLOCK / 32;

__device__ __forceinline__ float larger(float a, float b) { return a > b || a != a ? a : b; }

__device__ __forceinline__ float block_sum(float v, float* part) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) v += __shfl_xor_sync(0xffffffffu, v, mask);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = (part[0] + part[1]) + (part[2] + part[3]);
    __syncthreads();
    return v;
}

__device__ __forceinline__ float block_max(float v, float* part) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) v = larger(v, __shfl_xor_sync(0xffffffffu, v, mask));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = larger(larger(part[0], part[1]), larger(part[2], part[3]));
    __syncthreads();
    return v;
}

extern "C" __global__ void __launch_bounds__(BLOCK) peak(
    const float* __restrict__ x, float* __restrict__ y, float* __restrict__ means, long long rows, int cols) {
    extern __shared__ float row[];
    __shared__ float part[WARPS];
    static_assert(WARPS == 4);
    const long long start = static_cast<long long>(blockIdx.x) * cols;

    float low = 0.0f, sum = 0.0f;
    for (int c = threadIdx.x, added = 0; c < cols; c += BLOCK) {
        row[c] = x[start + c];
        low += fabsf(row[c]);
        if (++added % 64 == 0) {
            sum += low;
            low = 0.0f;
        }
    }
    const float mean = block_sum(sum + low, part) / cols;

    float most = 0.0f;
    for (int c = threadIdx.x; c < cols; c += BLOCK) most = larger(most, fabsf(row[c]));
    most = block_max(most, part);

    for (int c = threadIdx.x; c < cols; c += BLOCK) y[start + c] = row[c] / most;
    if (threadIdx.x == 0) means[blockIdx.x] = mean;
}
