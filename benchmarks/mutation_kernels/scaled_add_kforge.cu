// VEC neighbouring elements for each thread; two outputs.
struct alignas(4 * VEC) Pack {
    float at[VEC];
};

extern "C" __global__ void scaled_add(const float* x, const float* y, float* total, float* difference, int n) {
    int i = (blockIdx.x * 128 + threadIdx.x) * VEC;
    if (i >= n) return;
    Pack a = *reinterpret_cast<const Pack*>(x + i), b = *reinterpret_cast<const Pack*>(y + i), sum, rest;
    for (int k = 0; k < VEC; k++) {
        sum.at[k] = a.at[k] + 0.5f * b.at[k];
        rest.at[k] = a.at[k] - b.at[k];
    }
    *reinterpret_cast<Pack*>(total + i) = sum;
    *reinterpret_cast<Pack*>(difference + i) = rest;
}
