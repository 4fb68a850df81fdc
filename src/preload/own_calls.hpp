// Included before every file of src/mpi that becomes part of this library: Penstock's own MPI calls go to MPI itself,
// are never intercepted, and are known as such to the progress hook.
#pragma once

#include PENSTOCK_MPI_HEADER

namespace penstock::preload {

/// How many of Penstock's calls the thread is inside. The progress hook does nothing there: the caller may hold locks
/// that the hook would need.
extern constinit thread_local int own_depth __attribute__((tls_model("initial-exec")));

class OwnCall {
 public:
  OwnCall() { ++own_depth; }
  ~OwnCall() { --own_depth; }
  OwnCall(const OwnCall&) = delete;
  OwnCall& operator=(const OwnCall&) = delete;
};

template <auto function>
struct Own;
template <typename Result, typename... Arguments, Result (*function)(Arguments...)>
struct Own<function> {
  static Result call(Arguments... arguments) {
    const OwnCall own;
    return function(arguments...);
  }
};

/// MPI_Iprobe, by which Penstock lets MPI make progress while it holds a lock that the progress hook needs. Finds
/// nothing while the hook runs on another thread.
int probe_outside_hook(int source, int tag, MPI_Comm comm, int* found, MPI_Status* status);

}  // namespace penstock::preload

