/* The C interface of Penstock: communicators, stores, layouts and redistribution. C11.
 *
 * Every function that can fail returns 0 or a negative penstock_status; penstock_last_error() then has the text. No C++
 * exception leaves them, nothing aborts. Objects are handles that their _free function destroys (NULL is ignored);
 * output parameters are set on success only. Communicators come from <penstock/penstock_mpi.h>.
 */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <stddef.h>
#include <stdint.h>

#include "penstock/export.hpp"

#ifdef __cplusplus
extern "C" {
#endif

/* PENSTOCK_invalid_argument, PENSTOCK_mismatch, …: the rows of errors.def. */
typedef enum penstock_status {
  PENSTOCK_success = 0,
#define PENSTOCK_ERROR(name, code, meaning) PENSTOCK_##name = code,
#include "penstock/errors.def"
#undef PENSTOCK_ERROR
} penstock_status;

/* PENSTOCK_float32, PENSTOCK_int64, …: the rows of dtypes.def. */
typedef enum penstock_dtype {
#define PENSTOCK_DTYPE(name, type, size, numpy) PENSTOCK_##name,
#define PENSTOCK_OTHER_DTYPE PENSTOCK_DTYPE
#include "penstock/dtypes.def"
#undef PENSTOCK_OTHER_DTYPE
#undef PENSTOCK_DTYPE
  PENSTOCK_no_dtype = -0x7fffffff - 1 /* so that any int may be passed, and refused, without undefined behaviour */
} penstock_dtype;

/* PENSTOCK_sum, PENSTOCK_max, …: the rows of reduce_ops.def. */
typedef enum penstock_reduce_op {
#define PENSTOCK_REDUCE_OP(name) PENSTOCK_##name,
#include "penstock/reduce_ops.def"
#undef PENSTOCK_REDUCE_OP
  PENSTOCK_no_reduce_op = -0x7fffffff - 1 /* as PENSTOCK_no_dtype */
} penstock_reduce_op;

/* PENSTOCK_bcast, PENSTOCK_alltoallv, …: the rows of collectives.def. */
typedef enum penstock_collective {
#define PENSTOCK_COLLECTIVE(name, rooted, computes) PENSTOCK_##name,
#include "penstock/collectives.def"
#undef PENSTOCK_COLLECTIVE
  PENSTOCK_no_collective = -0x7fffffff - 1 /* as PENSTOCK_no_dtype */
} penstock_collective;

typedef struct penstock_comm penstock_comm;
typedef struct penstock_request penstock_request;
typedef struct penstock_persistent penstock_persistent;
typedef struct penstock_op penstock_op;
typedef struct penstock_datatype penstock_datatype;
typedef struct penstock_store penstock_store;
typedef struct penstock_blob penstock_blob;
typedef struct penstock_layout penstock_layout;
typedef struct penstock_redistribution penstock_redistribution;

/* The text of the last failure in this thread; "" when nothing has failed. Valid until the next failure. */
PENSTOCK_API const char* penstock_last_error(void);
/* The rank that failed first in that failure, or -1 where no communicator was involved. */
PENSTOCK_API int penstock_last_error_rank(void);
/* The name of a status, "invalid_argument"; "success" for 0; "unknown" for what is none. */
PENSTOCK_API const char* penstock_status_name(int status);

/* ---- Communicators: called by all ranks in the same order, by one thread at a time. ---- */

PENSTOCK_API int penstock_comm_rank(const penstock_comm* comm);
PENSTOCK_API int penstock_comm_size(const penstock_comm* comm);
/* The same ranks with an order of operations of their own. Collective. */
PENSTOCK_API int penstock_comm_duplicate(const penstock_comm* comm, penstock_comm** duplicate);
/* Requests of it stay valid. */
PENSTOCK_API void penstock_comm_free(penstock_comm* comm);
/* Transport, shared memory, progress threads, and what was given up with the reason, one per line. Writes at most
 * capacity - 1 bytes and a zero; *length is the length of the whole text and may be NULL. */
PENSTOCK_API int penstock_comm_report(const penstock_comm* comm, char* text, size_t capacity, size_t* length);

/* From now on, calls of this collective that run on this communicator use this algorithm (`penstock plan list` has
 * their names; "native" is MPI's own) and, unless 0, this length of segments; NULL or "" leaves the choice to Penstock
 * again. Local; all ranks do the same between the same operations. Duplicates begin without. Fails with
 * PENSTOCK_invalid_argument for an unknown name; one that does not fit a call fails there, on all ranks. */
PENSTOCK_API int penstock_comm_use(penstock_comm* comm, penstock_collective collective, const char* algorithm,
                                   uint64_t segment_bytes);

/* Given as `send` (as `receive` of scatter and scatterv), on the root of rooted operations, on any rank of scan and
 * exscan, or on all ranks of the others: the rank's own part lies in the other buffer, where MPI_IN_PLACE wants it. */
#define PENSTOCK_IN_PLACE ((void*)(intptr_t)-1)

/* Collectives as MPI's. `count` is in elements: of one rank's part (for gather, scatter, allgather, alltoall and
 * reduce_scatter_block, of one block). Lists of counts and displacements have an entry per rank, in elements;
 * displacements may be NULL where the blocks follow each other, and lists are copied. Buffers and lists that are not
 * significant on a rank may be NULL. Counts, types, operations and roots must fit together: where they do not, and
 * where an argument is wrong on one rank, all ranks concerned get an error and none hangs. */
PENSTOCK_API int penstock_barrier(penstock_comm* comm);
PENSTOCK_API int penstock_bcast(penstock_comm* comm, void* buffer, uint64_t count, penstock_dtype dtype, int root);
PENSTOCK_API int penstock_reduce(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                 penstock_dtype dtype, penstock_reduce_op op, int root);
PENSTOCK_API int penstock_allreduce(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                    penstock_dtype dtype, penstock_reduce_op op);
PENSTOCK_API int penstock_gather(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                 penstock_dtype dtype, int root);
PENSTOCK_API int penstock_gatherv(penstock_comm* comm, const void* send, uint64_t send_count, void* receive,
                                  const uint64_t* counts, const uint64_t* displacements, penstock_dtype dtype,
                                  int root);
PENSTOCK_API int penstock_scatter(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                  penstock_dtype dtype, int root);
PENSTOCK_API int penstock_scatterv(penstock_comm* comm, const void* send, const uint64_t* counts,
                                   const uint64_t* displacements, void* receive, uint64_t receive_count,
                                   penstock_dtype dtype, int root);
PENSTOCK_API int penstock_allgather(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                    penstock_dtype dtype);
PENSTOCK_API int penstock_allgatherv(penstock_comm* comm, const void* send, uint64_t send_count, void* receive,
                                     const uint64_t* counts, const uint64_t* displacements, penstock_dtype dtype);
PENSTOCK_API int penstock_alltoall(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                   penstock_dtype dtype);
PENSTOCK_API int penstock_alltoallv(penstock_comm* comm, const void* send, const uint64_t* send_counts,
                                    const uint64_t* send_displacements, void* receive, const uint64_t* receive_counts,
                                    const uint64_t* receive_displacements, penstock_dtype dtype);
PENSTOCK_API int penstock_reduce_scatter_block(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                               penstock_dtype dtype, penstock_reduce_op op);
PENSTOCK_API int penstock_reduce_scatter(penstock_comm* comm, const void* send, void* receive, const uint64_t* counts,
                                         penstock_dtype dtype, penstock_reduce_op op);
PENSTOCK_API int penstock_scan(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                               penstock_dtype dtype, penstock_reduce_op op);
PENSTOCK_API int penstock_exscan(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                 penstock_dtype dtype, penstock_reduce_op op);

/* The same, started: the buffers belong to the operation until test or wait says that it is complete. */
PENSTOCK_API int penstock_ibarrier(penstock_comm* comm, penstock_request** request);
PENSTOCK_API int penstock_ibcast(penstock_comm* comm, void* buffer, uint64_t count, penstock_dtype dtype, int root,
                                 penstock_request** request);
PENSTOCK_API int penstock_ireduce(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                  penstock_dtype dtype, penstock_reduce_op op, int root, penstock_request** request);
PENSTOCK_API int penstock_iallreduce(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                     penstock_dtype dtype, penstock_reduce_op op, penstock_request** request);
PENSTOCK_API int penstock_igather(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                  penstock_dtype dtype, int root, penstock_request** request);
PENSTOCK_API int penstock_igatherv(penstock_comm* comm, const void* send, uint64_t send_count, void* receive,
                                   const uint64_t* counts, const uint64_t* displacements, penstock_dtype dtype,
                                   int root, penstock_request** request);
PENSTOCK_API int penstock_iscatter(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                   penstock_dtype dtype, int root, penstock_request** request);
PENSTOCK_API int penstock_iscatterv(penstock_comm* comm, const void* send, const uint64_t* counts,
                                    const uint64_t* displacements, void* receive, uint64_t receive_count,
                                    penstock_dtype dtype, int root, penstock_request** request);
PENSTOCK_API int penstock_iallgather(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                     penstock_dtype dtype, penstock_request** request);
PENSTOCK_API int penstock_iallgatherv(penstock_comm* comm, const void* send, uint64_t send_count, void* receive,
                                      const uint64_t* counts, const uint64_t* displacements, penstock_dtype dtype,
                                      penstock_request** request);
PENSTOCK_API int penstock_ialltoall(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                    penstock_dtype dtype, penstock_request** request);
PENSTOCK_API int penstock_ialltoallv(penstock_comm* comm, const void* send, const uint64_t* send_counts,
                                     const uint64_t* send_displacements, void* receive, const uint64_t* receive_counts,
                                     const uint64_t* receive_displacements, penstock_dtype dtype,
                                     penstock_request** request);
PENSTOCK_API int penstock_ireduce_scatter_block(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                                penstock_dtype dtype, penstock_reduce_op op,
                                                penstock_request** request);
PENSTOCK_API int penstock_ireduce_scatter(penstock_comm* comm, const void* send, void* receive, const uint64_t* counts,
                                          penstock_dtype dtype, penstock_reduce_op op, penstock_request** request);
PENSTOCK_API int penstock_iscan(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                penstock_dtype dtype, penstock_reduce_op op, penstock_request** request);
PENSTOCK_API int penstock_iexscan(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                  penstock_dtype dtype, penstock_reduce_op op, penstock_request** request);

/* The same, to be started any number of times on the same buffers. Making one is local. */
PENSTOCK_API int penstock_barrier_init(penstock_comm* comm, penstock_persistent** persistent);
PENSTOCK_API int penstock_bcast_init(penstock_comm* comm, void* buffer, uint64_t count, penstock_dtype dtype, int root,
                                     penstock_persistent** persistent);
PENSTOCK_API int penstock_reduce_init(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                      penstock_dtype dtype, penstock_reduce_op op, int root,
                                      penstock_persistent** persistent);
PENSTOCK_API int penstock_allreduce_init(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                         penstock_dtype dtype, penstock_reduce_op op, penstock_persistent** persistent);
PENSTOCK_API int penstock_gather_init(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                      penstock_dtype dtype, int root, penstock_persistent** persistent);
PENSTOCK_API int penstock_gatherv_init(penstock_comm* comm, const void* send, uint64_t send_count, void* receive,
                                       const uint64_t* counts, const uint64_t* displacements, penstock_dtype dtype,
                                       int root, penstock_persistent** persistent);
PENSTOCK_API int penstock_scatter_init(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                       penstock_dtype dtype, int root, penstock_persistent** persistent);
PENSTOCK_API int penstock_scatterv_init(penstock_comm* comm, const void* send, const uint64_t* counts,
                                        const uint64_t* displacements, void* receive, uint64_t receive_count,
                                        penstock_dtype dtype, int root, penstock_persistent** persistent);
PENSTOCK_API int penstock_allgather_init(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                         penstock_dtype dtype, penstock_persistent** persistent);
PENSTOCK_API int penstock_allgatherv_init(penstock_comm* comm, const void* send, uint64_t send_count, void* receive,
                                          const uint64_t* counts, const uint64_t* displacements, penstock_dtype dtype,
                                          penstock_persistent** persistent);
PENSTOCK_API int penstock_alltoall_init(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                        penstock_dtype dtype, penstock_persistent** persistent);
PENSTOCK_API int penstock_alltoallv_init(penstock_comm* comm, const void* send, const uint64_t* send_counts,
                                         const uint64_t* send_displacements, void* receive,
                                         const uint64_t* receive_counts, const uint64_t* receive_displacements,
                                         penstock_dtype dtype, penstock_persistent** persistent);
PENSTOCK_API int penstock_reduce_scatter_block_init(penstock_comm* comm, const void* send, void* receive,
                                                    uint64_t count, penstock_dtype dtype, penstock_reduce_op op,
                                                    penstock_persistent** persistent);
PENSTOCK_API int penstock_reduce_scatter_init(penstock_comm* comm, const void* send, void* receive,
                                              const uint64_t* counts, penstock_dtype dtype, penstock_reduce_op op,
                                              penstock_persistent** persistent);
PENSTOCK_API int penstock_scan_init(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                    penstock_dtype dtype, penstock_reduce_op op, penstock_persistent** persistent);
PENSTOCK_API int penstock_exscan_init(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                      penstock_dtype dtype, penstock_reduce_op op, penstock_persistent** persistent);
/* The previous request of it must be complete. */
PENSTOCK_API int penstock_start(penstock_persistent* persistent, penstock_request** request);
PENSTOCK_API void penstock_persistent_free(penstock_persistent* persistent);

/* Operations of the program's own: to[i] = from[i] (op) to[i] for `count` elements, `from` having the lower ranks where
 * it does not commute. Has to be associative and the same on all ranks; called by any thread, by several at once.
 * Freeing one leaves operations that were started with it alone. */
typedef void (*penstock_combine)(const void* from, void* to, uint64_t count, void* context);
PENSTOCK_API int penstock_op_create(penstock_combine combine, void* context, uint64_t element_bytes, int commutative,
                                    penstock_op** op);
/* One of the predefined operations with the same bits for any placement, order of the ranks and cut into messages: the
 * contributions to each element are combined in an order that follows from their values (scan and exscan: in the order
 * of the ranks). All ranks give such an operation, or none. */
PENSTOCK_API int penstock_op_create_reproducible(penstock_dtype dtype, penstock_reduce_op reduce_op, penstock_op** op);
PENSTOCK_API void penstock_op_free(penstock_op* op);

/* Reductions by such an operation, whose elements `count` counts; in three forms, too. */
PENSTOCK_API int penstock_reduce_by(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                    const penstock_op* op, int root);
PENSTOCK_API int penstock_allreduce_by(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                       const penstock_op* op);
PENSTOCK_API int penstock_reduce_scatter_block_by(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                                  const penstock_op* op);
PENSTOCK_API int penstock_reduce_scatter_by(penstock_comm* comm, const void* send, void* receive,
                                            const uint64_t* counts, const penstock_op* op);
PENSTOCK_API int penstock_scan_by(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                  const penstock_op* op);
PENSTOCK_API int penstock_exscan_by(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                    const penstock_op* op);
PENSTOCK_API int penstock_ireduce_by(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                     const penstock_op* op, int root, penstock_request** request);
PENSTOCK_API int penstock_iallreduce_by(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                        const penstock_op* op, penstock_request** request);
PENSTOCK_API int penstock_ireduce_scatter_block_by(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                                   const penstock_op* op, penstock_request** request);
PENSTOCK_API int penstock_ireduce_scatter_by(penstock_comm* comm, const void* send, void* receive,
                                             const uint64_t* counts, const penstock_op* op, penstock_request** request);
PENSTOCK_API int penstock_iscan_by(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                   const penstock_op* op, penstock_request** request);
PENSTOCK_API int penstock_iexscan_by(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                     const penstock_op* op, penstock_request** request);
PENSTOCK_API int penstock_reduce_by_init(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                         const penstock_op* op, int root, penstock_persistent** persistent);
PENSTOCK_API int penstock_allreduce_by_init(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                            const penstock_op* op, penstock_persistent** persistent);
PENSTOCK_API int penstock_reduce_scatter_block_by_init(penstock_comm* comm, const void* send, void* receive,
                                                       uint64_t count, const penstock_op* op,
                                                       penstock_persistent** persistent);
PENSTOCK_API int penstock_reduce_scatter_by_init(penstock_comm* comm, const void* send, void* receive,
                                                 const uint64_t* counts, const penstock_op* op,
                                                 penstock_persistent** persistent);
PENSTOCK_API int penstock_scan_by_init(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                       const penstock_op* op, penstock_persistent** persistent);
PENSTOCK_API int penstock_exscan_by_init(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                         const penstock_op* op, penstock_persistent** persistent);

/* What a rank sends or receives in a collective on items of a datatype, which penstock_datatype_create in
 * <penstock/penstock_mpi.h> gives: `count` items in (for) each block, from `buffer` on; or, where MPI's operation has
 * lists on this side, blocks with counts and displacements, an entry per rank, in items and extents; displacements may
 * be NULL. A buffer may be PENSTOCK_IN_PLACE. The struct and its lists are copied; `datatype` NULL means bytes. */
typedef struct penstock_items {
  void* buffer; /* only read from where it is sent */
  uint64_t count;
  const penstock_datatype* datatype;
  const uint64_t* counts;
  const uint64_t* displacements;
} penstock_items;

PENSTOCK_API void penstock_datatype_free(penstock_datatype* datatype);
/* Collectives that move data, on items that are packed and unpacked where they are not contiguous. The datatypes of the
 * two sides, and of two ranks, may differ where the bytes that are sent fit those that are received. A side that means
 * nothing on a rank may be NULL; bcast uses `receive` alone. In three forms, as all collectives. */
PENSTOCK_API int penstock_collective_items(penstock_comm* comm, penstock_collective collective,
                                           const penstock_items* send, const penstock_items* receive, int root);
PENSTOCK_API int penstock_icollective_items(penstock_comm* comm, penstock_collective collective,
                                            const penstock_items* send, const penstock_items* receive, int root,
                                            penstock_request** request);
PENSTOCK_API int penstock_collective_items_init(penstock_comm* comm, penstock_collective collective,
                                                const penstock_items* send, const penstock_items* receive, int root,
                                                penstock_persistent** persistent);

/* Wait, or look whether *request is complete. Once it is, also when it has failed, the request is freed and *request
 * becomes NULL; a NULL request is complete. The failure of the operation is returned once, here. */
PENSTOCK_API int penstock_wait(penstock_request** request);
PENSTOCK_API int penstock_test(penstock_request** request, int* complete);

/* ---- Stores: versioned blobs. No MPI; any thread; blocking. See <penstock/store.hpp>. ---- */

typedef struct penstock_region {
  uint64_t offset_bytes; /* in the blob */
  void* data;            /* only read from by a write */
  uint64_t size_bytes;
} penstock_region;

#define PENSTOCK_LATEST UINT64_MAX

/* "file:///scratch/run7" or "memory:name"; made where it does not exist. */
PENSTOCK_API int penstock_store_open(const char* url, penstock_store** store);
PENSTOCK_API void penstock_store_free(penstock_store* store);
PENSTOCK_API int penstock_blob_create(penstock_store* store, const char* name, uint64_t size_bytes,
                                      penstock_blob** blob);
PENSTOCK_API int penstock_blob_open(penstock_store* store, const char* name, penstock_blob** blob);
PENSTOCK_API void penstock_blob_free(penstock_blob* blob);
/* One atomic, durable update of all regions, which must not overlap; *version is the version that it made. */
PENSTOCK_API int penstock_blob_write(penstock_blob* blob, const penstock_region* regions, size_t count,
                                     uint64_t* version);
/* Fills the regions from one version, verifying checksums. */
PENSTOCK_API int penstock_blob_read(penstock_blob* blob, const penstock_region* regions, size_t count,
                                    uint64_t version);
PENSTOCK_API int penstock_blob_latest(penstock_blob* blob, uint64_t* version);
PENSTOCK_API int penstock_blob_size(penstock_blob* blob, uint64_t* size_bytes);
/* Waits until `version` exists; *exists is 0 when it does not within the time. */
PENSTOCK_API int penstock_blob_wait(penstock_blob* blob, uint64_t version, double timeout_s, int* exists);

/* ---- Layouts and redistribution. See <penstock/layout.hpp> and <penstock/redistribute.hpp>. ---- */

/* ScaLAPACK's block-cyclic layout of an array of `dimensions` dimensions; ranks are numbered over the process grid, and
 * local arrays stored, in row-major (0) or column-major (1) order. Arrays have one entry per dimension. */
PENSTOCK_API int penstock_layout_block_cyclic(int dimensions, const int64_t* shape, const int64_t* block,
                                              const int64_t* grid, int grid_column_major, int storage_column_major,
                                              penstock_layout** layout);
/* Any grid of two dimensions: row_splits has block_rows + 1 borders from 0 to the number of rows, column_splits
 * likewise; owners has one rank per block, columns fastest; `ranks` is the number of ranks. */
PENSTOCK_API int penstock_layout_grid(int64_t block_rows, const int64_t* row_splits, int64_t block_columns,
                                      const int64_t* column_splits, const int32_t* owners, int32_t ranks,
                                      penstock_layout** layout);
PENSTOCK_API void penstock_layout_free(penstock_layout* layout);
PENSTOCK_API int penstock_layout_local_size(const penstock_layout* layout, int32_t rank, int64_t* size_elems);
/* What a rank has, as arrays: its boxes, of a layout made of boxes, otherwise its blocks. *parts is their number; where
 * `shapes` is not NULL, the first `capacity` of them are written there, one entry per dimension each. */
PENSTOCK_API int penstock_layout_local_parts(const penstock_layout* layout, int32_t rank, int64_t* parts,
                                             int64_t* shapes, int64_t capacity);

/* op is 'N', 'T' or 'C'; with relabel, ranks get the parts of the target that leave the least to communicate.
 * Collective. */
PENSTOCK_API int penstock_redistribution_create(penstock_comm* comm, const penstock_layout* source,
                                                const penstock_layout* target, penstock_dtype dtype, char op,
                                                int relabel, penstock_redistribution** redistribution);
/* The same with a source of another type: its elements are converted to the target's, then alpha, op and beta are
 * applied. Not from complex to real or from floating point to integers. */
PENSTOCK_API int penstock_redistribution_create_converting(penstock_comm* comm, const penstock_layout* source,
                                                           penstock_dtype source_dtype, const penstock_layout* target,
                                                           penstock_dtype target_dtype, char op, int relabel,
                                                           penstock_redistribution** redistribution);
PENSTOCK_API void penstock_redistribution_free(penstock_redistribution* redistribution);
/* Bytes that change their rank without and with relabeling, and the lengths of this rank's parts. Pointers may be NULL.
 */
PENSTOCK_API int penstock_redistribution_info(const penstock_redistribution* redistribution, uint64_t* bytes_before,
                                              uint64_t* bytes_after, int64_t* input_elems, int64_t* output_elems);
/* output = alpha*op(input) + beta*output on this rank's parts, sizes in elements as _info gives them. Collective. */
PENSTOCK_API int penstock_redistribute(const penstock_redistribution* redistribution, const void* input, void* output,
                                       double alpha, double beta);
PENSTOCK_API int penstock_iredistribute(const penstock_redistribution* redistribution, const void* input, void* output,
                                        double alpha, double beta, penstock_request** request);

/* Memory for what is on its way, in place of the communicator's: at any address, apart from input and output; may be
 * used again when the request is complete. *bytes is how many a rank needs, and may be 0. */
PENSTOCK_API int penstock_redistribution_workspace(const penstock_redistribution* redistribution, uint64_t* bytes);
PENSTOCK_API int penstock_iredistribute_in(const penstock_redistribution* redistribution, const void* input,
                                           void* output, double alpha, double beta, void* workspace,
                                           uint64_t workspace_bytes, penstock_request** request);

/* This rank's parts of an array (penstock_layout_local_parts) in memory of their own: the first element of each, and
 * `dimensions` strides in elements for each, one part after another. */
typedef struct penstock_parts {
  int64_t parts;
  void* const* data;
  const int64_t* strides_elems;
} penstock_parts;
/* `workspace` may be NULL. Ranks may differ in which form they call. */
PENSTOCK_API int penstock_iredistribute_parts(const penstock_redistribution* redistribution,
                                              const penstock_parts* input, const penstock_parts* output, double alpha,
                                              double beta, void* workspace, uint64_t workspace_bytes,
                                              penstock_request** request);

/* output = alpha*op(input) + beta*output without a redistribution of the caller's own: the communicator keeps the plans
 * of the last 16 different calls, as far as 64 MiB hold them, so an equal one starts at once. Collective. */
PENSTOCK_API int penstock_iredistribute_once(penstock_comm* comm, const penstock_layout* source,
                                             penstock_dtype source_dtype, const void* input,
                                             const penstock_layout* target, penstock_dtype target_dtype, void* output,
                                             char op, double alpha, double beta, penstock_request** request);

#ifdef __cplusplus
}
#endif

#endif
