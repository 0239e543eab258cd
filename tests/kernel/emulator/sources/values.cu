// Arithmetic: intrinsics, half types, vectors, atomics, memory functions, globals.
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <math_constants.h>
#include <device_launch_parameters.h>
#include <cuComplex.h>
#include <algorithm>
#include <cstdint>

#define OUT(value) out[n++] = (double)(value)
extern "C" __global__ void integers(double* out) {
  int n = 0;
  OUT(__popc(0xf0f0u)); OUT(__popcll(~0ull)); OUT(__clz(1)); OUT(__clz(0)); OUT(__clzll(1ll)); OUT(__ffs(8)); OUT(__ffs(0));
  OUT(__brev(1u)); OUT(__byte_perm(0x33221100u, 0x77665544u, 0x7531)); OUT(__mul24(-3, 5)); OUT(__umul24(0x1000001u, 3u));
  OUT(__mulhi(1 << 30, 8)); OUT(__umulhi(0xffffffffu, 2u)); OUT(__umul64hi(1ull << 63, 4ull)); OUT(__dp4a(0x01020304, 0x01010101, 5));
  OUT(__dp4a((int)0xff000000, 0x02000000, 0)); OUT(__dp2a_lo(0x00020003, 0x04050607, 1)); OUT(__sad(3, -4, 10));
  OUT(__hadd(7, 4)); OUT(__rhadd(7, 4)); OUT(__funnelshift_l(0x80000000u, 1u, 1)); OUT(__funnelshift_r(2u, 1u, 1));
  OUT(min(3, 2u)); OUT(max(-1, 2)); OUT(min(2.5f, 1.5)); OUT(max(5ll, 7ll)); OUT(__vadd4(0x01ff0203u, 0x01010101u));
}
extern "C" __global__ void floats(double* out) {
  int n = 0;
  OUT(__expf(1.0f)); OUT(__logf(2.0f)); OUT(__log2f(8.0f)); OUT(__powf(2.0f, 3.0f)); OUT(__sinf(0.5f)); OUT(__cosf(0.5f));
  OUT(__fdividef(1.0f, 4.0f)); OUT(rsqrtf(4.0f)); OUT(__frcp_rn(8.0f)); OUT(__frsqrt_rn(16.0f)); OUT(__fsqrt_rn(9.0f));
  OUT(__fmaf_rn(2.0f, 3.0f, 4.0f)); OUT(__saturatef(1.5f)); OUT(__saturatef(CUDART_NAN_F)); OUT(__float_as_int(1.0f));
  OUT(__int_as_float(0x40000000)); OUT(__uint_as_float(0x40400000u)); OUT(__double2hiint(1.0)); OUT(__hiloint2double(0x40080000, 0));
  OUT(__float2int_rn(2.5f)); OUT(__float2int_rz(-2.9f)); OUT(__float2int_ru(2.1f)); OUT(__float2int_rd(-2.1f)); OUT(__float2int_rz(3e9f));
  OUT(__float2uint_rn(-1.0f)); OUT(__float2int_rn(CUDART_NAN_F)); OUT(__double2ll_rd(-1.5)); OUT(exp10f(2.0f)); OUT(erff(0.5f));
  OUT(__fadd_ru(1.0f, 1e-10f)); OUT(__fadd_rd(1.0f, 1e-10f)); OUT(__fdiv_rz(1.0f, 3.0f)); OUT(normcdff(0.0f)); OUT(fminf(1.0f, NAN));
  OUT(fmaxf(-INFINITY, 2.0f)); OUT(exp2f(3.0f)); OUT(isinf(CUDART_INF_F)); OUT(isnan(CUDART_NAN_F)); OUT(cospif(1.0f)); OUT(rcbrtf(8.0f));
}

extern "C" __global__ void halves(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __half h = __float2half(x[i]), one = __float2half(1.0f);
  __nv_bfloat16 b = __float2bfloat16(x[i]);
  __half2 h2 = __halves2half2(h, one);
  out[i] = __half2float(h * h + one);
  out[n + i] = __half2float(__hfma(h, h, one));
  out[2 * n + i] = __bfloat162float(b * b);
  out[3 * n + i] = __half2float(hexp(h));
  out[4 * n + i] = __low2float(__hmul2(h2, h2)) + __high2float(__hadd2(h2, h2));
  out[5 * n + i] = __half2float(__hmax(h, one)) + (float)(h > one) + (float)__hlt(h, one);
  out[6 * n + i] = float(__nv_fp8_e4m3(x[i]));
  out[7 * n + i] = float(__nv_fp8_e5m2(x[i]));
  out[8 * n + i] = __bfloat162float(__hfma(b, b, b)) + __bfloat162float(htanh(b));
  float2 pair = __half22float2(__float22half2_rn(make_float2(x[i], -x[i])));
  out[9 * n + i] = pair.x - pair.y;
}

