// Correct kernels: no access races. `// launch` gives the dimensions.
#include <cuda_runtime.h>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cuda/atomic>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>
namespace cg = cooperative_groups;
#define KERNEL(name) extern "C" __global__ void name(float* x, float* y, int* n, unsigned* f)
#define T threadIdx.x
#define B blockIdx.x

// ---- block barriers
KERNEL(reduction) {  // launch grid=3 block=128
  __shared__ float s[128];
  s[T] = x[B * 128 + T];
  __syncthreads();
  for (int o = 64; o; o >>= 1) {
    if (T < o) s[T] += s[T + o];
    __syncthreads();
  }
  if (T == 0) y[B] = s[0];
}
__device__ float block_sum(float v) {
  __shared__ float part[32];
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
  __syncthreads();
  if ((T & 31) == 0) part[T >> 5] = v;
  __syncthreads();
  v = T < blockDim.x / 32 ? part[T] : 0.f;
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
  if (T == 0) part[0] = v;
  __syncthreads();
  return part[0];
}
KERNEL(layer_norm) {  // launch grid=4 block=128
  float v = x[B * 128 + T];
  float mean = block_sum(v) / 128.f;
  float variance = block_sum((v - mean) * (v - mean)) / 128.f;
  y[B * 128 + T] = (v - mean) * rsqrtf(variance + 1e-5f);
}
KERNEL(double_buffer) {  // launch grid=2 block=64
  __shared__ float s[2][64];
  s[0][T] = x[T];
  float sum = 0;
  for (int i = 0; i < 4; i++) {
    __syncthreads();
    s[(i + 1) & 1][T] = x[64 * i + T];
    sum += s[i & 1][63 - T];
  }
  y[B * 64 + T] = sum;
}
KERNEL(transpose) {  // launch grid=2 block=16x16
  __shared__ float tile[16][17];
  tile[threadIdx.y][T] = x[B * 256 + threadIdx.y * 16 + T];
  __syncthreads();
  y[B * 256 + threadIdx.y * 16 + T] = tile[T][threadIdx.y];
}
KERNEL(scan) {  // launch grid=1 block=64
  __shared__ float s[64];
  s[T] = x[T];
  __syncthreads();
  for (int o = 1; o < 64; o <<= 1) {
    float a = T >= o ? s[T - o] : 0.f;
    __syncthreads();
    s[T] += a;
    __syncthreads();
  }
  y[T] = s[T];
}
KERNEL(stencil) {  // launch grid=2 block=64
  __shared__ float s[66];
  s[T + 1] = x[B * 64 + T];
  if (T == 0) s[0] = s[65] = 0.f;
  __syncthreads();
  y[B * 64 + T] = s[T] + s[T + 2];
}
KERNEL(matmul) {  // launch grid=2x2 block=16x16
  __shared__ float a[16][16], b[16][16];
  int row = blockIdx.y * 16 + threadIdx.y, column = B * 16 + T;
  float sum = 0;
  for (int k = 0; k < 32; k += 16) {
    a[threadIdx.y][T] = x[row * 32 + k + T];
    b[threadIdx.y][T] = x[(k + threadIdx.y) * 32 + column];
    __syncthreads();
    for (int i = 0; i < 16; i++) sum += a[threadIdx.y][i] * b[i][T];
    __syncthreads();
  }
  y[row * 32 + column] = sum;
}
KERNEL(bytes_and_halves) {  // launch grid=2 block=64
  __shared__ unsigned char c[64];
  __shared__ __half h[64];
  c[T] = T;
  h[T] = __float2half(x[T]);
  c[T] += 1;
  __syncthreads();
  y[B * 64 + T] = c[63 - T] + __half2float(h[T ^ 1]);
}
KERNEL(early_exit) {  // launch grid=2 block=64
  __shared__ float s[64];
  if (T >= 40) return;
  s[T] = x[T];
  __syncthreads();
  y[B * 64 + T] = s[39 - T];
}
KERNEL(named_barriers) {  // launch grid=1 block=128
  __shared__ float s[128];
  s[T] = x[T];
  if (T < 64)
    asm volatile("bar.sync 1, 64;" ::: "memory");
  else
    asm volatile("bar.sync 2, 64;" ::: "memory");
  y[T] = s[T ^ 32];
}
KERNEL(producer_consumer) {  // launch grid=1 block=64
  __shared__ float s[32];
  for (int i = 0; i < 3; i++) {
    if (T < 32) {
      s[T] = x[i * 32 + T];
      asm volatile("bar.arrive 1, 64;" ::: "memory");
      asm volatile("bar.sync 2, 64;" ::: "memory");
    } else {
      asm volatile("bar.sync 1, 64;" ::: "memory");
      y[i * 32 + T - 32] = s[63 - T];
      asm volatile("bar.arrive 2, 64;" ::: "memory");
    }
  }
}
KERNEL(split_barrier) {  // launch grid=2 block=64
  auto block = cg::this_thread_block();
  __shared__ float s[64];
  s[T] = x[T];
  auto token = block.barrier_arrive();
  float own = x[T + 64] * 2.f;
  block.barrier_wait(static_cast<decltype(token)&&>(token));
  y[B * 64 + T] = s[63 - T] + own;
}

