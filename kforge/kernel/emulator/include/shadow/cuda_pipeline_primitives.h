// The pipeline primitives under their other name.
#pragma once
#include "cuda_pipeline.h"
