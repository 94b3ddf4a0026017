/* pool.c: pool and MDLs. */
#define _GNU_SOURCE
#include "internal.h"

#include <ndkrocev2.h>
#include <stdio.h>
#include <stdlib.h>

/* A block of pool. It is described apart from its bytes, so that their bounds are those of the allocation. */
typedef struct _BLOCK {
    struct _BLOCK *Next;
    PVOID Address;
    SIZE_T Bytes;
    ULONG Tag;
} BLOCK;

#define BUCKETS 1024

static pthread_mutex_t Lock = PTHREAD_MUTEX_INITIALIZER;
static BLOCK *Blocks[BUCKETS];
static LONG Mdls;
static LONG LockedMdls;

static BLOCK **BucketOf(PVOID Address)
{
    return &Blocks[((ULONG_PTR)Address >> 4) % BUCKETS];
}

static PVOID AllocateBlock(SIZE_T Bytes, ULONG Tag, BOOLEAN IsZeroed)
{
    BLOCK *Block = Allocate(sizeof(*Block));
    BLOCK **Bucket;

    Block->Bytes = Bytes;
    Block->Tag = Tag;
    if (posix_memalign(&Block->Address, Bytes >= PAGE_SIZE ? PAGE_SIZE : 16, Bytes) != 0) {
        free(Block);
        return NULL;
    }
    memset(Block->Address, IsZeroed ? 0 : 0xC5, Bytes);
    Bucket = BucketOf(Block->Address);
    pthread_mutex_lock(&Lock);
    Block->Next = *Bucket;
    *Bucket = Block;
    pthread_mutex_unlock(&Lock);
    return Block->Address;
}

PVOID ExAllocatePool2(POOL_FLAGS Flags, SIZE_T NumberOfBytes, ULONG Tag)
{
    POOL_FLAGS Kinds = POOL_FLAG_NON_PAGED | POOL_FLAG_NON_PAGED_EXECUTE | POOL_FLAG_PAGED;

    REQUIRE((Flags & Kinds) != 0, "names no kind of pool");
    REQUIRE(Tag != 0, "has no tag");
    if (Flags & POOL_FLAG_PAGED) {
        REQUIRE_IRQL(APC_LEVEL);
    }
    REQUIRE_IRQL(DISPATCH_LEVEL);
    if (NumberOfBytes == 0) {
        return NULL;
    }
    return AllocateBlock(NumberOfBytes, Tag, (Flags & POOL_FLAG_UNINITIALIZED) == 0);
}

PVOID ExAllocatePoolZero(POOL_TYPE PoolType, SIZE_T NumberOfBytes, ULONG Tag)
{
    return ExAllocatePool2(
        PoolType == PagedPool ? POOL_FLAG_PAGED : POOL_FLAG_NON_PAGED, NumberOfBytes, Tag);
}

PVOID ExAllocatePoolWithTag(POOL_TYPE PoolType, SIZE_T NumberOfBytes, ULONG Tag)
{
    POOL_FLAGS Kind = PoolType == PagedPool ? POOL_FLAG_PAGED : POOL_FLAG_NON_PAGED;

    return ExAllocatePool2(Kind | POOL_FLAG_UNINITIALIZED, NumberOfBytes, Tag);
}

PVOID ExAllocatePoolWithTagPriority(
    POOL_TYPE PoolType,
    SIZE_T NumberOfBytes,
    ULONG Tag,
    EX_POOL_PRIORITY Priority)
{
    UNREFERENCED_PARAMETER(Priority);
    return ExAllocatePoolWithTag(PoolType, NumberOfBytes, Tag);
}

