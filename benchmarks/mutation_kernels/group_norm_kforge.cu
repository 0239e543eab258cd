// One block for each group: the mean first, then the mean of squared differences, so that an offset cancels nothing.
__device__ float block_sum(float v, float* part) {
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = (part[0] + part[1]) + (part[2] + part[3]);
    __syncthreads();
    return v;
}

extern "C" __global__ void group_norm(
    const float* x, const float* weight, const float* bias, float* y, int images, int channels, int groups, int pixels,
    float eps) {
    __shared__ float part[4];
    int width = channels / groups, n = width * pixels;
    int first = (blockIdx.x % groups) * width;
    const float* in = x + (long long)blockIdx.x * n;
    float* out = y + (long long)blockIdx.x * n;

    float sum = 0.f;
    for (int i = threadIdx.x; i < n; i += 128) sum += in[i];
    float mean = block_sum(sum, part) / n;

    float squares = 0.f;
    for (int i = threadIdx.x; i < n; i += 128) squares += (in[i] - mean) * (in[i] - mean);
    float scale = rsqrtf(block_sum(squares, part) / n + eps);

    for (int i = threadIdx.x; i < n; i += 128) {
        int channel = first + i / pixels;
        out[i] = (in[i] - mean) * scale * weight[channel] + bias[channel];
    }
}
