// A product on Hopper's tensor cores with what follows it: bias, GELU, residual, before the one rounding.
//
// One thread copies tiles into a ring in shared memory (TMA), two warpgroups multiply them (wgmma), and a block goes from
// tile to tile. mbarriers say what is full and what is empty; all waiting is for them.
#include <cuda.h>
#include <stdint.h>

// N neighbouring elements that move as one: up to 16 bytes in one instruction.
template <typename V, int N>
struct alignas(sizeof(V) * N) Pack {
    V at[N];
};

template <int N, typename V>
__device__ __forceinline__ Pack<V, N> load(const V* from) {
    return *reinterpret_cast<const Pack<V, N>*>(from);
}

template <int N, typename V>
__device__ __forceinline__ void store(V* to, const Pack<V, N>& pack) {
    *reinterpret_cast<Pack<V, N>*>(to) = pack;
}

// ---- Hopper's tensor cores: tiles come by tensor copies (TMA) into a ring in shared memory, wgmma multiplies them ----

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrier_init(uint64_t* barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Arrives, and announces so many bytes that are to come.
__device__ __forceinline__ void barrier_expect(uint64_t* barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
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

// A warp has read a stage: one lane tells each block of the cluster. Nothing was written that others wait for: a release
// at the cluster's scope would be a fence of all memory, each time.
template <int CLUSTER>
__device__ __forceinline__ void release(uint64_t* barrier, int lane) {
    if (lane >= CLUSTER) return;
    if constexpr (CLUSTER == 1) {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
    } else {
        asm volatile(
            "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
            "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n"
            ::"r"(shared_address(barrier)), "r"(lane) : "memory");
    }
}

__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// One box of a matrix, to the same place in every block of the cluster; `x` counts along memory. What lies outside of
// the matrix arrives as zeros.
template <int CLUSTER = 1>
__device__ __forceinline__ void load_box(void* to, const CUtensorMap* map, int x, int y, uint64_t* barrier) {
    if constexpr (CLUSTER == 1) {
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
            "[%0], [%1, {%2, %3}], [%4];"
            ::"r"(shared_address(to)), "l"(reinterpret_cast<unsigned long long>(map)), "r"(x), "r"(y),
            "r"(shared_address(barrier)) : "memory");
    } else {
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
            "[%0], [%1, {%2, %3}], [%4], %5;"
            ::"r"(shared_address(to)), "l"(reinterpret_cast<unsigned long long>(map)), "r"(x), "r"(y),
            "r"(shared_address(barrier)), "h"(static_cast<unsigned short>((1 << CLUSTER) - 1)) : "memory");
    }
}

// A tile as wgmma is told of it: lines of 64 along the depth, swizzled as the copy leaves them, eight are 1024 bytes.
__device__ __forceinline__ uint64_t tile_along(const void* tile) {
    return (shared_address(tile) & 0x3ffff) >> 4 | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

__device__ __forceinline__ void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int KEPT>
__device__ __forceinline__ void mma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(KEPT) : "memory");
}

// d += a b, 64 x 128, for 16 of the depth; LEFT, RIGHT: 1 for a tile_down.
template <int LEFT, int RIGHT>
__device__ __forceinline__ void mma(float (&d)[64], uint64_t a, uint64_t b) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"  // what d holds counts
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, %64, %65, p, 1, 1, %66, %67;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(a), "l"(b), "n"(LEFT), "n"(RIGHT));
}

// d += a b, 64 x 256, for 16 of the depth; LEFT, RIGHT: 1 for a tile_down.
template <int LEFT, int RIGHT>
__device__ __forceinline__ void mma(float (&d)[128], uint64_t a, uint64_t b) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"  // what d holds counts
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
        "}, %128, %129, p, 1, 1, %130, %131;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
          "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
          "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),
          "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),
          "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
          "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]),
          "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]),
          "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),
          "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
        : "l"(a), "l"(b), "n"(LEFT), "n"(RIGHT));
}

__device__ __forceinline__ void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// The tile of this number, in groups of GROUP rows of tiles: what one wave of blocks reads stays in the second cache.
template <int GROUP>
__device__ __forceinline__ int2 place(int tile, int down, int across) {
    const int group = tile / (GROUP * across), inside = tile % (GROUP * across);
    const int lines = min(down - group * GROUP, GROUP);
    return make_int2(group * GROUP + inside % lines, inside / lines);
}

