/* wdm.h: a driver's way to ask for the kernel; here, for the stand-in. */
#ifndef NDKSHIM_WDM_H
#define NDKSHIM_WDM_H
#include <ndkshim.h>
#endif
