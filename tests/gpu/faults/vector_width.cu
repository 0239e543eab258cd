// fault: one byte a thread and instruction. good: sixteen.
extern "C" __global__ void fault(const unsigned char* x, unsigned char* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] ^ 1;
}

extern "C" __global__ void good(const unsigned char* x, unsigned char* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (16 * i >= n) return;
    uint4 v = reinterpret_cast<const uint4*>(x)[i];
    v.x ^= 0x01010101u;
    v.y ^= 0x01010101u;
    v.z ^= 0x01010101u;
    v.w ^= 0x01010101u;
    reinterpret_cast<uint4*>(y)[i] = v;
}
