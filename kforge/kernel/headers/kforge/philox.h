// Philox-4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011), keyed by
// kforge.kernel.philox(): `seed` points to two int64, (key, offset).
#pragma once
#include <stdint.h>

struct kforge_uint4 {
    uint32_t x, y, z, w;
};

// The four 32-bit words of one counter block.
__host__ __device__ inline kforge_uint4 kforge_philox(uint64_t key, uint64_t counter) {
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        const uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        const uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return kforge_uint4{c0, c1, c2, c3};
}

// Number i of a kernel's stream, uniform in [0, 1) with 24 bits.
__host__ __device__ inline float kforge_uniform(const long long* seed, uint64_t i) {
    const kforge_uint4 block = kforge_philox((uint64_t)seed[0], (uint64_t)seed[1] + i / 4);
    const uint32_t lane = (uint32_t)(i % 4);
    const uint32_t word = lane == 0 ? block.x : lane == 1 ? block.y : lane == 2 ? block.z : block.w;
    return (float)(word >> 8) * (1.0f / 16777216.0f);
}