template <typename T, int BN, int STAGES, int CLUSTER, int TURNS, int GROUP, int VEC, int AHEAD>
__global__ void __launch_bounds__(384, 1) linear_product(
    const __grid_constant__ CUtensorMap left, const __grid_constant__ CUtensorMap right,
    const T* __restrict__ bias, const T* __restrict__ residual, T* __restrict__ y, int rows, int cols, int depth,
    int processors) {
    constexpr int LEFT_BYTES = 128 * 64 * sizeof(T), RIGHT_BYTES = BN * 64 * sizeof(T);
    // TURNS 1: the warpgroups multiply 64 rows of a tile each; 2: they take the tiles in turns, and what one of them does
    // with its sums is done while the other multiplies.
    constexpr int ACROSS = BN / 32;
    constexpr int PITCH = 40;  // floats, of a row of sums on its way to memory
    constexpr int ITEMS = 16 / VEC;  // vectors of a lane in 32 columns
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ __align__(8) uint64_t full[STAGES], empty[STAGES], ready[2];
    unsigned char* const ring = memory + (1024 - shared_address(memory) % 1024) % 1024;
    const int warpgroup = threadIdx.x / 128, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int member = CLUSTER == 1 ? 0 : blockIdx.x % CLUSTER;
    const int tiles_down = (rows + 128 * CLUSTER - 1) / (128 * CLUSTER), tiles_across = (cols + BN - 1) / BN;
    const int tiles = tiles_down * tiles_across, steps = (depth + 63) / 64;

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(&full[s], 1);
            barrier_init(&empty[s], 8 / TURNS * CLUSTER);
        }
        if (TURNS > 1) barrier_init(&ready[0], 4), barrier_init(&ready[1], 4);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    if constexpr (CLUSTER > 1) cluster_sync();
    else __syncthreads();

    int stage = 0;
    unsigned parity = 0;
    if (warpgroup == 0) {
        // One thread keeps the ring full.
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            for (int tile = blockIdx.x / CLUSTER; tile < tiles; tile += gridDim.x / CLUSTER) {
                const int2 at = place<GROUP>(tile, tiles_down, tiles_across);
                const int top = (at.x * CLUSTER + member) * 128, first = at.y * BN;
                for (int step = 0; step < steps; ++step) {
                    unsigned char* const to = ring + stage * (LEFT_BYTES + RIGHT_BYTES);
                    barrier_wait(&empty[stage], parity ^ 1);
                    barrier_expect(&full[stage], LEFT_BYTES + RIGHT_BYTES);
                    load_box(to, &left, step * 64, top, &full[stage]);
                    constexpr int SHARE = BN / CLUSTER;  // columns of the right tile that this block brings for all
                    for (int k = 0; k < SHARE / 64; ++k) {
                        const int own = member * SHARE + k * 64;
                        unsigned char* const part = to + LEFT_BYTES + own * 128;
                        load_box<CLUSTER>(part, &right, step * 64, first + own, &full[stage]);
                    }
                    if (++stage == STAGES) stage = 0, parity ^= 1;
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        float* const slab = reinterpret_cast<float*>(ring + STAGES * (LEFT_BYTES + RIGHT_BYTES))
            + (warp - 4) * 16 * PITCH;
        const int below = TURNS == 1 ? (warpgroup - 1) * 64 : 0;  // where its rows begin in a tile
        int turn = 1;  // of the next tile; odd ones are the first warpgroup's
        for (int tile = blockIdx.x / CLUSTER; tile < tiles; tile += gridDim.x / CLUSTER) {
            if (TURNS > 1 && turn++ % 2 != warpgroup % 2) {  // the other's: its steps of the ring pass by
                parity ^= (stage + steps) / STAGES % 2;
                stage = (stage + steps) % STAGES;
                continue;
            }
            const int2 at = place<GROUP>(tile, tiles_down, tiles_across);
            #pragma unroll
            for (int k = 0; k < (TURNS * BN + 127) / 128; ++k) {  // what the sums meet comes near while they are added
                const int line = k * 128 + threadIdx.x % 128;
                const int row = (at.x * CLUSTER + member) * 128 + below + line / (BN / 64);
                const int col = at.y * BN + line % (BN / 64) * 64;
                if (line >= TURNS * BN || row >= rows || col >= cols) continue;
                const long long i = static_cast<long long>(row) * cols + col;
                prefetch(residual + i);
            }
            float d[TURNS][BN / 2] = {};
            int before = 0;
            // The other has seen all that arrived for the tile before: no stage is a whole round behind.
            if (TURNS > 1) barrier_wait(&ready[warpgroup - 1], (turn / 2 + warpgroup - 1) % 2);
            for (int step = 0; step < steps; ++step) {
                const unsigned char* const from = ring + stage * (LEFT_BYTES + RIGHT_BYTES);
                const uint64_t a = tile_along(from + below * 128);
                const uint64_t b = tile_along(from + LEFT_BYTES);
                barrier_wait(&full[stage], parity);
                mma_fence();
                #pragma unroll
                for (int k = 0; k < 4; ++k) {  // 16 of the depth each
                    #pragma unroll
                    for (int m = 0; m < TURNS; ++m) {  // 64 rows each, which are 8192 bytes
                        mma<0, 0>(d[m], a + m * 512 + k * 2, b + k * 2);
                    }
                }
                mma_commit();
                mma_wait<1>();  // the stage before this one is read
                if (step > 0) release<CLUSTER>(&empty[before], lane);
                before = stage;
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
            if (TURNS > 1) release<1>(&ready[2 - warpgroup], lane);
            // A warp has 16 rows of sums; a lane takes VEC neighbours of one row of each 32 columns, ITEMS times.
            const int top = (at.x * CLUSTER + member) * 128 + below + warp % 4 * 16 + lane / (32 / VEC);
            const int first = at.y * BN + lane % (32 / VEC) * VEC;
            Pack<T, VEC> bias_in[AHEAD];
            Pack<T, VEC> residual_in[AHEAD][ITEMS];
            const auto fetch = [&](int part) {  // what a part takes beside its sums
                const int col = first + part % ACROSS * 32;
                if (col >= cols) return;
                bias_in[part % AHEAD] = load<VEC>(bias + col);
                #pragma unroll
                for (int k = 0; k < ITEMS; ++k) {
                    const int row = top + part / ACROSS * 64 + k * VEC;
                    if (row >= rows) continue;
                    const long long i = static_cast<long long>(row) * cols + col;
                    residual_in[part % AHEAD][k] = load<VEC>(residual + i);
                }
            };
            #pragma unroll
            for (int part = 0; part < AHEAD - 1; ++part) fetch(part);
            mma_wait<0>();
            if (steps > 0) release<CLUSTER>(&empty[before], lane);
            #pragma unroll
            for (int k = 0; k < TURNS * BN / 2; ++k) {
                asm volatile("" : "+f"(d[k / (BN / 2)][k % (BN / 2)])::"memory");  // read no sooner than here
            }

            // 32 columns of sums at a time, from the tensor cores' order to that of memory.
            #pragma unroll
            for (int part = 0; part < TURNS * ACROSS; ++part) {
                if (part + AHEAD - 1 < TURNS * ACROSS) fetch(part + AHEAD - 1);
                #pragma unroll
                for (int k = 0; k < 8; ++k) {
                    float* const pair = slab + (lane / 4 + k % 2 * 8) * PITCH + k / 2 * 8 + lane % 4 * 2;
                    *reinterpret_cast<float2*>(pair) =
                        make_float2(d[part / ACROSS][part % ACROSS * 16 + 2 * k],
                        d[part / ACROSS][part % ACROSS * 16 + 2 * k + 1]);
                }
                __syncwarp();
                const int col = first + part % ACROSS * 32;
                #pragma unroll
                for (int k = 0; k < ITEMS; ++k) {
                    const int row = top + part / ACROSS * 64 + k * VEC;
                    if (row >= rows || col >= cols) continue;
                    const long long i = static_cast<long long>(row) * cols + col;
                    const Pack<float, VEC> sums =
                        load<VEC>(slab + (lane / (32 / VEC) + k * VEC) * PITCH + lane % (32 / VEC) * VEC);
                    Pack<T, VEC> y_out;
                    #pragma unroll
                    for (int j = 0; j < VEC; ++j) {
                        const float sum = sums.at[j] + float(bias_in[part % AHEAD].at[j]);
                        y_out.at[j] =
                            T(0.5f * sum * (1.0f + erff(sum * 0.7071067811865476f))
                            + float(residual_in[part % AHEAD][k].at[j]));
                    }
                    store(y + i, y_out);
                }
                __syncwarp();
            }
        }
    }
    if constexpr (CLUSTER > 1) cluster_sync();  // others may still write to this block's memory
}
