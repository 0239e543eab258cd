// Counts of each class in each row: private counters in shared memory, then one addition a counter to global memory.
//
// `chunks` blocks share a row of n ids, SHARE ids each. Every class has COPIES counters side by side and a thread adds to
// that of its number: threads of a warp that meet one class (all of them, in the worst case) fall on COPIES words of
// different banks, and 32 / COPIES of them queue at each. Integer additions commute: the counts are the same every time.
template <int VEC>
struct alignas(8 * VEC) Ids {
    long long at[VEC];
};

template <int VEC, int COPIES, int BLOCK, int SHARE>
__global__ void __launch_bounds__(BLOCK) histogram(
    const long long* __restrict__ ids, long long* __restrict__ counts, long long rows, long long n, int bins,
    int chunks) {
    extern __shared__ unsigned int mine[];  // [bins][COPIES]
    static_assert(SHARE % (BLOCK * VEC) == 0);
    constexpr int ITEMS = SHARE / (BLOCK * VEC);
    const long long row = blockIdx.x / chunks, start = blockIdx.x % chunks * static_cast<long long>(SHARE);
    ids += row * n;
    unsigned long long* total = reinterpret_cast<unsigned long long*>(counts + row * bins);

    for (int i = threadIdx.x; i < bins * COPIES; i += BLOCK) mine[i] = 0;
    __syncthreads();
    Ids<VEC> in[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const long long own = start + (k * BLOCK + threadIdx.x) * VEC;
        in[k] = *reinterpret_cast<const Ids<VEC>*>(ids + (own < n ? own : n - VEC));
    }
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        if (start + (k * BLOCK + threadIdx.x) * VEC >= n) continue;
#pragma unroll
        for (int j = 0; j < VEC; ++j) {
            const unsigned long long id = in[k].at[j];
            if (id >= static_cast<unsigned int>(bins)) continue;  // negative ones too: never an access out of bounds
            if constexpr (COPIES > 0) {
                atomicAdd(&mine[id * COPIES + threadIdx.x % COPIES], 1u);
            } else {
                atomicAdd(total + id, 1ull);
            }
        }
    }
    if constexpr (COPIES > 0) {
        __syncthreads();
        for (int bin = threadIdx.x; bin < bins; bin += BLOCK) {
            unsigned int sum = 0;
#pragma unroll
            for (int c = 0; c < COPIES; ++c) sum += mine[bin * COPIES + c];
            if (sum > 0) atomicAdd(total + bin, static_cast<unsigned long long>(sum));
        }
    }
}
