#include <cuda_fp16.h>
#include <stdint.h>

__device__ unsigned address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ uint64_t lines_of_128(const void* tile) {
    return (uint64_t)(address(tile) >> 4) | 1ull << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}
__device__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void multiply(float (&d)[4], uint64_t a, uint64_t b) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
// Products of a tile of ones; the left one begins `line` lines further on.
__device__ void ones(float* y, int line, bool clears, bool fences, bool seen = true) {
    __shared__ __align__(1024) __half left[128 * 64], right[64 * 64];
    for (int i = threadIdx.x; i < 128 * 64; i += 128) left[i] = right[i % (64 * 64)] = __float2half(1.0f);
    if (seen) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    float d[4] = {};
    fence();
    multiply(d, lines_of_128(left + line * 64), lines_of_128(right));
    if (clears) d[0] = d[1] = d[2] = d[3] = 0;
    if (fences) fence();
    multiply(d, lines_of_128(left + line * 64 + 16), lines_of_128(right + 16));
    if (threadIdx.x == 0) y[0] = d[0];
}
extern "C" __global__ void goes_on(float* y) { ones(y, 8, false, false); }
extern "C" __global__ void starts_again(float* y) { ones(y, 0, true, true); }
extern "C" __global__ void without_fence(float* y) { ones(y, 0, true, false); }
extern "C" __global__ void not_seen(float* y) { ones(y, 0, false, true, false); }
extern "C" __global__ void between_patterns(float* y) { ones(y, 3, false, true); }

__device__ void registers(float* y, bool too_many) {
    if (threadIdx.x < 128) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    else if (too_many) asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    else asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    y[0] = 1;
}
extern "C" __global__ void enough_registers(float* y) { registers(y, false); }
extern "C" __global__ void too_many_registers(float* y) { registers(y, true); }
extern "C" __global__ void odd_registers(float*) { asm volatile("setmaxnreg.dec.sync.aligned.u32 44;"); }

// The second block of a cluster arrives at the first one's mbarrier, which may have ended by then.
__device__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
__device__ void arrives(float* y, bool waits) {
    __shared__ uint64_t barrier;
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(address(&barrier)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    cluster_sync();
    if (blockIdx.x == 1) {
        for (int i = 0; i < 64; ++i) asm volatile("nanosleep.u32 20;");
        asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                     "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" :: "r"(address(&barrier)), "r"(0) : "memory");
        y[0] = 1;
    }
    if (waits) cluster_sync();
}
extern "C" __global__ void waits_for_others(float* y) { arrives(y, true); }
extern "C" __global__ void ends_first(float* y) { arrives(y, false); }
