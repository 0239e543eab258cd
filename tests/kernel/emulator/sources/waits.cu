// Blocks that wait for each other by spinning.
#include <cuda_runtime.h>
#include <cuda_pipeline.h>

__device__ __forceinline__ float warp_max(float v) {
  for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
  return v;
}
__device__ __forceinline__ float warp_sum(float v) {
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
  return v;
}

// Softmax of rows of which each is shared by K blocks; blocks wait for the row's other blocks, later ones included.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) split_row(const float* __restrict__ x, float* __restrict__ y, int rows, int cols,
                                                   int K, float2* part, unsigned* arrived) {
  extern __shared__ float4 buf[];
  __shared__ float red[2][32];
  __shared__ unsigned ticket;
  __shared__ float2 all;
  if (threadIdx.x == 0) ticket = atomicAdd(arrived + rows, 1u);
  __syncthreads();
  const int row = ticket / K, rank = ticket % K;
  const int n = cols / 4, per = (n + K - 1) / K, lo = min(rank * per, n), count = min(per, n - lo);
  const int lane = threadIdx.x & 31, w = threadIdx.x >> 5;
  const float4* p = (const float4*)(x + (size_t)row * cols) + lo;
  float4* q = (float4*)(y + (size_t)row * cols) + lo;
  float m = -INFINITY, s = 0;
  for (int c = threadIdx.x; c < count; c += BLOCK) __pipeline_memcpy_async(buf + c, p + c, 16);
  __pipeline_commit();
  __pipeline_wait_prior(0);  // each thread reads back only what it loaded itself
  for (int c = threadIdx.x; c < count; c += BLOCK) m = fmaxf(m, fmaxf(fmaxf(buf[c].x, buf[c].y), fmaxf(buf[c].z, buf[c].w)));
  m = warp_max(m);
  if (lane == 0) red[0][w] = m;
  __syncthreads();
  m = warp_max(lane < BLOCK / 32 ? red[0][lane] : -INFINITY);
  for (int c = threadIdx.x; c < count; c += BLOCK) {
    float4 t = buf[c];
    buf[c] = t = make_float4(expf(t.x - m), expf(t.y - m), expf(t.z - m), expf(t.w - m));
    s += (t.x + t.y) + (t.z + t.w);
  }
  s = warp_sum(s);
  if (lane == 0) red[1][w] = s;
  __syncthreads();
  if (w == 0) {
    s = warp_sum(lane < BLOCK / 32 ? red[1][lane] : 0.f);
    float2* mine = part + (size_t)row * K;
    float M = -INFINITY, T = 0;
    if (lane == 0) {
      __stcg(mine + rank, make_float2(m, s));
      __threadfence();
      atomicAdd(&arrived[row], 1u);
      while (*(volatile unsigned*)&arrived[row] < (unsigned)K) __nanosleep(20);
      __threadfence();
    }
    __syncwarp();
    for (int k = lane; k < K; k += 32) {
      float2 t = __ldcg(mine + k);
      float N = fmaxf(M, t.x);
      T = T * expf(M - N) + t.y * expf(t.x - N);
      M = N;
    }
    float A = warp_max(M);
    T = warp_sum(T * expf(M - A));
    if (lane == 0) all = make_float2(A, T);
  }
  __syncthreads();
  const float f = expf(m - all.x) / all.y;
  for (int c = threadIdx.x; c < count; c += BLOCK) q[c] = make_float4(buf[c].x * f, buf[c].y * f, buf[c].z * f, buf[c].w * f);
}

// Scan by decoupled look-back in ticket order; flag and value travel in one 64-bit word.
extern "C" __global__ void look_back(const int* x, int* y, int n, unsigned long long* status, unsigned* tickets) {
  __shared__ int s[64], ticket, before;
  int t = threadIdx.x;
  if (t == 0) ticket = atomicAdd(tickets, 1u);
  __syncthreads();
  int i = ticket * 64 + t;
  s[t] = i < n ? x[i] : 0;
  __syncthreads();
  for (int o = 1; o < 64; o <<= 1) {
    int a = t >= o ? s[t - o] : 0;
    __syncthreads();
    s[t] += a;
    __syncthreads();
  }
  if (t == 0) {
    atomicExch(&status[ticket], 1ull << 32 | (unsigned)s[63]);
    int sum = 0;
    for (int k = ticket - 1; k >= 0; k--) {
      unsigned long long word;
      while ((word = *(volatile unsigned long long*)&status[k]) == 0) __nanosleep(20);
      sum += (int)word;
      if (word >> 32 == 2) break;
    }
    atomicExch(&status[ticket], 2ull << 32 | (unsigned)(sum + s[63]));
    before = sum;
  }
  __syncthreads();
  if (i < n) y[i] = s[t] + before;
}

// Each block waits for the next one.
extern "C" __global__ void from_the_last(int* flag, int* y) {
  if (threadIdx.x == 0) {
    if (blockIdx.x + 1 < gridDim.x)
      while (((volatile int*)flag)[blockIdx.x + 1] == 0) __nanosleep(100);
    __threadfence();
    y[blockIdx.x] = blockIdx.x + 1 < gridDim.x ? y[blockIdx.x + 1] + 1 : 1;
    __threadfence();
    ((volatile int*)flag)[blockIdx.x] = 1;
  }
}
// As above, spinning through atomics alone.
extern "C" __global__ void by_atomics(int* flag, int* y) {
  if (threadIdx.x == 0) {
    if (blockIdx.x + 1 < gridDim.x)
      while (atomicAdd(&flag[blockIdx.x + 1], 0) == 0) {}
    y[blockIdx.x] = blockIdx.x;
    __threadfence();
    atomicExch(&flag[blockIdx.x], 1);
  }
}
extern "C" __global__ void never(int* flag) {
  if (blockIdx.x == 1 && threadIdx.x == 3)
    while (*(volatile int*)flag == 0) __nanosleep(100);  // line 127
  __syncthreads();                                       // line 128
}
extern "C" __global__ void patient(int* y) {
  for (int i = 0; i < 5000; i++) __nanosleep(1);
  atomicAdd(y, 1);
}
// Every thread waits until all blocks have come.
extern "C" __global__ void all_at_once(unsigned* come) {
  if (threadIdx.x == 0) atomicAdd(come, 1u);
  while (*(volatile unsigned*)come < gridDim.x) __nanosleep(20);
}
