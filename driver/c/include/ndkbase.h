/*
 * ndkbase.h: the base types of Windows that the NDK uses, for C on 64-bit Linux.
 *
 * Written by the test `headers` of the package ndk-c from driver/abi; edit headers/ndkbase.h.in.
 *
 * A ULONG has 32 bits here, too. Sockets are those of Windows (AF_INET6 is 23), so a file that
 * includes this header cannot include <sys/socket.h> or <netinet/in.h>, neither before nor after.
 */
#ifndef NDKBASE_H
#define NDKBASE_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#error "Windows has these types in its own headers"
#endif
#if defined(AF_INET6)
#error "the sockets of this system have been included, and those of Windows differ"
#endif
/* Behind this header they would redefine AF_INET6 in silence; the type that they begin with tells. */
#define sa_family_t \
    _Pragma("GCC error \"ndkbase.h has the sockets of Windows, and those of this system differ\"") \
    sa_family_t

#ifdef __cplusplus
extern "C" {
#endif

/* There is one calling convention. */
#define NTAPI
#define CONST const
#define VOID void

typedef char CHAR, *PCHAR;
typedef unsigned char UCHAR, *PUCHAR;
typedef int16_t SHORT;
typedef int32_t LONG, *PLONG, INT32;
typedef long long LONGLONG, LONG64, INT64;
typedef unsigned long long ULONGLONG;
typedef uint8_t UINT8;
typedef uint16_t UINT16;
typedef intptr_t LONG_PTR;
typedef wchar_t WCHAR, *PWSTR;
typedef const wchar_t *PCWSTR;
typedef const char *PCSTR;
typedef void *HANDLE, **PHANDLE;

typedef uint8_t BOOLEAN;

typedef uint16_t USHORT;

/* 32 bits also where the host's c_ulong is wider. */
typedef uint32_t ULONG;

typedef uint32_t UINT32;

typedef uint64_t UINT64;

typedef uint64_t ULONG64;

typedef size_t ULONG_PTR;

typedef size_t SIZE_T;

typedef void *PVOID;
typedef BOOLEAN *PBOOLEAN;
typedef USHORT *PUSHORT;
typedef ULONG *PULONG;
typedef SIZE_T *PSIZE_T;
typedef ULONG_PTR *PULONG_PTR, KAFFINITY;

/* TRUE; any other non-zero value means the same. */
#define TRUE 1

#define FALSE 0

/* "No limit" in interrupt moderation. */
#define MAXULONG 0xFFFFFFFF

/* A page of an MDL, of a fast registration and of a logical address mapping, in bytes. */
#define PAGE_SIZE 0x1000

/* A status code: its two highest bits are 0 for success, 1 information, 2 warning, 3 error. */
typedef LONG NTSTATUS, *PNTSTATUS;
typedef NTSTATUS NDIS_STATUS;

/* True for success and information, STATUS_PENDING included. */
#define NT_SUCCESS(Status) ((NTSTATUS)(Status) >= 0)
#define NT_INFORMATION(Status) ((ULONG)(Status) >> 30 == 1)
#define NT_WARNING(Status) ((ULONG)(Status) >> 30 == 2)
#define NT_ERROR(Status) ((ULONG)(Status) >> 30 == 3)

#define STATUS_SUCCESS ((NTSTATUS)0x00000000)
#define STATUS_PENDING ((NTSTATUS)0x00000103)
#define STATUS_BUFFER_OVERFLOW ((NTSTATUS)0x80000005)
#define STATUS_DEVICE_BUSY ((NTSTATUS)0x80000011)
#define STATUS_NO_MORE_ENTRIES ((NTSTATUS)0x8000001A)
#define STATUS_ACCESS_VIOLATION ((NTSTATUS)0xC0000005)
#define STATUS_INVALID_PARAMETER ((NTSTATUS)0xC000000D)
#define STATUS_INVALID_DEVICE_REQUEST ((NTSTATUS)0xC0000010)
#define STATUS_BUFFER_TOO_SMALL ((NTSTATUS)0xC0000023)
#define STATUS_INVALID_PARAMETER_MIX ((NTSTATUS)0xC0000030)
#define STATUS_DATA_OVERRUN ((NTSTATUS)0xC000003C)
#define STATUS_DATA_ERROR ((NTSTATUS)0xC000003E)
#define STATUS_SHARING_VIOLATION ((NTSTATUS)0xC0000043)
#define STATUS_INSUFFICIENT_RESOURCES ((NTSTATUS)0xC000009A)
#define STATUS_DEVICE_NOT_READY ((NTSTATUS)0xC00000A3)
#define STATUS_IO_TIMEOUT ((NTSTATUS)0xC00000B5)
#define STATUS_NOT_SUPPORTED ((NTSTATUS)0xC00000BB)
#define STATUS_BAD_NETWORK_NAME ((NTSTATUS)0xC00000CC)
#define STATUS_INTERNAL_ERROR ((NTSTATUS)0xC00000E5)
#define STATUS_CANCELLED ((NTSTATUS)0xC0000120)
#define STATUS_REMOTE_RESOURCES ((NTSTATUS)0xC000013D)
#define STATUS_INVALID_ADDRESS ((NTSTATUS)0xC0000141)
#define STATUS_INVALID_DEVICE_STATE ((NTSTATUS)0xC0000184)
#define STATUS_INVALID_BUFFER_SIZE ((NTSTATUS)0xC0000206)
#define STATUS_TOO_MANY_ADDRESSES ((NTSTATUS)0xC0000209)
#define STATUS_ADDRESS_ALREADY_EXISTS ((NTSTATUS)0xC000020A)
#define STATUS_CONNECTION_DISCONNECTED ((NTSTATUS)0xC000020C)
#define STATUS_CONNECTION_REFUSED ((NTSTATUS)0xC0000236)
#define STATUS_CONNECTION_INVALID ((NTSTATUS)0xC000023A)
#define STATUS_CONNECTION_ACTIVE ((NTSTATUS)0xC000023B)
#define STATUS_NETWORK_UNREACHABLE ((NTSTATUS)0xC000023C)
#define STATUS_HOST_UNREACHABLE ((NTSTATUS)0xC000023D)
#define STATUS_REQUEST_ABORTED ((NTSTATUS)0xC0000240)
#define STATUS_CONNECTION_ABORTED ((NTSTATUS)0xC0000241)
#define STATUS_DEVICE_REMOVED ((NTSTATUS)0xC00002B6)
#define STATUS_IMPLEMENTATION_LIMIT ((NTSTATUS)0xC000042B)
#define NDIS_STATUS_BAD_VERSION ((NTSTATUS)0xC0010004)
#define NDIS_STATUS_ADAPTER_NOT_READY ((NTSTATUS)0xC0010011)
#define NDIS_STATUS_SUCCESS STATUS_SUCCESS
#define NDIS_STATUS_RESOURCES STATUS_INSUFFICIENT_RESOURCES

/* A number of 64 bits, as one and in halves. */
typedef union _LARGE_INTEGER {
    struct {
        ULONG LowPart;
        LONG HighPart;
    };
    struct {
        ULONG LowPart;
        LONG HighPart;
    } u;
    LONGLONG QuadPart;
} LARGE_INTEGER, *PLARGE_INTEGER;

/* A bus address as the adapter sees it. */
typedef LARGE_INTEGER PHYSICAL_ADDRESS, *PPHYSICAL_ADDRESS;

/* Identifies an extension interface. */
typedef struct _GUID {
    uint32_t Data1;
    uint16_t Data2;
    uint16_t Data3;
    uint8_t Data4[8];
} GUID;

/* A set of processors within one group. */
typedef struct _GROUP_AFFINITY {
    size_t Mask;
    USHORT Group;
    USHORT Reserved[3];
} GROUP_AFFINITY;
typedef GROUP_AFFINITY *PGROUP_AFFINITY;

typedef struct _MDL MDL, *PMDL;
/* A memory descriptor list: one buffer, page by page. The page frame numbers follow it in memory. */
typedef struct _MDL {
    MDL *Next;
    int16_t Size;
    int16_t MdlFlags;
    void *Process;
    /*
     * The system address of the first byte; valid if MDL_MAPPED_TO_SYSTEM_VA or
     * MDL_SOURCE_IS_NONPAGED_POOL is set.
     */
    void *MappedSystemVa;
    /* The page of the buffer's first byte, in the address space it was described from. */
    void *StartVa;
    uint32_t ByteCount;
    uint32_t ByteOffset;
} MDL;

#define MDL_MAPPED_TO_SYSTEM_VA 0x0001
#define MDL_PAGES_LOCKED 0x0002
#define MDL_SOURCE_IS_NONPAGED_POOL 0x0004

/* Address family, as in the first two bytes of every socket address. */
typedef uint16_t ADDRESS_FAMILY;
/* IPv4. */
#define AF_INET 2
/* IPv6. */
#define AF_INET6 23

/* The common beginning of all socket addresses; what follows depends on the family. */
typedef struct _SOCKADDR {
    ADDRESS_FAMILY sa_family;
    uint8_t sa_data[14];
} SOCKADDR;
typedef SOCKADDR *PSOCKADDR;

/* An IPv4 address in network order. */
typedef struct _IN_ADDR {
    union {
        struct {
            UCHAR s_b1, s_b2, s_b3, s_b4;
        } S_un_b;
        struct {
            USHORT s_w1, s_w2;
        } S_un_w;
        ULONG S_addr;
    } S_un;
} IN_ADDR, *PIN_ADDR;
#define s_addr S_un.S_addr

/* An IPv4 socket address. */
typedef struct _SOCKADDR_IN {
    ADDRESS_FAMILY sin_family;
    /* In network order. */
    uint16_t sin_port;
    IN_ADDR sin_addr;
    uint8_t sin_zero[8];
} SOCKADDR_IN;
typedef SOCKADDR_IN *PSOCKADDR_IN;

/* An IPv6 address in network order. */
typedef struct _IN6_ADDR {
    union {
        UCHAR Byte[16];
        USHORT Word[8];
    } u;
} IN6_ADDR, *PIN6_ADDR;
#define s6_addr u.Byte

/* An IPv6 socket address. */
typedef struct _SOCKADDR_IN6 {
    ADDRESS_FAMILY sin6_family;
    /* In network order. */
    uint16_t sin6_port;
    uint32_t sin6_flowinfo;
    IN6_ADDR sin6_addr;
    uint32_t sin6_scope_id;
} SOCKADDR_IN6;
typedef SOCKADDR_IN6 *PSOCKADDR_IN6;

/* Room for an address of either family. */
typedef union _SOCKADDR_INET {
    SOCKADDR_IN Ipv4;
    SOCKADDR_IN6 Ipv6;
    ADDRESS_FAMILY si_family;
} SOCKADDR_INET;
typedef SOCKADDR_INET *PSOCKADDR_INET;

#ifdef __cplusplus
}
#endif

#endif
