// Included before every source that NVRTC builds: the names nvcc gives a .cu file without an include.
#pragma once
#include "stdint.h"
#include "math.h"
