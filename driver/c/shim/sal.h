/* sal.h: the annotations of Microsoft's sources, which mean nothing to the compilers of Linux. */
#ifndef NDKSHIM_SAL_H
#define NDKSHIM_SAL_H

#define _In_
#define _In_opt_
#define _In_reads_(Count)
#define _In_reads_opt_(Count)
#define _In_reads_bytes_(Size)
#define _In_reads_bytes_opt_(Size)
#define _Out_
#define _Out_opt_
#define _Out_writes_(Count)
#define _Out_writes_opt_(Count)
#define _Out_writes_to_(Count, Written)
#define _Out_writes_bytes_(Size)
#define _Out_writes_bytes_opt_(Size)
#define _Out_writes_bytes_to_(Size, Written)
#define _Out_writes_bytes_to_opt_(Size, Written)
#define _Outptr_
#define _Outptr_opt_
#define _Outptr_result_maybenull_
#define _Inout_
#define _Inout_opt_
#define _Inout_updates_(Count)
#define _Inout_updates_bytes_(Size)
#define _In_range_(First, Last)
#define _Out_range_(First, Last)
#define _Ret_range_(First, Last)
#define _Deref_out_
#define _Deref_out_opt_
#define _Frees_ptr_
#define _Frees_ptr_opt_
#define _Pre_satisfies_(Condition)
#define _Post_satisfies_(Condition)
#define _Strict_type_match_
#define _Ret_maybenull_
#define _Check_return_
#define _Must_inspect_result_
#define _Success_(Condition)
#define _When_(Condition, Annotations)
#define _At_(Target, Annotations)
#define _Use_decl_annotations_
#define _Function_class_(Name)
#define _Struct_size_bytes_(Size)
#define _Field_size_(Count)
#define _Field_size_bytes_(Size)
#define _IRQL_requires_(Level)
#define _IRQL_requires_min_(Level)
#define _IRQL_requires_max_(Level)
#define _IRQL_requires_same_
#define _IRQL_raises_(Level)
#define _IRQL_saves_
#define _IRQL_restores_
#define _Acquires_lock_(Lock)
#define _Releases_lock_(Lock)
#define _Requires_lock_held_(Lock)
#define _Requires_lock_not_held_(Lock)
#define _Requires_exclusive_lock_held_(Lock)
#define _Requires_shared_lock_held_(Lock)
#define _Guarded_by_(Lock)
#define _Write_guarded_by_(Lock)
#define _Interlocked_
#define _No_competing_thread_begin_
#define _No_competing_thread_end_
#define _Analysis_assume_(Condition)

/* Of the compiler of Microsoft. */
#define __pragma(Directive)

#endif