VOID ExFreePoolWithTag(PVOID P, ULONG Tag)
{
    BLOCK **Link = BucketOf(P);
    BLOCK *Block;

    REQUIRE_IRQL(DISPATCH_LEVEL);
    pthread_mutex_lock(&Lock);
    while (*Link != NULL && (*Link)->Address != P) {
        Link = &(*Link)->Next;
    }
    Block = *Link;
    REQUIRE(Block != NULL, "frees what is no block of pool");
    REQUIRE(Tag == 0 || Tag == Block->Tag, "frees a block of another tag");
    *Link = Block->Next;
    pthread_mutex_unlock(&Lock);
    ndkrocev2_freed(P, Block->Bytes);
    free(P);
    free(Block);
}

VOID ExFreePool(PVOID P)
{
    ExFreePoolWithTag(P, 0);
}

SIZE_T RtlCompareMemory(CONST VOID *Source1, CONST VOID *Source2, SIZE_T Length)
{
    CONST UCHAR *First = Source1, *Second = Source2;
    SIZE_T Equal = 0;

    while (Equal < Length && First[Equal] == Second[Equal]) {
        Equal++;
    }
    return Equal;
}

PMDL IoAllocateMdl(
    PVOID VirtualAddress,
    ULONG Length,
    BOOLEAN SecondaryBuffer,
    BOOLEAN ChargeQuota,
    PIRP Irp)
{
    ULONG Pages = ADDRESS_AND_SIZE_TO_SPAN_PAGES(VirtualAddress, Length);
    SIZE_T Bytes = sizeof(MDL) + Pages * sizeof(PFN_NUMBER);
    PMDL Mdl;

    UNREFERENCED_PARAMETER(ChargeQuota);
    REQUIRE_IRQL(DISPATCH_LEVEL);
    REQUIRE(!SecondaryBuffer && Irp == NULL, "has no IRP to join here");
    Mdl = Allocate(Bytes);
    Mdl->Size = (SHORT)min(Bytes, INT16_MAX);
    Mdl->StartVa = PAGE_ALIGN(VirtualAddress);
    Mdl->ByteOffset = BYTE_OFFSET(VirtualAddress);
    Mdl->ByteCount = Length;
    InterlockedIncrement(&Mdls);
    return Mdl;
}

/* Gives each page a number. Nobody can make an address of it; the provider uses the addresses of the MDL. */
static VOID NumberPages(PMDL Mdl)
{
    ULONG Pages = ADDRESS_AND_SIZE_TO_SPAN_PAGES(MmGetMdlVirtualAddress(Mdl), Mdl->ByteCount);

    for (ULONG Page = 0; Page < Pages; Page++) {
        MmGetMdlPfnArray(Mdl)[Page] = ((ULONG_PTR)Mdl->StartVa >> PAGE_SHIFT) + Page;
    }
}

VOID IoBuildPartialMdl(PMDL SourceMdl, PMDL TargetMdl, PVOID VirtualAddress, ULONG Length)
{
    PUCHAR Start = MmGetMdlVirtualAddress(SourceMdl);
    SIZE_T Before = (SIZE_T)((PUCHAR)VirtualAddress - Start);

    REQUIRE((PUCHAR)VirtualAddress >= Start && Before <= SourceMdl->ByteCount, "begins outside of its source");
    Length = Length == 0 ? SourceMdl->ByteCount - (ULONG)Before : Length;
    REQUIRE(Length <= SourceMdl->ByteCount - Before, "ends outside of its source");
    TargetMdl->StartVa = PAGE_ALIGN(VirtualAddress);
    TargetMdl->ByteOffset = BYTE_OFFSET(VirtualAddress);
    TargetMdl->ByteCount = Length;
    TargetMdl->MdlFlags = SourceMdl->MdlFlags & (MDL_SOURCE_IS_NONPAGED_POOL | MDL_MAPPED_TO_SYSTEM_VA);
    TargetMdl->MappedSystemVa = (PUCHAR)SourceMdl->MappedSystemVa + Before;
    NumberPages(TargetMdl);
}

