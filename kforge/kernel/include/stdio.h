// NVRTC has the device functions of <stdio.h> built in; this file only lets the include succeed.
#pragma once
#include "stddef.h"
