// One warp for each row; the first of equal values wins, and a NaN wins over every number.
__device__ bool better(float v, int i, float w, int j) {
    if (isnan(v) && isnan(w)) return i < j;
    if (isnan(v)) return true;
    if (isnan(w)) return false;
    return v > w || (v == w && i < j);
}

extern "C" __global__ void argmax_warp(const float* x, float* value, long long* index, int rows, int cols) {
    int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const float* in = x + (long long)row * cols;
    float best = -INFINITY;
    int at = cols;
    for (int c = lane; c < cols; c += 32) {
        if (better(in[c], c, best, at)) {
            best = in[c];
            at = c;
        }
    }
    for (int mask = 16; mask > 0; mask /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, best, mask);
        int there = __shfl_xor_sync(0xffffffffu, at, mask);
        if (better(other, there, best, at)) {
            best = other;
            at = there;
        }
    }
    if (lane == 0) {
        value[row] = best;
        index[row] = at;
    }
}
