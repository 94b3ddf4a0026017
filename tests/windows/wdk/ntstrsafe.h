/* The last header that wdk-sys includes: what is newer than mingw-w64's wdm.h. */
#pragma once
#include <ddk/ntstrsafe.h>
typedef ULONGLONG POOL_FLAGS;
