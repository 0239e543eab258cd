// Limits of the integer types for NVRTC.
#pragma once
#ifndef CHAR_BIT
#define CHAR_BIT   8
#define SCHAR_MIN  (-128)
#define SCHAR_MAX  127
#define CHAR_MIN   SCHAR_MIN
#define CHAR_MAX   SCHAR_MAX
#define UCHAR_MAX  255
#define SHRT_MIN   (-SHRT_MAX - 1)
#define SHRT_MAX   0x7fff
#define USHRT_MAX  0xffff
#define INT_MIN    (-INT_MAX - 1)
#define INT_MAX    0x7fffffff
#define UINT_MAX   0xffffffff
#define LONG_MAX   LLONG_MAX
#define LONG_MIN   (-LONG_MAX - 1)
#define ULONG_MAX  ULLONG_MAX
#define LLONG_MAX  0x7fffffffffffffffLL
#define LLONG_MIN  (-LLONG_MAX - 1)
#define ULLONG_MAX 0xffffffffffffffffUL
#endif
