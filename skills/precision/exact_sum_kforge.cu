// Row sums as exact as in double, in float arithmetic alone: every addition keeps what it rounded away (Knuth's
// two-sum, no branch). Consumer GPUs have 1/64 of their float rate in double.
//
// The compiler must not reorder these additions: no fast-math.
template <int N>
struct alignas(4 * N) Pack {
    float at[N];
};

// A sum in two floats: `high` as rounded, `low` what the roundings lost.
struct Exact {
    float high = 0.0f, low = 0.0f;

    __device__ __forceinline__ void add(float v) {
        const float sum = high + v, back = sum - high;
        low += (high - (sum - back)) + (v - back);
        high = sum;
    }
    __device__ __forceinline__ void add(Exact other) {
        add(other.high);
        low += other.low;
    }
    // An infinity or a NaN has no rounding: infinity minus itself made a NaN of `low`.
    __device__ __forceinline__ float total() const { return isfinite(high) ? high + low : high; }
};

__device__ __forceinline__ Exact warp_sum(Exact v) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
        Exact other;
        other.high = __shfl_xor_sync(0xffffffffu, v.high, mask);
        other.low = __shfl_xor_sync(0xffffffffu, v.low, mask);
        v.add(other);
    }
    return v;
}

// One block a row; each thread keeps VEC sums, so that its additions do not wait for each other.
template <int VEC, int BLOCK>
__global__ void __launch_bounds__(BLOCK) exact_sum(
    const float* __restrict__ x, float* __restrict__ y, long long rows, long long cols) {
    __shared__ Exact shared[BLOCK / 32];
    const float* from = x + blockIdx.x * cols;
    Exact sum[VEC];
    for (long long col = threadIdx.x * VEC; col < cols; col += BLOCK * VEC) {
        const Pack<VEC> in = *reinterpret_cast<const Pack<VEC>*>(from + col);
#pragma unroll
        for (int j = 0; j < VEC; ++j) sum[j].add(in.at[j]);
    }
#pragma unroll
    for (int j = 1; j < VEC; ++j) sum[0].add(sum[j]);
    sum[0] = warp_sum(sum[0]);
    const int lane = threadIdx.x % 32;
    if (lane == 0) shared[threadIdx.x / 32] = sum[0];
    __syncthreads();
    if (threadIdx.x >= 32) return;
    const Exact row = warp_sum(lane < BLOCK / 32 ? shared[lane] : Exact());
    if (lane == 0) y[blockIdx.x] = row.total();
}
