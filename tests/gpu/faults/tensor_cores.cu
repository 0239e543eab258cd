// c = a b in half precision. fault: on the ordinary units. good: by wmma, fed from registers (the sums
// are not the product: what counts here is that the units are busy).
#include <cuda_fp16.h>
#include <mma.h>

extern "C" __global__ void fault(const __half* a, const __half* b, __half* c, int n) {
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) sum += __half2float(a[row * n + k]) * __half2float(b[k * n + column]);
    c[row * n + column] = __float2half(sum);
}

extern "C" __global__ void good(const __half* a, const __half* b, __half* c, int n) {
    using namespace nvcuda;
    int row = blockIdx.y * 16, column = (blockIdx.x * blockDim.y + threadIdx.y) * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, __half> sum[4];
    for (int j = 0; j < 4; ++j) wmma::fill_fragment(sum[j], __float2half(0.0f));
    wmma::load_matrix_sync(left, a + row * n, n);
    wmma::load_matrix_sync(right, b + column, n);
    for (int k = 0; k < n; k += 16) {
#pragma unroll
        for (int j = 0; j < 4; ++j) wmma::mma_sync(sum[j], left, right, sum[j]);
    }
    for (int j = 1; j < 4; ++j)
        for (int i = 0; i < sum[0].num_elements; ++i) sum[0].x[i] = __hadd(sum[0].x[i], sum[j].x[i]);
    wmma::store_matrix_sync(c + row * n + column, sum[0], n, wmma::mem_row_major);
}
