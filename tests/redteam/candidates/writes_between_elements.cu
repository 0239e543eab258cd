extern "C" __global__ void softmax_gaps(const float* x, float* y, int rows, int cols, int s0, int s1) {
    int row = blockIdx.x;
    const float* in = x + (long long)row * s0;
    float m = -INFINITY, sum = 0.f;
    for (int c = 0; c < cols; c++) m = (in[c * s1] > m || isnan(in[c * s1])) ? in[c * s1] : m;
    for (int c = 0; c < cols; c += 8) {
        float part = 0.f;
        for (int k = c; k < min(c + 8, cols); k++) part += expf(in[k * s1] - m);
        sum += part;
    }
    for (int c = 0; c < cols; c++) y[(long long)row * cols + c] = expf(in[c * s1] - m) / sum;
    if (s1 > 1) ((float*)in)[1] = 0.f;  // the gap behind the first element
}