// ---- warps
KERNEL(warp_reduction) {  // launch grid=1 block=64
  __shared__ float s[64];
  s[T] = x[T];
  __syncwarp();
  for (int o = 16; o; o >>= 1) {
    float v = (T & 31) < o ? s[T + o] : 0.f;
    __syncwarp();
    s[T] += v;
    __syncwarp();
  }
  y[T] = s[T & 32];
}
KERNEL(half_warps) {  // launch grid=1 block=32
  __shared__ float s[32];
  s[T] = x[T];
  __syncwarp(T < 16 ? 0xffffu : 0xffff0000u);
  y[T] = s[T ^ 15];
}
KERNEL(tiles) {  // launch grid=1 block=64
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  __shared__ float s[64];
  s[T] = x[T];
  tile.sync();
  float v = s[T ^ 7];
  y[T] = cg::reduce(tile, v, cg::plus<float>());
}
KERNEL(vote_orders) {  // launch grid=1 block=32
  __shared__ int s[32];
  s[T] = T;
  unsigned odd = __ballot_sync(~0u, T & 1);
  n[T] = s[31 - T] + (int)odd;
}
KERNEL(wmma_product) {  // launch grid=1 block=32
  using namespace nvcuda;
  __shared__ __half a[256], b[256];
  for (int i = T; i < 256; i += 32) a[i] = b[i] = __float2half(x[i]);
  __syncwarp();
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> fb;
  wmma::fill_fragment(c, 0.f);
  wmma::load_matrix_sync(fa, a, 16);
  wmma::load_matrix_sync(fb, b, 16);
  wmma::mma_sync(c, fa, fb, c);
  wmma::store_matrix_sync(y, c, 16, wmma::mem_row_major);
}
KERNEL(ldmatrix) {  // launch grid=1 block=32
  __shared__ __align__(128) __half a[16][16];
  for (int k = 0; k < 2; k++) {
    for (int i = T; i < 256; i += 32) a[i / 16][i % 16] = __float2half(x[i]);
    __syncwarp();
    unsigned r[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((unsigned)__cvta_generic_to_shared(&a[T % 16][8 * (T / 16)])));
    n[T] = r[0] ^ r[3];
  }
}

// ---- atomics
KERNEL(histogram) {  // launch grid=4 block=64
  __shared__ int h[16];
  if (T < 16) h[T] = 0;
  __syncthreads();
  atomicAdd(&h[(int)fabsf(x[B * 64 + T] * 4.f) & 15], 1);
  __syncthreads();
  if (T < 16) atomicAdd(&n[T], h[T]);
}
KERNEL(atomic_maximum) {  // launch grid=4 block=64
  atomicMax(&n[0], (int)(x[B * 64 + T] * 100.f));
  atomicAdd(&y[0], x[B * 64 + T]);
}
KERNEL(compare_and_swap) {  // launch grid=3 block=32
  unsigned old = *(volatile unsigned*)f, assumed;
  do old = atomicCAS(f, assumed = old, assumed + 1u); while (old != assumed);
}
KERNEL(append) {  // launch grid=3 block=32
  if (x[B * 32 + T] > 0.f) y[atomicAdd(f, 1u)] = x[B * 32 + T];
}

