extern "C" __global__ void convolve(const float* x, const float* weight, float* y, int n, int height, int width) {
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i >= n) return;
    int column = i % width, row = i / width % height, filter = i / (width * height) % 4, image = i / (4 * width * height);
    float sum = 0.f;
    for (int channel = 0; channel < 3; ++channel)
        for (int u = 0; u < 3; ++u)
            for (int v = 0; v < 3; ++v)
                sum += weight[((filter * 3 + channel) * 3 + u) * 3 + v] *
                       x[((image * 3 + channel) * (height + 2) + row + u) * (width + 2) + column + v];
    y[i] = sum;
}
