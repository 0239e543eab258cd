// One block for each row: maximum, then the sum of exponentials, then the logarithm.
__device__ float larger(float a, float b) { return a > b || isnan(a) ? a : b; }
__device__ float smaller(float a, float b) { return a < b || isnan(a) ? a : b; }

extern "C" __global__ void token_loss(const float* logits, const long long* target, float* loss, int rows, int cols) {
    __shared__ float part[2];
    const float* in = logits + (long long)blockIdx.x * cols;
    float top = -INFINITY;
    for (int c = threadIdx.x; c < cols; c += 64) top = larger(top, in[c]);
    for (int mask = 16; mask > 0; mask /= 2) top = larger(top, __shfl_xor_sync(0xffffffffu, top, mask));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = top;
    __syncthreads();
    top = larger(part[0], part[1]);
    __syncthreads();

    float sum = 0.f;
    for (int c = threadIdx.x; c < cols; c += 64) sum += expf(in[c] - top);
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = part[0] + part[1];
    if (threadIdx.x == 0) loss[blockIdx.x] = logf(sum) - (in[target[blockIdx.x]] - top);
}