#ifdef PENSTOCK_OWN_CALLS
// A call of src/mpi that is missing here would be intercepted; tests/layers looks for such.
#define PENSTOCK_OWN(name) ::penstock::preload::Own<&PMPI_##name>::call
#define MPI_Allgather PENSTOCK_OWN(Allgather)
#define MPI_Allgatherv PENSTOCK_OWN(Allgatherv)
#define MPI_Allreduce PENSTOCK_OWN(Allreduce)
#define MPI_Alltoall PENSTOCK_OWN(Alltoall)
#define MPI_Alltoallv PENSTOCK_OWN(Alltoallv)
#define MPI_Alltoallw PENSTOCK_OWN(Alltoallw)
#define MPI_Barrier PENSTOCK_OWN(Barrier)
#define MPI_Bcast PENSTOCK_OWN(Bcast)
#define MPI_Cancel PENSTOCK_OWN(Cancel)
#define MPI_Cart_get PENSTOCK_OWN(Cart_get)
#define MPI_Cartdim_get PENSTOCK_OWN(Cartdim_get)
#define MPI_Comm_create_keyval PENSTOCK_OWN(Comm_create_keyval)
#define MPI_Comm_dup PENSTOCK_OWN(Comm_dup)
#define MPI_Comm_free PENSTOCK_OWN(Comm_free)
#define MPI_Comm_free_keyval PENSTOCK_OWN(Comm_free_keyval)
#define MPI_Comm_get_attr PENSTOCK_OWN(Comm_get_attr)
#define MPI_Comm_get_errhandler PENSTOCK_OWN(Comm_get_errhandler)
#define MPI_Comm_group PENSTOCK_OWN(Comm_group)
#define MPI_Comm_rank PENSTOCK_OWN(Comm_rank)
#define MPI_Comm_set_attr PENSTOCK_OWN(Comm_set_attr)
#define MPI_Comm_set_errhandler PENSTOCK_OWN(Comm_set_errhandler)
#define MPI_Comm_size PENSTOCK_OWN(Comm_size)
#define MPI_Comm_test_inter PENSTOCK_OWN(Comm_test_inter)
#define MPI_Dist_graph_neighbors PENSTOCK_OWN(Dist_graph_neighbors)
#define MPI_Dist_graph_neighbors_count PENSTOCK_OWN(Dist_graph_neighbors_count)
#define MPI_Errhandler_free PENSTOCK_OWN(Errhandler_free)
#define MPI_Error_class PENSTOCK_OWN(Error_class)
#define MPI_Error_string PENSTOCK_OWN(Error_string)
#define MPI_Exscan PENSTOCK_OWN(Exscan)
#define MPI_Finalized PENSTOCK_OWN(Finalized)
#define MPI_Gather PENSTOCK_OWN(Gather)
#define MPI_Gatherv PENSTOCK_OWN(Gatherv)
#define MPI_Get_count PENSTOCK_OWN(Get_count)
#define MPI_Get_elements_x PENSTOCK_OWN(Get_elements_x)
#define MPI_Get_library_version PENSTOCK_OWN(Get_library_version)
#define MPI_Graph_neighbors PENSTOCK_OWN(Graph_neighbors)
#define MPI_Graph_neighbors_count PENSTOCK_OWN(Graph_neighbors_count)
#define MPI_Group_compare PENSTOCK_OWN(Group_compare)
#define MPI_Group_free PENSTOCK_OWN(Group_free)
#define MPI_Iallgather PENSTOCK_OWN(Iallgather)
#define MPI_Iallgatherv PENSTOCK_OWN(Iallgatherv)
#define MPI_Iallreduce PENSTOCK_OWN(Iallreduce)
#define MPI_Ialltoall PENSTOCK_OWN(Ialltoall)
#define MPI_Ialltoallv PENSTOCK_OWN(Ialltoallv)
#define MPI_Ialltoallw PENSTOCK_OWN(Ialltoallw)
#define MPI_Ibarrier PENSTOCK_OWN(Ibarrier)
#define MPI_Ibcast PENSTOCK_OWN(Ibcast)
#define MPI_Iexscan PENSTOCK_OWN(Iexscan)
#define MPI_Igather PENSTOCK_OWN(Igather)
#define MPI_Igatherv PENSTOCK_OWN(Igatherv)
#define MPI_Imrecv PENSTOCK_OWN(Imrecv)
#define MPI_Improbe PENSTOCK_OWN(Improbe)
#define MPI_Initialized PENSTOCK_OWN(Initialized)
#define MPI_Iprobe ::penstock::preload::probe_outside_hook
#define MPI_Irecv PENSTOCK_OWN(Irecv)
#define MPI_Ireduce PENSTOCK_OWN(Ireduce)
#define MPI_Ireduce_scatter PENSTOCK_OWN(Ireduce_scatter)
#define MPI_Ireduce_scatter_block PENSTOCK_OWN(Ireduce_scatter_block)
#define MPI_Is_thread_main PENSTOCK_OWN(Is_thread_main)
#define MPI_Iscan PENSTOCK_OWN(Iscan)
#define MPI_Iscatter PENSTOCK_OWN(Iscatter)
#define MPI_Iscatterv PENSTOCK_OWN(Iscatterv)
#define MPI_Isend PENSTOCK_OWN(Isend)
#define MPI_Query_thread PENSTOCK_OWN(Query_thread)
#define MPI_Recv PENSTOCK_OWN(Recv)
#define MPI_Reduce PENSTOCK_OWN(Reduce)
#define MPI_Reduce_scatter PENSTOCK_OWN(Reduce_scatter)
#define MPI_Reduce_scatter_block PENSTOCK_OWN(Reduce_scatter_block)
#define MPI_Request_free PENSTOCK_OWN(Request_free)
#define MPI_Request_get_status PENSTOCK_OWN(Request_get_status)
#define MPI_Scan PENSTOCK_OWN(Scan)
#define MPI_Scatter PENSTOCK_OWN(Scatter)
#define MPI_Scatterv PENSTOCK_OWN(Scatterv)
#define MPI_Test PENSTOCK_OWN(Test)
#define MPI_Test_cancelled PENSTOCK_OWN(Test_cancelled)
#define MPI_Testsome PENSTOCK_OWN(Testsome)
#define MPI_Topo_test PENSTOCK_OWN(Topo_test)
#define MPI_Type_commit PENSTOCK_OWN(Type_commit)
#define MPI_Type_create_keyval PENSTOCK_OWN(Type_create_keyval)
#define MPI_Type_create_struct PENSTOCK_OWN(Type_create_struct)
#define MPI_Type_free PENSTOCK_OWN(Type_free)
#define MPI_Type_get_attr PENSTOCK_OWN(Type_get_attr)
#define MPI_Type_get_contents PENSTOCK_OWN(Type_get_contents)
#define MPI_Type_get_envelope PENSTOCK_OWN(Type_get_envelope)
#define MPI_Type_get_extent PENSTOCK_OWN(Type_get_extent)
#define MPI_Type_get_true_extent PENSTOCK_OWN(Type_get_true_extent)
#define MPI_Type_set_attr PENSTOCK_OWN(Type_set_attr)
#define MPI_Type_size_x PENSTOCK_OWN(Type_size_x)
#define MPI_Type_vector PENSTOCK_OWN(Type_vector)
#define MPI_Wait PENSTOCK_OWN(Wait)
#ifdef OPEN_MPI
#define MPI_Comm_f2c PENSTOCK_OWN(Comm_f2c)  // elsewhere a macro
#endif
#ifdef MPI_ABI_VERSION
#define MPI_Comm_fromint PENSTOCK_OWN(Comm_fromint)
#endif
#if MPI_VERSION >= 4
#define MPI_Type_get_contents_c PENSTOCK_OWN(Type_get_contents_c)
#define MPI_Type_get_envelope_c PENSTOCK_OWN(Type_get_envelope_c)
#endif
#endif
