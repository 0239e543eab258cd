// The few calls of the CUDA driver that the guard allocator makes, over host memory: its bookkeeping runs without a GPU.
#include <cstdlib>
#include <cstring>

static int mode = 0;
int capturing = 0, held = 0, waits = 0, limit = 1 << 30;

extern "C" {
int cuMemAlloc_v2(unsigned long long* p, size_t n) {
    if (n > size_t(limit)) return 2;
    if (capturing && mode != 2) return 900;
    ++held;
    *p = reinterpret_cast<unsigned long long>(aligned_alloc(512, (n + 511) / 512 * 512));
    return 0;
}
int cuMemFree_v2(unsigned long long p) { --held; free(reinterpret_cast<void*>(p)); return 0; }
int cuMemsetD8Async(unsigned long long p, unsigned char b, size_t n, void* s) {
    if (!s) return 1;  // the stream of the candidate would record it into its graph
    memset(reinterpret_cast<void*>(p), b, n);
    return 0;
}
int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t n) { memcpy(to, reinterpret_cast<void*>(from), n); return 0; }
int cuStreamCreate(void** s, unsigned flags) { *s = malloc(1); return flags == 1 ? 0 : 1; }
int cuStreamSynchronize(void*) { return capturing && mode != 2 ? 900 : 0; }
int cuCtxSynchronize() { ++waits; return capturing ? 900 : 0; }
int cuThreadExchangeStreamCaptureMode(int* m) { int old = mode; mode = *m; *m = old; return 0; }
int cuStreamIsCapturing(void*, int* state) { *state = capturing; return 0; }
int cuCtxGetCurrent(void** c) { *c = &mode; return 0; }
int cuDevicePrimaryCtxRetain(void** c, int) { *c = &mode; return 0; }
int cuCtxSetCurrent(void*) { return 0; }
}
