// size_t, ptrdiff_t and nullptr_t for NVRTC, which has size_t and ptrdiff_t built in.
#pragma once
#ifndef NULL
#define NULL 0
#endif
namespace std {
using ::ptrdiff_t;
using ::size_t;
}  // namespace std
