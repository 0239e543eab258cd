// Kernels with one planted race each. `//@` marks the lines of the pair; `// launch` the dimensions of the kernel below.
#include <cuda_runtime.h>
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
namespace cg = cooperative_groups;
#define KERNEL(name) extern "C" __global__ void name(float* x, float* y, int* n, unsigned* f)
#define T threadIdx.x
#define B blockIdx.x

// ---- block barriers
KERNEL(reverse_no_barrier) {  // launch grid=2 block=64
  __shared__ float s[64];
  s[T] = x[T];  //@
  y[B * 64 + T] = s[63 - T];  //@
}
KERNEL(reduction_no_second_barrier) {  // launch grid=2 block=64
  __shared__ float s[64];
  s[T] = x[T];
  __syncthreads();
  for (int o = 32; o; o >>= 1) {
    if (T < o) s[T] += s[T + o];  //@ @
    if (o > 32) __syncthreads();
  }
  if (T == 0) y[B] = s[0];
}
KERNEL(loop_no_trailing_barrier) {  // launch grid=1 block=128
  __shared__ float s[128];
  float sum = 0;
  for (int i = 0; i < 3; i++) {
    s[T] = x[i * 128 + T];  //@
    __syncthreads();
    sum += s[127 - T];  //@
  }
  y[T] = sum;
}
KERNEL(broadcast_reused) {  // launch grid=2 block=96
  __shared__ float total;
  for (int i = 0; i < 2; i++) {
    if (T == 0) total = x[i];  //@
    __syncthreads();
    y[B * 96 + T] = total;  //@
  }
}
KERNEL(double_buffer_one_short) {  // launch grid=1 block=64
  __shared__ float s[2][64];
  s[0][T] = x[T];
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < 4; i++) {
    s[(i + 1) & 1][T] = x[64 * i + T];  //@
    sum += s[i & 1][T ^ 33];  //@
  }
  y[T] = sum;
}
KERNEL(transpose_no_barrier) {  // launch grid=2 block=16x16
  __shared__ float tile[16][17];
  tile[threadIdx.y][T] = x[B * 256 + threadIdx.y * 16 + T];  //@
  y[B * 256 + threadIdx.y * 16 + T] = tile[T][threadIdx.y];  //@
}
KERNEL(scan_in_place) {  // launch grid=1 block=64
  __shared__ float s[64];
  s[T] = x[T];
  __syncthreads();
  for (int o = 1; o < 64; o <<= 1) {
    if (T >= o) s[T] += s[T - o];  //@ @
    __syncthreads();
  }
  y[T] = s[T];
}
KERNEL(stencil_halo) {  // launch grid=2 block=64
  __shared__ float s[66];
  s[T + 1] = x[B * 64 + T];
  __syncthreads();
  if (T == 0) s[0] = s[65] = 0.f;  //@
  y[B * 64 + T] = s[T] + s[T + 2];  //@
}
KERNEL(barrier_in_one_branch_short) {  // launch grid=1 block=64
  extern __shared__ float d[];  // shared=512
  d[T] = x[T];
  __syncthreads();
  d[64 + T] = d[63 - T];  //@
  if (T < 8) y[T] = d[64 + T * 8];  //@
}
KERNEL(half_words) {  // launch grid=1 block=64
  __shared__ unsigned short s[64];
  s[T] = T;  //@
  n[T] = s[T ^ 1];  //@
}
KERNEL(two_writers) {  // launch grid=1 block=64
  __shared__ int s[33];
  s[T >> 1] = T;  //@ @
  __syncthreads();
  n[T] = s[T >> 1];
}
KERNEL(named_barrier_other_half) {  // launch grid=1 block=128
  __shared__ float s[128];
  s[T] = x[T];  //@
  if (T < 64)
    asm volatile("bar.sync 1, 64;" ::: "memory");
  else
    asm volatile("bar.sync 2, 64;" ::: "memory");
  y[T] = s[T ^ 64];  //@
}