VOID IoFreeMdl(PMDL Mdl)
{
    REQUIRE_IRQL(DISPATCH_LEVEL);
    REQUIRE((Mdl->MdlFlags & MDL_PAGES_LOCKED) == 0, "frees an MDL whose pages are locked");
    InterlockedDecrement(&Mdls);
    ndkrocev2_freed(Mdl, sizeof(*Mdl));
    free(Mdl);
}

VOID MmBuildMdlForNonPagedPool(PMDL Mdl)
{
    REQUIRE_IRQL(DISPATCH_LEVEL);
    Mdl->MappedSystemVa = MmGetMdlVirtualAddress(Mdl);
    Mdl->MdlFlags |= MDL_SOURCE_IS_NONPAGED_POOL;
    NumberPages(Mdl);
}

VOID MmProbeAndLockPages(PMDL Mdl, KPROCESSOR_MODE AccessMode, LOCK_OPERATION Operation)
{
    UNREFERENCED_PARAMETER(AccessMode);
    UNREFERENCED_PARAMETER(Operation);
    REQUIRE_IRQL(DISPATCH_LEVEL);
    REQUIRE(
        (Mdl->MdlFlags & (MDL_PAGES_LOCKED | MDL_SOURCE_IS_NONPAGED_POOL)) == 0,
        "locks pages that are locked");
    Mdl->MdlFlags |= MDL_PAGES_LOCKED;
    NumberPages(Mdl);
    InterlockedIncrement(&LockedMdls);
}

VOID MmUnlockPages(PMDL Mdl)
{
    REQUIRE_IRQL(DISPATCH_LEVEL);
    REQUIRE(Mdl->MdlFlags & MDL_PAGES_LOCKED, "unlocks pages that are not locked");
    /* The MDL alone: another one may hold the same pages. */
    ndkrocev2_freed(Mdl, sizeof(*Mdl));
    Mdl->MdlFlags &= (SHORT)~(MDL_PAGES_LOCKED | MDL_MAPPED_TO_SYSTEM_VA);
    InterlockedDecrement(&LockedMdls);
}

PVOID NdkShimMapMdl(PMDL Mdl, ULONG Priority)
{
    UNREFERENCED_PARAMETER(Priority);
    REQUIRE(
        Mdl->MdlFlags & (MDL_PAGES_LOCKED | MDL_SOURCE_IS_NONPAGED_POOL | MDL_MAPPED_TO_SYSTEM_VA),
        "maps pages that are not locked");
    if ((Mdl->MdlFlags & (MDL_SOURCE_IS_NONPAGED_POOL | MDL_MAPPED_TO_SYSTEM_VA)) == 0) {
        Mdl->MappedSystemVa = MmGetMdlVirtualAddress(Mdl);
        Mdl->MdlFlags |= MDL_MAPPED_TO_SYSTEM_VA;
    }
    return Mdl->MappedSystemVa;
}

VOID MmUnmapLockedPages(PVOID BaseAddress, PMDL Mdl)
{
    REQUIRE(
        (Mdl->MdlFlags & MDL_MAPPED_TO_SYSTEM_VA) && BaseAddress == Mdl->MappedSystemVa,
        "unmaps what is not mapped");
    Mdl->MdlFlags &= (SHORT)~MDL_MAPPED_TO_SYSTEM_VA;
}

ULONG PoolLeaks(VOID)
{
    ULONG Count = 0;

    pthread_mutex_lock(&Lock);
    for (ULONG Bucket = 0; Bucket < BUCKETS; Bucket++) {
        for (BLOCK *Block = Blocks[Bucket]; Block != NULL; Block = Block->Next, Count++) {
            fprintf(
                stderr, "ndkshim: a pool block of %zu bytes left, tag %.4s\n", Block->Bytes,
                (PCSTR)&Block->Tag);
        }
    }
    pthread_mutex_unlock(&Lock);
    return Count + ReportLeak("MDLs", Mdls) + ReportLeak("locked MDLs", LockedMdls);
}
