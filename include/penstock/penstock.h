/* The C interface of Penstock: communicators, stores, layouts and redistribution. C11.
 *
 * Every function that can fail returns 0 or a negative penstock_status; penstock_last_error() then returns the text. No
 * function throws or aborts. Objects are handles; their _free function destroys them and ignores NULL. Output
 * parameters are set on success only. <penstock/penstock_mpi.h> makes communicators.
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
  PENSTOCK_no_dtype = -0x7fffffff - 1 /* makes any int a valid value, so that a wrong one is refused */
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

/* The text of the last failure in this thread; "" if there was none. Valid until the next failure. */
PENSTOCK_API const char* penstock_last_error(void);
/* The rank that failed first in that failure; -1 if no communicator was involved. */
PENSTOCK_API int penstock_last_error_rank(void);
/* The name of a status: "invalid_argument", "success" for 0, "unknown" for other numbers. */
PENSTOCK_API const char* penstock_status_name(int status);

/* ---- Communicators. All ranks call collectives in the same order, one thread at a time. ---- */

PENSTOCK_API int penstock_comm_rank(const penstock_comm* comm);
PENSTOCK_API int penstock_comm_size(const penstock_comm* comm);
/* The same ranks with an own order of operations, as MPI_Comm_dup makes. Collective. */
PENSTOCK_API int penstock_comm_duplicate(const penstock_comm* comm, penstock_comm** duplicate);
/* Its requests stay valid. */
PENSTOCK_API void penstock_comm_free(penstock_comm* comm);
/* Transport, shared memory, progress threads, and which of them is off, with the reason: one fact per line. Writes at
 * most capacity - 1 bytes and a zero. *length is the length of the whole text; `length` may be NULL. */
PENSTOCK_API int penstock_comm_report(const penstock_comm* comm, char* text, size_t capacity, size_t* length);

/* Sets the algorithm, and unless 0 the segment length, of later calls of this collective on this communicator.
 * `penstock plan list` lists the names; "native" is MPI's own collective. NULL or "" lets Penstock choose again. Local.
 * All ranks must make the same calls of it between the same operations. Duplicates do not inherit it. Fails with
 * PENSTOCK_invalid_argument for an unknown name. An algorithm that does not fit a call fails that call on all ranks. */
PENSTOCK_API int penstock_comm_use(penstock_comm* comm, penstock_collective collective, const char* algorithm,
                                   uint64_t segment_bytes);

/* MPI_IN_PLACE: the rank's own part lies in the other buffer. Pass it as `send` (scatter and scatterv: as `receive`):
 * at the root of rooted operations, on any rank in scan and exscan, on all ranks in the others. */
#define PENSTOCK_IN_PLACE ((void*)(intptr_t)-1)

/* Collectives as in MPI. `count` is the number of elements of one rank; of one block in gather, scatter, allgather,
 * alltoall and reduce_scatter_block. Lists of counts and displacements have one entry per rank, in elements; they are
 * copied. `displacements` may be NULL if the blocks follow each other. Buffers and lists that are not significant on a
 * rank may be NULL. If counts, types, operations or roots of the ranks do not match, or an argument is wrong on one
 * rank, all ranks concerned get an error, and none hangs. */
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

/* Non-blocking forms. The buffers belong to the operation until penstock_test or penstock_wait reports completion. */
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

/* Persistent forms: penstock_start starts them any number of times on the same buffers. Making one is local. */
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
/* Neighbourhood collectives, among the neighbours that the MPI communicator's Cartesian, graph or distributed graph
 * topology gives each rank. Lists have one entry per destination (send) or source (receive). Blocks of neighbours that
 * do not exist (MPI_PROC_NULL) are neither sent nor written. `count` is equal on all ranks that have neighbours. On a
 * communicator without a topology: PENSTOCK_invalid_argument. neighbor_alltoallw: penstock_collective_items. */
PENSTOCK_API int penstock_neighbor_allgather(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                             penstock_dtype dtype);
PENSTOCK_API int penstock_neighbor_allgatherv(penstock_comm* comm, const void* send, uint64_t send_count, void* receive,
                                              const uint64_t* counts, const uint64_t* displacements,
                                              penstock_dtype dtype);
