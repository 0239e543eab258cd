// Each warp scans 32 values with shuffles; warp totals go through shared memory, the block's total is carried on.
// Sums are doubles: torch's own scan on the CPU adds up in double as well.
extern "C" __global__ void scan_rows(const float* x, float* y, int rows, int cols) {
    __shared__ double totals[2];
    const float* in = x + (long long)blockIdx.x * cols;
    float* out = y + (long long)blockIdx.x * cols;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    double carry = 0.0;
    for (int start = 0; start < cols; start += 64) {
        int c = start + threadIdx.x;
        double v = c < cols ? in[c] : 0.0;
        for (int d = 1; d < 32; d *= 2) {
            double left = __shfl_up_sync(0xffffffffu, v, d);
            if (lane >= d) v += left;
        }
        if (lane == 31) totals[warp] = v;
        __syncthreads();
        if (warp == 1) v += totals[0];
        if (c < cols) out[c] = carry + v;
        carry += totals[0] + totals[1];
        __syncthreads();
    }
}
