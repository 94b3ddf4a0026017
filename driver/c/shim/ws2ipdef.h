/* ws2ipdef.h: socket addresses, which ndkbase.h has. */
#ifndef NDKSHIM_WS2IPDEF_H
#define NDKSHIM_WS2IPDEF_H
#include <ndkbase.h>
#endif
