// The mean of a smooth L1 loss in one launch. The last block to arrive adds up what the others left.
//
// The counter and the partial sums lie in `workspace`, memory of this call alone that arrives zeroed: nothing outlives
// the call, so it may be captured in a CUDA graph, replayed, and run on several streams at once.

template <int N>
struct alignas(4 * N) Pack {
    float at[N];
};

__device__ __forceinline__ float smooth_l1(float prediction, float target) {
    const float error = fabsf(prediction - target);
    return error < 1.0f ? 0.5f * error * error : error - 0.5f;
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) v += __shfl_xor_sync(0xffffffffu, v, mask);
    return v;
}

// In the first warp. May be called again at once: the barrier at its start waits for those who still read.
template <int BLOCK>
__device__ __forceinline__ float block_sum(float v) {
    __shared__ float shared[BLOCK / 32];
    v = warp_sum(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
    __syncthreads();
    return threadIdx.x < 32 ? warp_sum(threadIdx.x < BLOCK / 32 ? shared[threadIdx.x] : 0.0f) : 0.0f;
}

// The losses of every step-th vector from `first` on, in two levels of at most 64 additions.
template <int VEC>
__device__ __forceinline__ float own_losses(
    const float* prediction, const float* target, long long n, long long first, long long step) {
    float low = 0.0f, high = 0.0f;
    int added = 0;
    for (long long i = first * VEC; i < n; i += step * VEC) {
        const Pack<VEC> a = *reinterpret_cast<const Pack<VEC>*>(prediction + i);
        const Pack<VEC> b = *reinterpret_cast<const Pack<VEC>*>(target + i);
        float loss[VEC];
#pragma unroll
        for (int j = 0; j < VEC; ++j) loss[j] = smooth_l1(a.at[j], b.at[j]);
#pragma unroll
        for (int half = VEC / 2; half > 0; half /= 2) {
#pragma unroll
            for (int j = 0; j < half; ++j) loss[j] += loss[j + half];
        }
        low += loss[0];
        if (++added % 64 == 0) {
            high += low;
            low = 0.0f;
        }
    }
    return low + high;
}

// One block for all: no workspace to be zeroed, no other block to wait for.
template <int VEC>
__global__ void __launch_bounds__(1024) smooth_l1_short(
    const float* __restrict__ prediction, const float* __restrict__ target, float* __restrict__ mean, long long n) {
    const float sum = block_sum<1024>(own_losses<VEC>(prediction, target, n, threadIdx.x, 1024));
    if (threadIdx.x == 0) *mean = static_cast<float>(static_cast<double>(sum) / n);
}

struct Workspace {
    unsigned int arrived;
    unsigned int unused[3];
    float sums[1];  // one for each block
};

template <int VEC, int BLOCK>
__global__ void __launch_bounds__(BLOCK) smooth_l1_mean(
    const float* __restrict__ prediction, const float* __restrict__ target, float* __restrict__ mean, long long n,
    unsigned char* workspace) {
    Workspace& of_all = *reinterpret_cast<Workspace*>(workspace);
    __shared__ bool last;
    const long long threads = static_cast<long long>(gridDim.x) * BLOCK;
    const long long first = blockIdx.x * static_cast<long long>(BLOCK) + threadIdx.x;
    const float mine = block_sum<BLOCK>(own_losses<VEC>(prediction, target, n, first, threads));
    if (threadIdx.x == 0) {
        of_all.sums[blockIdx.x] = mine;
        __threadfence();  // the sum is seen before the count
        last = atomicAdd(&of_all.arrived, 1u) == gridDim.x - 1;
        __threadfence();  // and the others' sums are read after it
    }
    __syncthreads();
    if (!last) return;
    float sum = 0.0f;  // by number of the block, not by arrival: the same bits every time
    for (unsigned int k = threadIdx.x; k < gridDim.x; k += BLOCK) sum += __ldcg(&of_all.sums[k]);
    sum = block_sum<BLOCK>(sum);
    if (threadIdx.x == 0) *mean = static_cast<float>(static_cast<double>(sum) / n);
}
