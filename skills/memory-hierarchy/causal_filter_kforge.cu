// y[s] = sum over k of w[k] * x[s - (taps - 1) + k], every channel by its own w: each level of memory does what it is for.
//
// DRAM: a block reads its stretch of x once, and the taps - 1 elements before it, with asynchronous copies that pass no
// register. Shared memory: serves each element to the taps that need it. Registers: a thread owns 4 neighbouring
// outputs, so one 16-byte read of shared memory feeds 16 multiply-adds.
#include <cuda_pipeline.h>

template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) causal_filter(
    const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ y, long long rows, int channels,
    long long length, int taps) {
    constexpr int OWN = 4, STRETCH = BLOCK * OWN;
    extern __shared__ float4 aligned_to_16[];
    float* const in = reinterpret_cast<float*>(aligned_to_16);  // STRETCH + taps - 1 elements, and room to read on
    const int room = (STRETCH + taps + 2 * OWN) / OWN * OWN;
    float* const w = in + room;
    const unsigned int stretches = (length + STRETCH - 1) / STRETCH;
    const long long row = blockIdx.x / stretches, start = static_cast<long long>(blockIdx.x % stretches) * STRETCH;
    const float* const from = x + row * length;

    for (int i = threadIdx.x; i < room; i += BLOCK) {
        const long long place = start - (taps - 1) + i;
        if (place >= 0 && place < length && i < STRETCH + taps - 1) {
            __pipeline_memcpy_async(in + i, from + place, 4);
        } else {
            in[i] = 0.0f;
        }
    }
    for (int k = threadIdx.x; k < taps; k += BLOCK) w[k] = weight[row % channels * taps + k];
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();

    const int own = threadIdx.x * OWN;
    if (start + own >= length) return;
    float sum[OWN] = {}, part[OWN] = {};
    float4 now = aligned_to_16[threadIdx.x];
    for (int k = 0; k < taps; k += 4) {
        const float4 next = aligned_to_16[threadIdx.x + k / 4 + 1];
        const float window[8] = {now.x, now.y, now.z, now.w, next.x, next.y, next.z, next.w};
#pragma unroll
        for (int t = 0; t < 4; ++t) {
            if (k + t < taps) {  // the same in all threads; a weight of zero would make a NaN of an infinity beside it
                const float tap = w[k + t];
#pragma unroll
                for (int o = 0; o < OWN; ++o) part[o] += tap * window[t + o];
            }
        }
        if (k % 32 == 28) {  // no accumulator takes more than 32 products before it moves up
#pragma unroll
            for (int o = 0; o < OWN; ++o) {
                sum[o] += part[o];
                part[o] = 0.0f;
            }
        }
        now = next;
    }
    float* const to = y + row * length + start + own;
#pragma unroll
    for (int o = 0; o < OWN; ++o) {
        if (start + own + o < length) to[o] = sum[o] + part[o];
    }
}