PENSTOCK_API int penstock_neighbor_alltoall(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                            penstock_dtype dtype);
PENSTOCK_API int penstock_neighbor_alltoallv(penstock_comm* comm, const void* send, const uint64_t* send_counts,
                                             const uint64_t* send_displacements, void* receive,
                                             const uint64_t* receive_counts, const uint64_t* receive_displacements,
                                             penstock_dtype dtype);
PENSTOCK_API int penstock_ineighbor_allgather(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                              penstock_dtype dtype, penstock_request** request);
PENSTOCK_API int penstock_ineighbor_allgatherv(penstock_comm* comm, const void* send, uint64_t send_count,
                                               void* receive, const uint64_t* counts, const uint64_t* displacements,
                                               penstock_dtype dtype, penstock_request** request);
PENSTOCK_API int penstock_ineighbor_alltoall(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                             penstock_dtype dtype, penstock_request** request);
PENSTOCK_API int penstock_ineighbor_alltoallv(penstock_comm* comm, const void* send, const uint64_t* send_counts,
                                              const uint64_t* send_displacements, void* receive,
                                              const uint64_t* receive_counts, const uint64_t* receive_displacements,
                                              penstock_dtype dtype, penstock_request** request);
PENSTOCK_API int penstock_neighbor_allgather_init(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                                  penstock_dtype dtype, penstock_persistent** persistent);
PENSTOCK_API int penstock_neighbor_allgatherv_init(penstock_comm* comm, const void* send, uint64_t send_count,
                                                   void* receive, const uint64_t* counts, const uint64_t* displacements,
                                                   penstock_dtype dtype, penstock_persistent** persistent);
PENSTOCK_API int penstock_neighbor_alltoall_init(penstock_comm* comm, const void* send, void* receive, uint64_t count,
                                                 penstock_dtype dtype, penstock_persistent** persistent);
PENSTOCK_API int penstock_neighbor_alltoallv_init(penstock_comm* comm, const void* send, const uint64_t* send_counts,
                                                  const uint64_t* send_displacements, void* receive,
                                                  const uint64_t* receive_counts, const uint64_t* receive_displacements,
                                                  penstock_dtype dtype, penstock_persistent** persistent);
/* The numbers of this rank's sources and destinations. Either pointer may be NULL. */
PENSTOCK_API int penstock_comm_degrees(const penstock_comm* comm, size_t* sources, size_t* destinations);

/* Its previous request must be complete. */
PENSTOCK_API int penstock_start(penstock_persistent* persistent, penstock_request** request);
PENSTOCK_API void penstock_persistent_free(penstock_persistent* persistent);

/* User-defined operations, as MPI_Op_create makes: to[i] = from[i] (op) to[i] for `count` elements. If the operation
 * does not commute, `from` has the lower ranks. It must be associative and equal on all ranks. Any thread may call it,
 * several at once. Freeing it does not affect operations that have been started. */
typedef void (*penstock_combine)(const void* from, void* to, uint64_t count, void* context);
PENSTOCK_API int penstock_op_create(penstock_combine combine, void* context, uint64_t element_bytes, int commutative,
                                    penstock_op** op);
/* A predefined operation for reproducible reductions: the same bits for any placement, rank order and segmentation. The
 * contributions to each element are sorted by value before they are combined; scan and exscan combine in rank order.
 * Either all ranks pass such an operation or none does. */
PENSTOCK_API int penstock_op_create_reproducible(penstock_dtype dtype, penstock_reduce_op reduce_op, penstock_op** op);
PENSTOCK_API void penstock_op_free(penstock_op* op);

/* Reductions by such an operation. `count` counts its elements. Blocking, non-blocking and persistent forms. */
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

/* What a rank sends or receives in a collective on items of a datatype. Each block has `count` items, from `buffer` on.
 * If MPI's operation has lists on this side, `counts` (in items) and `displacements` (in extents, may be NULL) have one
 * entry per rank, or per neighbour. `buffer` may be PENSTOCK_IN_PLACE. `datatype` NULL means bytes;
 * penstock_datatype_create in <penstock/penstock_mpi.h> makes others. The struct and its lists are copied. */
typedef struct penstock_items {
  void* buffer; /* of a sender: only read */
  uint64_t count;
  const penstock_datatype* datatype;
  const uint64_t* counts;
  const uint64_t* displacements;
  /* alltoallw and neighbor_alltoallw: one per entry of `counts`, in place of `datatype`. An entry may be NULL: bytes.
   * Then `displacements` is in bytes, and may be negative (int64_t). */
  const penstock_datatype* const* datatypes;
} penstock_items;

