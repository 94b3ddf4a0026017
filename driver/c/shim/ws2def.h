/* ws2def.h: socket addresses, which ndkbase.h has. */
#ifndef NDKSHIM_WS2DEF_H
#define NDKSHIM_WS2DEF_H
#include <ndkbase.h>
#endif