// ---- between blocks
KERNEL(grid_stride) {  // launch grid=3 block=64
  for (int i = B * 64 + T; i < 1000; i += gridDim.x * 64) y[i] = x[i] + x[999 - i];
}
KERNEL(last_block) {  // launch grid=6 block=64
  __shared__ bool last;
  float s = block_sum(x[B * 64 + T]);
  if (T == 0) {
    y[B] = s;
    __threadfence();
    last = atomicAdd(f, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (last) {
    float t = T < gridDim.x ? y[T] : 0.f;
    t = block_sum(t);
    if (T == 0) y[100] = t, f[0] = 0;
  }
}
KERNEL(last_block_all_fence) {  // launch grid=6 block=32
  __shared__ bool last;
  y[B * 32 + T] = x[T];
  __threadfence();
  __syncthreads();
  if (T == 0) last = atomicAdd(f, 1u) == gridDim.x - 1;
  __syncthreads();
  if (last) y[1000 + T] = y[((B + 1) % 6) * 32 + (T ^ 1)];
}
KERNEL(last_block_barrier_first) {  // launch grid=6 block=32
  __shared__ bool last;
  y[B * 32 + T] = x[T];
  __syncthreads();
  if (T == 0) {
    __threadfence();
    last = atomicInc(f, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last) y[1000 + T] = ((volatile float*)y)[((B + 1) % 6) * 32 + (T ^ 1)];
}
KERNEL(flag) {  // launch grid=2 block=32
  if (T == 0 && B == 0) {
    while (*(volatile unsigned*)f == 0) __nanosleep(20);
    __threadfence();
    y[1] = y[0];
  }
  if (T == 0 && B == 1) {
    y[0] = x[0];
    __threadfence();
    *(volatile unsigned*)f = 1u;
  }
}
KERNEL(flag_for_a_block) {  // launch grid=2 block=64
  if (B == 0) {
    y[T] = x[T];
    __syncthreads();
    if (T == 0) {
      __threadfence();
      atomicExch(f, 1u);
    }
  } else {
    if (T == 0) {
      while (*(volatile unsigned*)f == 0) __nanosleep(20);
      __threadfence();
    }
    __syncthreads();
    y[100 + T] = y[63 - T];
  }
}
KERNEL(flag_in_shared_memory) {  // launch grid=1 block=64
  __shared__ float value;
  __shared__ volatile int ready;
  if (T == 0) ready = 0;
  __syncthreads();
  if (T == 32) {
    value = x[0];
    __threadfence_block();
    ready = 1;
  }
  if (T == 0) {
    while (!ready) __nanosleep(20);
    __threadfence_block();
    y[0] = value;
  }
}
KERNEL(acquire_release) {  // launch grid=2 block=32
  if (T == 0 && B == 1) {
    y[0] = x[0];
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(f), "r"(1u) : "memory");
  }
  if (T == 0 && B == 0) {
    unsigned seen;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(f) : "memory");
    while (!seen);
    y[1] = y[0];
  }
}
KERNEL(atomic_ref) {  // launch grid=2 block=32
  cuda::atomic_ref<unsigned, cuda::thread_scope_device> ready(*f);
  if (T == 0 && B == 0) {
    y[0] = x[0];
    ready.store(1u, cuda::memory_order_release);
  }
  if (T == 0 && B == 1) {
    while (ready.load(cuda::memory_order_acquire) == 0) {}
    y[1] = y[0];
  }
}
KERNEL(mutex) {  // launch grid=5 block=32
  if (T == 0) {
    while (atomicCAS(f, 0u, 1u) != 0) __nanosleep(20);
    __threadfence();
    n[0] = n[0] + 1;
    __threadfence();
    atomicExch(f, 0u);
  }
}
KERNEL(split_row) {  // launch grid=9 block=64
  __shared__ unsigned ticket;
  __shared__ float all;
  const int K = 3;
  if (T == 0) ticket = atomicAdd(f + 100, 1u);
  __syncthreads();
  const int row = ticket / K, rank = ticket % K;
  float s = block_sum(x[row * 192 + rank * 64 + T]);
  if (T < 32) {
    if (T == 0) {
      __stcg(&y[row * K + rank], s);
      __threadfence();
      atomicAdd(&f[row], 1u);
      while (*(volatile unsigned*)&f[row] < (unsigned)K) __nanosleep(20);
      __threadfence();
    }
    __syncwarp();
    float t = T < K ? __ldcg(&y[row * K + T]) : 0.f;
    for (int o = 16; o; o >>= 1) t += __shfl_xor_sync(~0u, t, o);
    if (T == 0) all = t;
  }
  __syncthreads();
  y[1000 + ticket * 64 + T] = x[row * 192 + rank * 64 + T] / all;
}
KERNEL(packed_flag) {  // launch grid=6 block=32
  unsigned long long* slot = (unsigned long long*)f;
  if (T == 0) *(volatile unsigned long long*)&slot[B] = ~(unsigned long long)__float_as_uint(x[B]);
  if (T < gridDim.x) {
    unsigned long long word;
    while ((word = *(volatile unsigned long long*)&slot[T]) == 0) __nanosleep(20);
    y[B * 32 + T] = __uint_as_float((unsigned)~word);
  }
}
struct Status { int flag; float aggregate, prefix; };
KERNEL(look_back) {  // launch grid=10 block=64
  volatile Status* status = (volatile Status*)f;
  __shared__ float s[64], before;
  s[T] = x[B * 64 + T];
  __syncthreads();
  for (int o = 1; o < 64; o <<= 1) {
    float a = T >= o ? s[T - o] : 0.f;
    __syncthreads();
    s[T] += a;
    __syncthreads();
  }
  if (T == 0) {
    status[B].aggregate = s[63];
    __threadfence();
    status[B].flag = 1;
    float prefix = 0;
    for (int k = (int)B - 1; k >= 0; k--) {
      while (status[k].flag == 0) __nanosleep(20);
      __threadfence();
      if (status[k].flag == 2) {
        __threadfence();
        prefix += status[k].prefix;
        break;
      }
      prefix += status[k].aggregate;
    }
    status[B].prefix = prefix + s[63];
    __threadfence();
    status[B].flag = 2;
    before = prefix;
  }
  __syncthreads();
  y[B * 64 + T] = s[T] + before;
}
KERNEL(cluster_exchange) {  // launch grid=4 block=32 cluster=2
  cg::cluster_group c = cg::this_cluster();
  __shared__ float mine[32];
  mine[T] = x[B * 32 + T];
  c.sync();
  y[B * 32 + T] = c.map_shared_rank(mine, (int)c.block_rank() ^ 1)[31 - T];
  c.sync();
  mine[T] = 0.f;
}
KERNEL(cluster_split_barrier) {  // launch grid=4 block=32 cluster=4
  cg::cluster_group c = cg::this_cluster();
  __shared__ float mine;
  if (T == 0) mine = x[B];
  auto token = c.barrier_arrive();
  float own = x[T];
  c.barrier_wait(static_cast<decltype(token)&&>(token));
  float total = 0;
  for (int r = 0; r < 4; r++) total += *c.map_shared_rank(&mine, r);
  y[B * 32 + T] = total + own;
  c.sync();
}
KERNEL(grid_sync) {  // launch grid=4 block=32 cooperative
  int i = B * 32 + T;
  y[i] = x[i];
  cg::this_grid().sync();
  y[1000 + i] = y[127 - i];
}
KERNEL(ping_pong) {  // launch grid=2 block=32 cooperative
  float *a = x, *b = y;
  int i = B * 32 + T;
  for (int k = 0; k < 4; k++) {
    b[i] = a[(i + 33) & 63] + 1.f;
    cg::this_grid().sync();
    float* t = a; a = b; b = t;
  }
}

// ---- asynchronous copies
KERNEL(pipeline) {  // launch grid=1 block=64
  __shared__ float s[2][64];
  __pipeline_memcpy_async(&s[0][T], &x[T], 4);
  __pipeline_commit();
  float sum = 0;
  for (int i = 0; i < 3; i++) {
    __pipeline_memcpy_async(&s[(i + 1) & 1][T], &x[64 + 64 * i + T], 4);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    sum += s[i & 1][T ^ 40];
    __syncthreads();
  }
  __pipeline_wait_prior(0);
  y[T] = sum;
}
KERNEL(copy_own_words) {  // launch grid=2 block=64
  __shared__ __align__(16) float4 s[64];
  __pipeline_memcpy_async(&s[T], (float4*)x + T, 16);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  ((float4*)y)[B * 64 + T] = s[T];
}
KERNEL(group_copy) {  // launch grid=1 block=64
  extern __shared__ float d[];  // shared=512
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, d, x, 512);
  cg::wait(block);
  y[T] = d[127 - T] + d[T];
}

