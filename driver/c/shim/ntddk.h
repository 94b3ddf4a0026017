/* ntddk.h: a driver's way to ask for the kernel; here, for the stand-in. */
#ifndef NDKSHIM_NTDDK_H
#define NDKSHIM_NTDDK_H
#include <ndkshim.h>
#endif
