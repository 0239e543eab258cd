// assert() for NVRTC: device code reports and traps through __assert_fail, which NVRTC declares.
#pragma once
#ifdef NDEBUG
#undef assert
#define assert(condition) ((void)0)
#elif !defined(assert)
#define assert(condition) ((condition) ? (void)0 : __assert_fail(#condition, __FILE__, __LINE__, __func__))
#endif
