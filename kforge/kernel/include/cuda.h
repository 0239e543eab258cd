// Of the driver's header what device code needs under NVRTC, which cannot compile the whole: the type of a tensor map.
#pragma once

typedef struct CUtensorMap_st {
    alignas(64) unsigned long long opaque[16];
} CUtensorMap;
