// What every kernel sees first (precompiled). NVIDIA's headers give types and host code, ours the device side.
#pragma once
#include <cuda_runtime.h>

#include <cuComplex.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <device_launch_parameters.h>
#include <math_constants.h>

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "atomics.h"
#include "entry.h"
#include "half.h"
#include "intrinsics.h"
#include "memory.h"
#include "ptx.h"
#include "hopper.h"
#include "runtime.h"
#include "shared.h"
#include "unset.h"
#include "warp.h"

// Qualifiers that mean nothing on the host.
#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __managed__
#undef __grid_constant__
#undef __launch_bounds__
#undef __cluster_dims__
#undef __block_size__
#undef __maxnreg__
#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __block_size__(...)
#define __maxnreg__(...)

#if defined(__SANITIZE_THREAD__)
#define threadIdx (::kforge_emulator::traced_thread_index())
#define blockIdx (::kforge_emulator::traced_block_index())
#define blockDim (::kforge_emulator::traced_block_dim())
#define gridDim (::kforge_emulator::traced_grid_dim())
#else
#define threadIdx (::kforge_emulator::current->index)
#define blockIdx (::kforge_emulator::current->block->index)
#define blockDim (::kforge_emulator::current->block->dim)
#define gridDim (::kforge_emulator::current->block->grid)
#endif
#define warpSize 32
#define __CUDA_ARCH__ 900