PENSTOCK_API void penstock_datatype_free(penstock_datatype* datatype);
/* Collectives that move data, on items of datatypes. Items that are not contiguous are packed and unpacked. The
 * datatypes of the two sides, and of two ranks, may differ if the numbers of bytes match. A side that is not
 * significant on a rank may be NULL. bcast uses `receive` alone. Blocking, non-blocking and persistent forms. */
PENSTOCK_API int penstock_collective_items(penstock_comm* comm, penstock_collective collective,
                                           const penstock_items* send, const penstock_items* receive, int root);
PENSTOCK_API int penstock_icollective_items(penstock_comm* comm, penstock_collective collective,
                                            const penstock_items* send, const penstock_items* receive, int root,
                                            penstock_request** request);
PENSTOCK_API int penstock_collective_items_init(penstock_comm* comm, penstock_collective collective,
                                                const penstock_items* send, const penstock_items* receive, int root,
                                                penstock_persistent** persistent);

/* Complete a request, as MPI_Wait and MPI_Test. When it has completed or failed, it is freed and *request becomes NULL.
 * A NULL request is complete. They return the failure of the operation, once. */
PENSTOCK_API int penstock_wait(penstock_request** request);
PENSTOCK_API int penstock_test(penstock_request** request, int* complete);

/* ---- Stores: versioned blobs. No MPI; any thread; blocking. See <penstock/store.hpp>. ---- */

typedef struct penstock_region {
  uint64_t offset_bytes; /* in the blob */
  void* data;            /* only read from by a write */
  uint64_t size_bytes;
} penstock_region;

#define PENSTOCK_LATEST UINT64_MAX

/* "file:///scratch/run7" or "memory:name"; created if it does not exist. */
PENSTOCK_API int penstock_store_open(const char* url, penstock_store** store);
PENSTOCK_API void penstock_store_free(penstock_store* store);
PENSTOCK_API int penstock_blob_create(penstock_store* store, const char* name, uint64_t size_bytes,
                                      penstock_blob** blob);
PENSTOCK_API int penstock_blob_open(penstock_store* store, const char* name, penstock_blob** blob);
PENSTOCK_API void penstock_blob_free(penstock_blob* blob);
/* Writes all regions as one atomic, durable update; they must not overlap. *version is the version that it makes. */
PENSTOCK_API int penstock_blob_write(penstock_blob* blob, const penstock_region* regions, size_t count,
                                     uint64_t* version);
/* As penstock_blob_write, but only if nothing was written since version `parent`. Else it returns PENSTOCK_exists and
 * writes nothing. Of several concurrent calls with one parent, one succeeds. */
PENSTOCK_API int penstock_blob_write_if(penstock_blob* blob, uint64_t parent, const penstock_region* regions,
                                        size_t count, uint64_t* version);
/* Fills the regions from one version and verifies checksums. */
PENSTOCK_API int penstock_blob_read(penstock_blob* blob, const penstock_region* regions, size_t count,
                                    uint64_t version);
PENSTOCK_API int penstock_blob_latest(penstock_blob* blob, uint64_t* version);
PENSTOCK_API int penstock_blob_size(penstock_blob* blob, uint64_t* size_bytes);
/* Waits until `version` exists. *exists is 0 if it did not appear within the time. */
PENSTOCK_API int penstock_blob_wait(penstock_blob* blob, uint64_t version, double timeout_s, int* exists);

/* ---- Layouts and redistribution. See <penstock/layout.hpp> and <penstock/redistribute.hpp>. ---- */

/* ScaLAPACK's block-cyclic layout of an array of `dimensions` dimensions. `grid_column_major` numbers the ranks over
 * the process grid, `storage_column_major` stores local arrays: row-major (0) or column-major (1). Arrays have one
 * entry per dimension. */
PENSTOCK_API int penstock_layout_block_cyclic(int dimensions, const int64_t* shape, const int64_t* block,
                                              const int64_t* grid, int grid_column_major, int storage_column_major,
                                              penstock_layout** layout);
/* Any grid of two dimensions. `row_splits` has block_rows + 1 borders, from 0 to the number of rows; `column_splits`
 * likewise. `owners` has one rank per block, columns fastest. `ranks` is the number of ranks. */
