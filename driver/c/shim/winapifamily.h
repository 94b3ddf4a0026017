/* winapifamily.h: which programs may see a declaration; here, all. */
#ifndef NDKSHIM_WINAPIFAMILY_H
#define NDKSHIM_WINAPIFAMILY_H
#define WINAPI_PARTITION_DESKTOP 1
#define WINAPI_FAMILY_PARTITION(Partitions) (Partitions)
#endif
