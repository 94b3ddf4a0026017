/* The first header that wdk-sys includes. Three functions that mingw-w64 10 writes out inline are
 * imports of the kernel in the headers of Windows 10. */
#pragma once
#define KeGetCurrentIrql inline_KeGetCurrentIrql
#define KfRaiseIrql inline_KfRaiseIrql
#define KeLowerIrql inline_KeLowerIrql
#include <ddk/ntifs.h>
#undef KeGetCurrentIrql
#undef KfRaiseIrql
#undef KeLowerIrql
NTKERNELAPI KIRQL NTAPI KeGetCurrentIrql(VOID);
NTKERNELAPI KIRQL NTAPI KfRaiseIrql(KIRQL NewIrql);
NTKERNELAPI VOID NTAPI KeLowerIrql(KIRQL NewIrql);