// ---- warps
KERNEL(warp_reduction_no_syncwarp) {  // launch grid=1 block=32
  __shared__ float s[64];
  s[T] = x[T], s[T + 32] = x[T + 32];
  __syncwarp();
  float v = s[T] + s[T + 16];  //@
  s[T] = v;  //@
  __syncwarp();
  y[T] = s[0];
}
KERNEL(volatile_warp_reduction) {  // launch grid=1 block=64
  __shared__ float buffer[64];
  volatile float* s = buffer;
  s[T] = x[T];
  __syncthreads();
  if (T < 32) {
    s[T] += s[T + 32];
    s[T] += s[T + 16];  //@ @
    y[T] = s[T];
  }
}
KERNEL(syncwarp_half_mask) {  // launch grid=1 block=32
  __shared__ float s[32];
  s[T] = x[T];  //@
  __syncwarp(T < 16 ? 0xffffu : 0xffff0000u);
  y[T] = s[31 - T];  //@
}
KERNEL(shuffle_is_one_warp) {  // launch grid=1 block=64
  __shared__ float s[2];
  float v = x[T];
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
  if ((T & 31) == 0) s[T >> 5] = v;  //@
  __shfl_sync(~0u, v, 0);
  y[T] = s[0] + s[1];  //@
}
KERNEL(tile_of_eight) {  // launch grid=1 block=32
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  __shared__ float s[32];
  s[T] = x[T];  //@
  tile.sync();
  y[T] = s[T ^ 8];  //@
}

// ---- atomics
KERNEL(histogram_no_barrier) {  // launch grid=1 block=64
  __shared__ int h[16];
  if (T < 16) h[T] = 0;
  __syncthreads();
  atomicAdd(&h[T & 15], 1);  //@
  if (T < 16) n[T] = h[15 - T];  //@
}
KERNEL(histogram_no_clear_barrier) {  // launch grid=1 block=64
  __shared__ int h[16];
  if (T < 16) h[T] = 0;  //@
  atomicAdd(&h[T >> 2], 1);  //@
  __syncthreads();
  if (T < 16) n[T] = h[T];
}
KERNEL(plain_beside_atomic) {  // launch grid=4 block=32
  if (T == 0 && B < 2) atomicAdd(&n[0], 1);  //@
  if (T == 0 && B > 1) n[0] = n[0] + 1;  //@
}

