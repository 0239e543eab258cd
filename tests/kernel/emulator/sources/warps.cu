// Barriers, warp operations and shared memory.
#include <cuda_runtime.h>
#include <cuda_fp16.h>

extern "C" __global__ void shuffles(const int* x, int* y, int width) {
  int t = threadIdx.x, v = x[t];
  y[t] = __shfl_sync(0xffffffffu, v, 5, width);
  y[blockDim.x + t] = __shfl_up_sync(0xffffffffu, v, 3, width);
  y[2 * blockDim.x + t] = __shfl_down_sync(0xffffffffu, v, 3, width);
  y[3 * blockDim.x + t] = __shfl_xor_sync(0xffffffffu, v, 9, width);
}

extern "C" __global__ void shuffle_types(double* out) {
  int t = threadIdx.x;
  unsigned all = 0xffffffffu;
  double total = __shfl_xor_sync(all, (double)t, 1);
  total += __shfl_xor_sync(all, (long long)t, 1) * 100.0;
  total += __half2float(__shfl_xor_sync(all, __float2half((float)t), 1)) * 10000.0;
  total += __shfl_xor_sync(all, (float)t, 1) * 1e6;
  total += (double)__shfl_xor_sync(all, (unsigned long long)t, 1) * 1e8;
  out[t] = total + __shfl_xor_sync(all, (unsigned)t, 1) * 1e10;
}

extern "C" __global__ void votes(unsigned* out) {
  unsigned t = threadIdx.x, lane = t & 31, all = 0xffffffffu;
  unsigned* row = out + t * 12;
  row[0] = __ballot_sync(all, lane % 3 == 0);
  row[1] = __any_sync(all, lane == 40);
  row[2] = __all_sync(all, lane < 32);
  row[3] = __match_any_sync(all, lane % 4);
  int same;
  row[4] = __match_all_sync(all, 7, &same);
  row[5] = same;
  row[5] += 2 * (__match_all_sync(all, lane, &same) != 0);
  row[5] += 4 * same;
  row[6] = __reduce_add_sync(all, lane);
  row[7] = __reduce_max_sync(all, (int)lane - 40);
  row[8] = __reduce_xor_sync(all, lane * 3);
  unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;  // two groups that meet apart from each other
  row[9] = lane < 16 ? __reduce_add_sync(half, lane) : __reduce_min_sync(half, lane);
  if (lane < 7) row[10] = __activemask(); else row[10] = 0;
  row[11] = __shfl_sync(all, lane < 16 ? __shfl_xor_sync(0xffffu, lane, 1) : 99u, 3);
}

extern "C" __global__ void barrier_votes(int* out) {
  int t = threadIdx.x;
  out[t * 3] = __syncthreads_count(t % 5 == 0);
  out[t * 3 + 1] = __syncthreads_and(t >= 0) + 2 * __syncthreads_and(t > 0);
  out[t * 3 + 2] = __syncthreads_or(t == 77) + 2 * __syncthreads_or(t > 100000);
}

// Several declarations in one statement, a scalar, an alignment, a union, a template-dependent size.
template <typename T, int N>
__device__ T block_sum(T v) {
  __shared__ T part[N / 32], total;
  for (int o = 16; o; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
  __syncthreads();
  if (threadIdx.x == 0) {
    total = 0;
    for (int i = 0; i < N / 32; i++) total += part[i];
  }
  __syncthreads();
  return total;
}
template <typename T, int N>
__global__ void __launch_bounds__(N) sums(const T* __restrict__ x, T* __restrict__ y) {
  T a = block_sum<T, N>(x[blockIdx.x * N + threadIdx.x]);
  T b = block_sum<T, N>(a);
  y[blockIdx.x * N + threadIdx.x] = b;
}

extern "C" __global__ void transpose(const float* x, float* y, int n) {
  __shared__ __align__(16) float tile[32][33];
  int r = blockIdx.y * 32, c = blockIdx.x * 32;
  for (int i = threadIdx.y; i < 32; i += blockDim.y) tile[i][threadIdx.x] = x[(r + i) * n + c + threadIdx.x];
  __syncthreads();
  for (int i = threadIdx.y; i < 32; i += blockDim.y) y[(c + i) * n + r + threadIdx.x] = tile[threadIdx.x][i];
}

extern "C" __global__ void dynamic(const float* x, float* y, int n) {
  extern __shared__ __align__(16) unsigned char raw[];
  float* values = reinterpret_cast<float*>(raw);
  int* places = (int*)(values + n);
  __shared__ union { float f[4]; unsigned u[4]; } both;
  if (threadIdx.x < 4) both.u[threadIdx.x] = 0x3f800000u;
  for (int i = threadIdx.x; i < n; i += blockDim.x) values[i] = x[i], places[n - 1 - i] = i;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = values[places[i]] * both.f[i & 3];
}

__shared__ int at_file_scope[4];
extern "C" __global__ void file_scope(int* y) {
  if (threadIdx.x < 4) at_file_scope[threadIdx.x] = 10 * threadIdx.x;
  __syncthreads();
  y[threadIdx.x] = at_file_scope[threadIdx.x & 3];
}

#define DECLARE_IN_MACRO(name) __shared__ int name[64]
extern "C" __global__ void in_macro(int* y) {
  DECLARE_IN_MACRO(hidden);
  hidden[threadIdx.x] = threadIdx.x;
  __syncthreads();
  y[threadIdx.x] = hidden[63 - threadIdx.x];
}

// Shared memory that nobody wrote is NaN.
extern "C" __global__ void unwritten(float* y) {
  __shared__ float s[32];
  extern __shared__ float d[];
  y[threadIdx.x] = s[threadIdx.x] + 1.0f;
  y[32 + threadIdx.x] = d[threadIdx.x];
}

// Threads that return before a barrier do not hold up the others.
extern "C" __global__ void early_exit(int* y, int n) {
  __shared__ int s[256];
  int t = threadIdx.x;
  if (t >= n) return;
  s[t] = t;
  __syncthreads();
  y[t] = s[n - 1 - t] + __reduce_add_sync(__activemask(), 1);
}

extern "C" __global__ void named_barriers(int* y) {
  __shared__ int box[32];
  int t = threadIdx.x;
  if (t < 32) {
    box[t] = t * t;
    asm volatile("bar.arrive 1, 64;");
  } else {
    asm volatile("bar.sync %0, %1;" ::"r"(1), "r"(64));
    y[t - 32] = box[63 - t];
  }
}

// One warp spins on a flag in shared memory until the other sets it.
extern "C" __global__ void handoff(int* y) {
  __shared__ int ready;
  if (threadIdx.x == 0) ready = 0;
  __syncthreads();
  if (threadIdx.x >= 32) {
    if (threadIdx.x == 32) atomicExch(&ready, 7);
  } else {
    while (atomicAdd(&ready, 0) == 0) {}
    y[threadIdx.x] = ready;
  }
}