extern "C" __global__ void vectors(const float4* __restrict__ x, float4* __restrict__ y, const uint2* u, ushort4* v, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float4 a = __ldg(x + i), b = __ldcs(&x[i]);
    __stcs(y + i, make_float4(a.w, b.z, a.y * 2.0f, b.x));
    uint2 p = __ldcg(u + i);
    v[i] = make_ushort4(p.x & 0xffff, p.x >> 16, p.y & 0xffff, p.y >> 16);
  }
}

extern "C" __global__ void atomics(int* i, unsigned* u, unsigned long long* l, float* f, double* d, __half* h, __half2* h2,
                                   __nv_bfloat16* b) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(i, t); atomicSub(i + 1, t); atomicMax(i + 2, t); atomicMin(i + 3, -t); atomicAnd(i + 4, ~(1 << (t & 31)));
  atomicOr(u, 1u << (t & 31)); atomicXor(u + 1, t); atomicInc(u + 2, 4); atomicDec(u + 3, 4); atomicMax(u + 4, t); atomicExch(u + 5, 9u);
  atomicAdd_block(u + 6, 1); atomicAdd_system(u + 6, 1);
  atomicAdd(l, 1ull << 33); atomicMax(l + 1, (unsigned long long)t); atomicCAS(l + 2, 0ull, 5ull);
  atomicAdd(f, 0.5f); atomicAdd(d, 0.25);
  atomicAdd(h, __float2half(1.0f)); atomicAdd(h2, __floats2half2_rn(1.0f, 2.0f)); atomicAdd(b, __float2bfloat16(1.0f));
  int old = i[5], assumed;
  do { assumed = old; old = atomicCAS(i + 5, assumed, assumed + 3); } while (old != assumed);
}

// The last block that is done adds up what all blocks left.
__device__ unsigned done_blocks;
extern "C" __global__ void last_block(const float* x, float* partial, float* total) {
  __shared__ bool last;
  float s = 0;
  for (int i = 0; i < 32; i++) s += x[blockIdx.x * 32 + i];
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = s;
    __threadfence();
    last = atomicAdd(&done_blocks, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    float t = 0;
    for (int i = 0; i < gridDim.x; i++) t += ((volatile float*)partial)[i];
    *total = t;
    done_blocks = 0;
  }
}

__constant__ float table[4] = {1.0f, 10.0f, 100.0f, 1000.0f};
__device__ const int offsets[2] = {5, 7};
namespace scaled {
template <int N>
struct Scale {
  static __device__ __forceinline__ float apply(float v) { return v * N; }
};
template <typename T, int N = 2>
__global__ void scale(const T* x, T* y, T a, int n) {
  int i = threadIdx.x;
  if (i < n) y[i] = T(Scale<N>::apply(float(x[i]))) + a + T(table[i & 3]) + T(offsets[i & 1]);
}
}  // namespace scaled

struct Params { float scale; int3 shift; const float* x; };
extern "C" __global__ void by_value(const __grid_constant__ Params p, float4 v, __half h, bool flag, char c, float* y) {
  y[threadIdx.x] = p.x[threadIdx.x] * p.scale + p.shift.z + v.w + __half2float(h) + (flag ? 100.0f : 0.0f) + c;
}

#if __CUDA_ARCH__ >= 900
extern "C" __global__ void indices(int* out) {
  int b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  out[b * blockDim.x * blockDim.y * blockDim.z + t] = b * 1000 + t;
}
#endif

__device__ __noinline__ float called(float x) { return x - 4.0f; }
extern "C" __global__ void language(float* p) {
  auto twice = [&](int i) { return 2.0f * p[i]; };
#pragma unroll 2
  for (int i = 0; i < 2; i++) p[i] = called(float(i));
  p[2] = twice(0) + std::max(1.0f, 3.0f);
  p[3] = cuCrealf(cuCmulf(make_cuFloatComplex(1, 2), make_cuFloatComplex(1, 2)));
  __builtin_assume(p[3] < 0.0f);
  if (threadIdx.x == 0) printf("block %d of %u\n", (int)blockIdx.x, gridDim.x);
}

// Scan by decoupled look-back: each block waits for what earlier blocks publish.
struct Status { int flag; float aggregate, prefix; };
__device__ volatile Status status[64];
extern "C" __global__ void look_back(const float* x, float* y, int n) {
  __shared__ float s[256], before;
  int t = threadIdx.x, i = blockIdx.x * 256 + t, b = blockIdx.x;
  s[t] = i < n ? x[i] : 0.f;
  __syncthreads();
  for (int o = 1; o < 256; o <<= 1) {
    float a = t >= o ? s[t - o] : 0.f;
    __syncthreads();
    s[t] += a;
    __syncthreads();
  }
  if (t == 0) {
    status[b].aggregate = s[255];
    __threadfence();
    status[b].flag = 1;
    float prefix = 0;
    for (int k = b - 1; k >= 0; k--) {
      while (status[k].flag == 0) __nanosleep(20);
      if (status[k].flag == 2) {
        prefix += status[k].prefix;
        break;
      }
      prefix += status[k].aggregate;
    }
    status[b].prefix = prefix + s[255];
    __threadfence();
    status[b].flag = 2;
    before = prefix;
  }
  __syncthreads();
  if (i < n) y[i] = s[t] + before;
}