// ---- device globals
__device__ unsigned arrived;
__device__ float parts[64];
__constant__ float weights[4] = {1.f, 2.f, 3.f, 4.f};
KERNEL(global_variables) {  // launch grid=5 block=32
  if (T == 0) {
    parts[B] = x[B] * weights[B & 3];
    __threadfence();
    if (atomicAdd(&arrived, 1u) == gridDim.x - 1) {
      __threadfence();
      float s = 0;
      for (int i = 0; i < gridDim.x; i++) s += parts[i];
      y[0] = s;
      arrived = 0;
    }
  }
}

// ---- what the programming guide does
KERNEL(read_then_swap) {  // launch grid=3 block=64
  unsigned long long* total = (unsigned long long*)f;
  unsigned long long old = *total, assumed;
  do {
    assumed = old;
    old = atomicCAS(total, assumed, (unsigned long long)__double_as_longlong(x[T] + __longlong_as_double((long long)assumed)));
  } while (assumed != old);
}
KERNEL(atomic_load) {  // launch grid=1 block=64
  __shared__ int ready;
  if (T == 0) ready = 0;
  __syncthreads();
  if (T == 40) atomicExch(&ready, 7);
  if (T < 32) {
    int seen;
    while ((seen = atomicAdd(&ready, 0)) == 0) {}
    n[T] = seen;
  }
}
