// y = gelu(x weight^T + bias) + residual in bfloat16: TMA feeds a ring of tiles, two warpgroups multiply them with wgmma.
//
// One warp copies (the producer), eight multiply (the consumers). A stage of the ring is a tile of x and one of weight,
// BK = 64 columns (128 bytes) wide, swizzled by the copy as wgmma reads it. `full[s]` ends a phase when the bytes of
// stage s are there, `empty[s]` when all consumer warps have read them.
#include <cuda.h>
#include <cuda_bf16.h>
#include <stdint.h>

constexpr int BM = 128, BN = 128, BK = 64;
constexpr int THREADS = 384, CONSUMER_WARPS = 8;
constexpr int A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2;

__device__ __forceinline__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void barrier_init(uint64_t* barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint64_t* barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Until the phase of this parity is over.
__device__ __forceinline__ void barrier_wait(uint64_t* barrier, unsigned parity) {
    unsigned done = 0;
    while (!done) {
        asm volatile(
            "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}\n"
            : "=r"(done) : "r"(shared_address(barrier)), "r"(parity) : "memory");
    }
}
// One box of a tensor into shared memory; `column` counts along the last dimension.
__device__ __forceinline__ void load_box(void* to, const CUtensorMap* map, int column, int row, uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
        ::"r"(shared_address(to)), "l"((unsigned long long)map), "r"(column), "r"(row), "r"(shared_address(barrier))
        : "memory");
}
// Rows of 128 bytes in groups of eight (1024 bytes), swizzled by 128 bytes.
__device__ __forceinline__ uint64_t descriptor(const void* tile) {
    return (uint64_t)((shared_address(tile) & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}
__device__ __forceinline__ void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int KEEP>
__device__ __forceinline__ void mma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(KEEP) : "memory");
}
// d (64 x BN) = a b^T, 16 columns of depth; added to what d holds if `add`.
__device__ __forceinline__ void mma(float (&d)[BN / 2], uint64_t a, uint64_t b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, %64, %65, p, 1, 1, 0, 0;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(a), "l"(b), "r"(add));
}

__device__ __forceinline__ float gelu(float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678f)); }

// Tiles in groups of GROUP rows of tiles, so that what one wave of blocks reads stays in the second cache.
__device__ __forceinline__ void place(int tile, int tiles_m, int tiles_n, int& row, int& column) {
    const int group = tile / (GROUP * tiles_n), inside = tile % (GROUP * tiles_n);
    const int rows = min(tiles_m - group * GROUP, GROUP);
    row = group * GROUP + inside % rows;
    column = inside / rows;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
linear_gelu_add(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap weight,
                const __nv_bfloat16* bias, const __nv_bfloat16* residual, __nv_bfloat16* y, int m, int n, int k, int blocks) {
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    unsigned char* ring = memory + (1024 - shared_address(memory) % 1024) % 1024;
    const int tiles_m = (m + BM - 1) / BM, tiles_n = (n + BN - 1) / BN, steps = (k + BK - 1) / BK;
    const int warpgroup = threadIdx.x / 128, lane = threadIdx.x % 32;

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(&full[s], 1);
            barrier_init(&empty[s], CONSUMER_WARPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();

    int stage = 0;
    unsigned parity = 0;
    if (warpgroup == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += blocks) {
                int row, column;
                place(tile, tiles_m, tiles_n, row, column);
                for (int step = 0; step < steps; ++step) {
                    barrier_wait(&empty[stage], parity ^ 1);
                    unsigned char* a = ring + stage * (A_BYTES + B_BYTES);
                    barrier_expect(&full[stage], A_BYTES + B_BYTES);
                    load_box(a, &x, step * BK, row * BM, &full[stage]);
                    load_box(a + A_BYTES, &weight, step * BK, column * BN, &full[stage]);
                    if (++stage == STAGES) stage = 0, parity ^= 1;
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        float d[BN / 2];
        for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += blocks) {
            int row, column;
            place(tile, tiles_m, tiles_n, row, column);
            int before = 0;
            for (int step = 0; step < steps; ++step) {
                barrier_wait(&full[stage], parity);
                const unsigned char* a = ring + stage * (A_BYTES + B_BYTES);
                const uint64_t rows = descriptor(a + (warpgroup - 1) * 64 * BK * 2), columns = descriptor(a + A_BYTES);
                mma_fence();
#pragma unroll
                for (int part = 0; part < BK / 16; ++part)  // 32 bytes further along the rows
                    mma(d, rows + 2 * part, columns + 2 * part, step + part > 0);
                mma_commit();
                mma_wait<1>();  // the stage before this one has been read
                if (step > 0 && lane == 0) barrier_arrive(&empty[before]);
                before = stage;
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
            mma_wait<0>();
            if (lane == 0) barrier_arrive(&empty[before]);
#pragma unroll
            for (int i = 0; i < BN / 2; ++i) asm volatile("" : "+f"(d[i])::"memory");  // read no sooner than here

            const int top = row * BM + (warpgroup - 1) * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
            for (int i = 0; i < BN / 2; i += 2) {
                const int r = top + i / 2 % 2 * 8, c = column * BN + i / 4 * 8 + lane % 4 * 2;
                if (r >= m || c >= n) continue;  // n is even: a pair is whole
                const __nv_bfloat162 b = *reinterpret_cast<const __nv_bfloat162*>(bias + c);
                const __nv_bfloat162 add = *reinterpret_cast<const __nv_bfloat162*>(residual + (long long)r * n + c);
                // Each operator of the reference rounds its result, and so do these.
                float2 v = __bfloat1622float2(__floats2bfloat162_rn(d[i] + __low2float(b), d[i + 1] + __high2float(b)));
                v = __bfloat1622float2(__floats2bfloat162_rn(gelu(v.x), gelu(v.y)));
                *reinterpret_cast<__nv_bfloat162*>(y + (long long)r * n + c) =
                    __floats2bfloat162_rn(v.x + __low2float(add), v.y + __high2float(add));
            }
        }
    }
}