PENSTOCK_API int penstock_layout_grid(int64_t block_rows, const int64_t* row_splits, int64_t block_columns,
                                      const int64_t* column_splits, const int32_t* owners, int32_t ranks,
                                      penstock_layout** layout);
PENSTOCK_API void penstock_layout_free(penstock_layout* layout);
PENSTOCK_API int penstock_layout_local_size(const penstock_layout* layout, int32_t rank, int64_t* size_elems);
/* The arrays of a rank: its boxes if the layout is made of boxes, otherwise its tiles. *parts is their number. If
 * `shapes` is not NULL, the first `capacity` shapes are written there, one entry per dimension each. */
PENSTOCK_API int penstock_layout_local_parts(const penstock_layout* layout, int32_t rank, int64_t* parts,
                                             int64_t* shapes, int64_t capacity);

/* op is 'N', 'T' or 'C'. With `relabel` the ranks are permuted so that the fewest bytes change their rank. Collective.
 */
PENSTOCK_API int penstock_redistribution_create(penstock_comm* comm, const penstock_layout* source,
                                                const penstock_layout* target, penstock_dtype dtype, char op,
                                                int relabel, penstock_redistribution** redistribution);
/* The same with a source of another type. Its elements are converted to the type of the target before alpha, op and
 * beta are applied. Complex to real and floating point to integer are refused. */
PENSTOCK_API int penstock_redistribution_create_converting(penstock_comm* comm, const penstock_layout* source,
                                                           penstock_dtype source_dtype, const penstock_layout* target,
                                                           penstock_dtype target_dtype, char op, int relabel,
                                                           penstock_redistribution** redistribution);
PENSTOCK_API void penstock_redistribution_free(penstock_redistribution* redistribution);
/* The bytes that change their rank without and with relabeling, and the lengths of this rank's memory. Pointers may be
 * NULL. */
PENSTOCK_API int penstock_redistribution_info(const penstock_redistribution* redistribution, uint64_t* bytes_before,
                                              uint64_t* bytes_after, int64_t* input_elems, int64_t* output_elems);
/* output = alpha*op(input) + beta*output. penstock_redistribution_info gives the sizes of this rank's input and output.
 * Collective. */
PENSTOCK_API int penstock_redistribute(const penstock_redistribution* redistribution, const void* input, void* output,
                                       double alpha, double beta);
PENSTOCK_API int penstock_iredistribute(const penstock_redistribution* redistribution, const void* input, void* output,
                                        double alpha, double beta, penstock_request** request);

/* Scratch memory of the caller in place of the communicator's: any alignment, not overlapping input or output, reusable
 * when the request is complete. *bytes is the size that this rank needs; it may be 0. */
PENSTOCK_API int penstock_redistribution_workspace(const penstock_redistribution* redistribution, uint64_t* bytes);
PENSTOCK_API int penstock_iredistribute_in(const penstock_redistribution* redistribution, const void* input,
                                           void* output, double alpha, double beta, void* workspace,
                                           uint64_t workspace_bytes, penstock_request** request);

/* This rank's arrays (penstock_layout_local_parts), each at an address of its own: `data` has the first element of
 * each, `strides_elems` `dimensions` strides for each, in elements. */
typedef struct penstock_parts {
  int64_t parts;
  void* const* data;
  const int64_t* strides_elems;
} penstock_parts;
/* `workspace` may be NULL. Ranks may call different forms. */
PENSTOCK_API int penstock_iredistribute_parts(const penstock_redistribution* redistribution,
                                              const penstock_parts* input, const penstock_parts* output, double alpha,
                                              double beta, void* workspace, uint64_t workspace_bytes,
                                              penstock_request** request);

/* output = alpha*op(input) + beta*output without a penstock_redistribution. The communicator caches the plans of
 * recent calls, up to the option plan_cache_bytes, so a repeated call needs no planning. Collective. */
PENSTOCK_API int penstock_iredistribute_once(penstock_comm* comm, const penstock_layout* source,
                                             penstock_dtype source_dtype, const void* input,
                                             const penstock_layout* target, penstock_dtype target_dtype, void* output,
                                             char op, double alpha, double beta, penstock_request** request);

#ifdef __cplusplus
}
#endif

#endif
