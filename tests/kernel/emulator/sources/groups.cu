// Cooperative groups, clusters, matrix fragments, asynchronous copies and inline PTX.
#include <cuda_runtime.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda_pipeline.h>
#include <mma.h>
#include <cuda_bf16.h>
namespace cg = cooperative_groups;
using namespace nvcuda;

extern "C" __global__ void tiles(const int* x, int* y, int n) {
  cg::thread_block block = cg::this_thread_block();
  auto tile = cg::tiled_partition<8>(block);
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
  int t = block.thread_rank(), v = x[t];
  y[t] = cg::reduce(tile, v, cg::plus<int>());
  y[n + t] = cg::reduce(warp, v, cg::greater<int>()) * 100 + cg::reduce(tile, v, cg::less<int>());
  y[2 * n + t] = tile.shfl_xor(v, 1) + 1000 * tile.shfl_down(v, 2) + 1000000 * (int)tile.meta_group_rank();
  y[3 * n + t] = cg::inclusive_scan(tile, v) * 1000 + cg::exclusive_scan(tile, v);
  y[4 * n + t] = tile.ballot(v & 1) + 1000 * tile.thread_rank() + 100000 * block.size();
  block.sync();
  if (v & 1) {
    cg::coalesced_group odd = cg::coalesced_threads();
    y[5 * n + t] = odd.size() * 100 + odd.thread_rank();
  } else {
    y[5 * n + t] = -1;
  }
}

extern "C" __global__ void grid_sync(int* x, int* y) {
  cg::grid_group grid = cg::this_grid();
  int i = grid.thread_rank(), n = grid.size();
  x[i] = i * i;
  grid.sync();
  y[i] = x[n - 1 - i];
}

// Sum over a row by all blocks of a cluster, through each other's shared memory.
__device__ void sum_in_cluster(const float* x, float* y, int per_block) {
  cg::cluster_group cluster = cg::this_cluster();
  __shared__ float mine;
  extern __shared__ float row[];
  int rank = cluster.block_rank();
  const float* p = x + (size_t)blockIdx.x * per_block;
  for (int i = threadIdx.x; i < per_block; i += blockDim.x) row[i] = p[i];
  __syncthreads();
  if (threadIdx.x == 0) {
    float s = 0;
    for (int i = 0; i < per_block; i++) s += row[i];
    mine = s;
  }
  cluster.sync();
  float total = 0;
  for (int r = 0; r < (int)cluster.num_blocks(); r++) total += *cluster.map_shared_rank(&mine, r);
  float* next = cluster.map_shared_rank(row, (rank + 1) % cluster.num_blocks());
  for (int i = threadIdx.x; i < per_block; i += blockDim.x) y[(size_t)blockIdx.x * per_block + i] = next[i] / total;
  cluster.sync();
}

extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_sum(const float* x, float* y, int per_block) {
  sum_in_cluster(x, y, per_block);
}
extern "C" __global__ void cluster_sum_at_launch(const float* x, float* y, int per_block) {
  sum_in_cluster(x, y, per_block);
}

template <typename T, typename Acc>
__global__ void wmma_product(const T* a, const T* b, Acc* c, int n) {
  int w = threadIdx.x / 32, tr = w / (n / 16), tc = w % (n / 16);
  wmma::fragment<wmma::accumulator, 16, 16, 16, Acc> sum;
  wmma::fill_fragment(sum, Acc(0));
  for (int k = 0; k < n; k += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major> fb;
    wmma::load_matrix_sync(fa, a + tr * 16 * n + k, n);
    wmma::load_matrix_sync(fb, b + tc * 16 * n + k, n);
    wmma::mma_sync(sum, fa, fb, sum);
  }
  wmma::store_matrix_sync(c + tr * 16 * n + tc * 16, sum, n, wmma::mem_row_major);
}

// One 16x8 tile by ldmatrix and mma.sync: a is 16x16, b is 8x16 (n by k), both in half.
#define LOAD_A(r, address)                                                                       \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"              \
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                                  \
               : "r"(address))
extern "C" __global__ void ptx_product(const __half* a, const __half* b, float* c) {
  __shared__ __align__(128) __half sa[16][16], sb[8][16];
  int lane = threadIdx.x;
  unsigned to = (unsigned)__cvta_generic_to_shared(&sa[lane / 2][8 * (lane % 2)]);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(a + lane * 8));
  for (int i = lane; i < 128; i += 32) sb[i / 16][i % 16] = b[i];
  asm volatile("cp.async.commit_group;\n" ::: "memory");
  asm volatile("cp.async.wait_group %0;\n" ::"n"(0) : "memory");
  __syncwarp();
  unsigned ra[4], rb[2];
  float d[4] = {0.f, 0.f, 0.f, 0.f};
  LOAD_A(ra, (unsigned)__cvta_generic_to_shared(&sa[lane % 16][8 * (lane / 16)]));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(rb[0]), "=r"(rb[1])
               : "r"((unsigned)__cvta_generic_to_shared(&sb[lane % 8][8 * (lane / 8 % 2)])));
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
  int row = lane / 4, column = 2 * (lane % 4);
  c[row * 8 + column] = d[0], c[row * 8 + column + 1] = d[1];
  c[(row + 8) * 8 + column] = d[2], c[(row + 8) * 8 + column + 1] = d[3];
}

extern "C" __global__ void ptx_scalars(const float* x, float* y, unsigned* u) {
  float v = x[threadIdx.x], r;
  unsigned lane, packed;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(2.0f), "f"(1.0f));
  float4 q;
  asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(q.x), "=f"(q.y), "=f"(q.z), "=f"(q.w) : "l"(x));
  y[threadIdx.x] = r + q.w;
  u[threadIdx.x] = lane + packed;
}

// Waits are what makes copies arrive: without one, shared memory is still poison.
extern "C" __global__ void pipeline(const float* x, float* y, int wait) {
  __shared__ __align__(16) float s[128];
  __pipeline_memcpy_async(&s[threadIdx.x * 4], &x[threadIdx.x * 4], 16);
  __pipeline_commit();
  if (wait) __pipeline_wait_prior(0);
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void group_copy(const float* x, float* y, int n) {
  extern __shared__ float s[];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, s, x, sizeof(float) * n);
  cg::wait(block);
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = s[n - 1 - i];
}