// ---- between blocks
KERNEL(overlapping_blocks) {  // launch grid=4 block=64
  y[B * 60 + T] = B;  //@ @
}
KERNEL(neighbour_in_place) {  // launch grid=4 block=64
  int i = B * 64 + T;
  float left = i ? y[i - 1] : 0.f;  //@
  y[i] = left + 1.f;  //@
}
KERNEL(last_block_no_fence) {  // launch grid=6 block=32
  __shared__ bool last;
  if (T == 0) {
    y[B] = x[B];  //@
    last = atomicAdd(f, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && T == 0) {
    float s = 0;
    for (int i = 0; i < gridDim.x; i++) s += y[i];  //@
    y[100] = s;
  }
}
KERNEL(last_block_fence_after) {  // launch grid=6 block=32
  __shared__ bool last;
  y[B * 32 + T] = x[T];  //@
  if (T == 0) {
    __threadfence();  // by one thread, before the others are known to be done
    last = atomicAdd(f, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (last) y[1000 + T] = y[((B + 1) % 6) * 32 + (T ^ 1)];  //@
}
KERNEL(flag_no_release_fence) {  // launch grid=2 block=32
  if (T == 0 && B == 0) {
    y[0] = x[0];  //@
    *(volatile unsigned*)f = 1u;
  }
  if (T == 0 && B == 1) {
    while (*(volatile unsigned*)f == 0) __nanosleep(20);
    __threadfence();
    y[1] = y[0];  //@
  }
}
KERNEL(flag_no_acquire_fence) {  // launch grid=2 block=32
  if (T == 0 && B == 0) {
    y[0] = x[0];  //@
    __threadfence();
    *(volatile unsigned*)f = 1u;
  }
  if (T == 0 && B == 1) {
    while (*(volatile unsigned*)f == 0) __nanosleep(20);
    y[1] = y[0];  //@
  }
}
KERNEL(flag_block_fence) {  // launch grid=2 block=32
  if (T == 0 && B == 0) {
    y[0] = x[0];  //@
    __threadfence_block();
    atomicExch(f, 1u);
  }
  if (T == 0 && B == 1) {
    while (atomicAdd(f, 0u) == 0) __nanosleep(20);
    __threadfence();
    y[1] = y[0];  //@
  }
}
KERNEL(store_after_fence) {  // launch grid=2 block=32
  if (T == 0 && B == 0) {
    __threadfence();
    y[0] = x[0];  //@
    atomicExch(f, 1u);
  }
  if (T == 0 && B == 1) {
    while (atomicAdd(f, 0u) == 0) __nanosleep(20);
    __threadfence();
    y[1] = y[0];  //@
  }
}
KERNEL(split_row_no_fence) {  // launch grid=6 block=32
  const int K = 3, row = B / K;
  if (T == 0) {
    __stcg(&y[B], x[B]);  //@
    atomicAdd(&f[row], 1u);
    while (*(volatile unsigned*)&f[row] < (unsigned)K) __nanosleep(20);
    __threadfence();
  }
  __syncwarp();
  float s = T < K ? __ldcg(&y[row * K + T]) : 0.f;  //@
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
  if (T == 0) y[100 + B] = s;
}
KERNEL(look_back_no_fence) {  // launch grid=8 block=32
  if (T == 0) {
    y[B] = B ? 0.f : x[0];  //@
    if (B) {
      while (((volatile unsigned*)f)[B - 1] == 0) __nanosleep(20);
      __threadfence();
      y[B] = y[B - 1] + x[B];  //@
    }
    ((volatile unsigned*)f)[B] = 1;
  }
}
KERNEL(cluster_no_sync) {  // launch grid=4 block=32 cluster=2
  cg::cluster_group c = cg::this_cluster();
  __shared__ float mine;
  if (T == 0) mine = x[B];  //@
  __syncthreads();
  if (T == 0) y[B] = *c.map_shared_rank(&mine, (int)c.block_rank() ^ 1);  //@
  c.sync();
}
KERNEL(grid_no_sync) {  // launch grid=4 block=32 cooperative
  int i = B * 32 + T;
  y[i] = x[i];  //@
  __syncthreads();
  y[1000 + i] = y[127 - i];  //@
  cg::this_grid().sync();
}
KERNEL(ping_pong_one_sync) {  // launch grid=2 block=32 cooperative
  float *a = x, *b = y;
  int i = B * 32 + T;
  for (int k = 0; k < 2; k++) {
    if (k == 0) cg::this_grid().sync();
    b[i] = a[(i + 33) & 63] + 1.f;  //@ @
    float* t = a; a = b; b = t;
  }
}

// ---- asynchronous copies
KERNEL(copy_no_barrier) {  // launch grid=1 block=32
  __shared__ __align__(16) float s[128];
  __pipeline_memcpy_async(&s[T * 4], &x[T * 4], 16);  //@
  __pipeline_commit();
  __pipeline_wait_prior(0);
  y[T] = s[127 - T];  //@
}
KERNEL(copy_into_stage_in_use) {  // launch grid=1 block=64
  __shared__ float s[2][64];
  __pipeline_memcpy_async(&s[0][T], &x[T], 4);
  __pipeline_commit();
  float sum = 0;
  for (int i = 0; i < 3; i++) {
    __pipeline_memcpy_async(&s[(i + 1) & 1][T], &x[64 + 64 * i + T], 4);  //@
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    sum += s[i & 1][T ^ 40];  //@
  }
  __pipeline_wait_prior(0);
  y[T] = sum;
}
KERNEL(copy_not_waited) {  // launch grid=1 block=32
  __shared__ __align__(16) float4 s[32];
  __pipeline_memcpy_async(&s[T], (float4*)x + T, 16);  //@
  __pipeline_commit();
  y[T] = s[T].x;  //@
}
KERNEL(ldmatrix_no_syncwarp) {  // launch grid=1 block=32
  __shared__ __align__(128) __half a[16][16];
  for (int i = T; i < 256; i += 32) a[i / 16][i % 16] = __float2half(x[i]);  //@
  unsigned r[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"  //@
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"((unsigned)__cvta_generic_to_shared(&a[T % 16][8 * (T / 16)])));
  n[T] = r[0] ^ r[3];
}
