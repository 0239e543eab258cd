// Kernels that must fail, each in its own way.
#include <cuda_runtime.h>
#include <cooperative_groups.h>
#include <cassert>

extern "C" __global__ void divergent(float* p) {
  if (threadIdx.x < 16)
    __syncthreads();  // line 8
  else
    __syncthreads();  // line 10
  p[threadIdx.x] = 1;
}
extern "C" __global__ void deadlock(float* p) {
  if (threadIdx.x < 16) __syncthreads();       // line 14
  else __shfl_sync(0xffffffffu, 1, 0);         // line 15
  p[threadIdx.x] = 1;
}
extern "C" __global__ void not_in_mask(int* p) { p[threadIdx.x] = __shfl_sync(0xffffu, 1, 0); }  // line 18
extern "C" __global__ void different_masks(int* p) {
  p[threadIdx.x] = __reduce_add_sync(threadIdx.x < 16 ? 0xffffffffu : 0xfffffff0u, 1);  // line 20
}
extern "C" __global__ void exits_early(float* p) {
  if (threadIdx.x < 16) __syncthreads();  // line 23
  p[threadIdx.x] = 1;
}
extern "C" __global__ void endless(int* p) {
  for (;;) __syncthreads();  // line 27
}
extern "C" __global__ void spins(int* p) {
  while (atomicAdd(p, 0) == 0) {}  // line 30
}
extern "C" __global__ void asserts(int* p) { assert(p[0] == 1 && "must be one"); }  // line 32
extern "C" __global__ void traps(int* p) { __trap(); }                              // line 33
extern "C" __global__ void grid_wide(int* p) { cooperative_groups::this_grid().sync(); }
extern "C" __global__ void tensor_core(float* p) {
  asm volatile("tcgen05.wait::ld.sync.aligned;\n" ::: "memory");  // line 36
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %0, 0; }" ::"r"(1));
}
extern "C" __global__ void fine(float* p) { p[threadIdx.x] = 2; }
extern "C" __global__ void wrong_wmma_rank(float* p) {
  __shared__ float s;
  cooperative_groups::this_cluster().map_shared_rank(&s, 3)[0] = 1;  // line 42
}
extern "C" __global__ void vector_read(float* p) {
  p[63] = reinterpret_cast<const float4*>(p + 5 * threadIdx.x)->w;  // line 45
}
extern "C" __global__ void vector_write(float* p) {
  *reinterpret_cast<float2*>(p + 1) = make_float2(1, 2);  // line 48
}
