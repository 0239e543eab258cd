// NVRTC has the device functions of <stdlib.h> built in; this file only lets the include succeed.
#pragma once
#include "stddef.h"
