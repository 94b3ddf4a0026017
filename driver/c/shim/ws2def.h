/* ws2def.h: socket addresses; ndkbase.h has those of IP. */
#ifndef NDKSHIM_WS2DEF_H
#define NDKSHIM_WS2DEF_H
#include <ndkbase.h>

/* Room for an address of any family. */
typedef struct _SOCKADDR_STORAGE {
    ADDRESS_FAMILY ss_family;
    CHAR Padding[6];
    LONG64 Alignment;
    CHAR Rest[112];
} SOCKADDR_STORAGE, *PSOCKADDR_STORAGE;
#endif
