#include "preload/communicators.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <numeric>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/mpi.hpp"
#include "preload/own_calls.hpp"
#include "preload/report.hpp"
#include "preload/requests.hpp"
#include "preload/settings.hpp"

namespace penstock::preload {

constinit thread_local int own_depth __attribute__((tls_model("initial-exec"))) = 0;
bool passes_nonblocking = false;
std::atomic<std::uint64_t> generation{1};
constinit thread_local Last last __attribute__((tls_model("initial-exec"))){};

namespace {

/// Never destroyed: MPI_Finalize may run in an exit handler.
struct Registry {
  std::shared_mutex mutex;
  std::map<MPI_Comm, std::shared_ptr<Communicator>> by_handle;
  std::uint64_t next_number = 0;
  int key = MPI_KEYVAL_INVALID;
};

Registry& registry() {
  static auto* const made = new Registry;
  return *made;
}

std::atomic<bool> finalizes{false};

/// Whether all ranks of MPI_COMM_WORLD are on one node.
bool job_on_one_node = false;

void forget(Communicator* known) {
  std::shared_ptr<Communicator> owned;
  {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    const auto at = all.by_handle.find(known->handle);
    if (at == all.by_handle.end() || at->second.get() != known) return;
    owned = std::move(at->second);
    all.by_handle.erase(at);
    generation.fetch_add(1, std::memory_order_release);
  }
  add_to_report(*owned);
  const OwnCall own;
  owned.reset();
}

extern "C" int penstock_preload_forget(MPI_Comm, int, void* known, void*) {
  forget(static_cast<Communicator*>(known));
  return MPI_SUCCESS;
}

bool is_running() {
  int initialized = 0;
  int finalized = 0;
  PMPI_Initialized(&initialized);
  PMPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

/// Whether all processes of a communicator belong to this job. If not, none of them finds it so: each knows one of
/// another job.
bool is_of_one_job(MPI_Comm comm, int ranks) {
  MPI_Group members = MPI_GROUP_NULL;
  MPI_Group job = MPI_GROUP_NULL;
  PMPI_Comm_group(comm, &members);
  PMPI_Comm_group(MPI_COMM_WORLD, &job);
  std::vector<int> in_comm(static_cast<std::size_t>(ranks));
  std::vector<int> in_job(in_comm.size(), MPI_UNDEFINED);
  std::iota(in_comm.begin(), in_comm.end(), 0);
  PMPI_Group_translate_ranks(members, ranks, in_comm.data(), job, in_job.data());
  PMPI_Group_free(&members);
  PMPI_Group_free(&job);
  return std::find(in_job.begin(), in_job.end(), MPI_UNDEFINED) == in_job.end();
}

bool serves_only_blocking() { return settings().verifies || !has_progress_hook(); }

std::unique_ptr<Communicator> describe(MPI_Comm comm) {
  auto made = std::make_unique<Communicator>();
  made->handle = comm;
  int is_inter = 0;
  if (PMPI_Comm_test_inter(comm, &is_inter) != MPI_SUCCESS) return nullptr;
  PMPI_Comm_rank(comm, &made->rank);
  PMPI_Comm_size(comm, &made->ranks);
  made->times = settings().times;
  made->verifies = settings().verifies;
  made->only_blocking = serves_only_blocking();
  if (!settings().serves)
    made->why_native = "a broken option";
  else if (is_inter != 0)
    made->why_native = "an inter-communicator";
  else if (made->ranks == 1)
    made->why_native = "one rank";
  else if (finalizes.load(std::memory_order_relaxed))
    made->why_native = "MPI_Finalize has begun";
  // Another job may run without this library, so its ranks would not take part in preparing one.
  else if (!is_of_one_job(comm, made->ranks))
    made->why_native = "processes of several jobs";
  return made;
}

Communicator* meet(MPI_Comm comm) {
  if (comm == MPI_COMM_NULL || !is_running()) return nullptr;
  std::unique_ptr<Communicator> made = describe(comm);
  if (made == nullptr) return nullptr;
  Registry& all = registry();
  Communicator* known = made.get();
  {
    const std::lock_guard lock(all.mutex);
    if (const auto at = all.by_handle.find(comm); at != all.by_handle.end()) return at->second.get();
    if (all.key == MPI_KEYVAL_INVALID)
      PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, penstock_preload_forget, &all.key, nullptr);
    made->number = all.next_number++;
    all.by_handle.emplace(comm, std::move(made));
  }
  if (PMPI_Comm_set_attr(comm, all.key, known) != MPI_SUCCESS) {
    forget(known);
    return nullptr;
  }
  return known;
}

}  // namespace

Communicator* look_up(MPI_Comm comm, std::uint64_t now) {
  Communicator* found = nullptr;
  {
    Registry& all = registry();
    const std::shared_lock lock(all.mutex);
    if (const auto at = all.by_handle.find(comm); at != all.by_handle.end()) found = at->second.get();
  }
  if (found == nullptr) found = meet(comm);
  if (found != nullptr) last = {comm, found, now};
  return found;
}

std::shared_ptr<Communicator> shared(const Communicator& on) {
  Registry& all = registry();
  const std::shared_lock lock(all.mutex);
  return all.by_handle.at(on.handle);
}

void begin_job() {
  MPI_Comm node = MPI_COMM_NULL;
  if (PMPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node) != MPI_SUCCESS) return;
  int on_node = 0;
  int place = 0;
  int ranks = 0;
  PMPI_Comm_size(node, &on_node);
  PMPI_Comm_rank(node, &place);
  PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
  PMPI_Comm_free(&node);
  job_on_one_node = on_node == ranks;
  agree_on_settings(place == 0);
  passes_nonblocking = serves_only_blocking() && !settings().times;
}

void prepare(Communicator& on) {
  try {
    const OwnCall own;
    on.penstock = std::make_unique<Comm>(make_comm(on.handle));
    const Team& team = on.penstock->team();
    bool one_node = true;
    for (int rank = 1; rank < team.size(); ++rank) one_node = one_node && team.same_node(0, rank);
    on.one_node = one_node && job_on_one_node;
    if (settings().measures) {
      on.measured = std::make_unique<Measured>();
      // Progress threads move operations on while the program computes, which MPI does not.
      on.measured->has_nonblocking = team.progress_cores == 0;
      if (one_node) on.measured->blocking.share(*on.penstock, on.members());
    }
    if (one_node || !job_on_one_node) return;
    // The progress hook of such a job must never meet operations between nodes.
    on.measured.reset();
    on.penstock.reset();
    on.why_native = "ranks without shared memory in a job on one node";
  } catch (const std::exception& error) {
    on.penstock.reset();
    on.why_native = error.what();
    if (on.rank == 0)
      std::fprintf(stderr, "penstock: %s; the collectives of a communicator of %d ranks stay MPI's\n", error.what(),
                   on.ranks);
  }
}

void forget_all() {
  finalizes.store(true, std::memory_order_relaxed);
  Registry& all = registry();
  std::vector<std::pair<std::uint64_t, MPI_Comm>> in_order;
  {
    const std::shared_lock lock(all.mutex);
    for (const auto& [handle, known] : all.by_handle) in_order.emplace_back(known->number, handle);
  }
  std::sort(in_order.begin(), in_order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [number, handle] : in_order) PMPI_Comm_delete_attr(handle, all.key);
}

}  // namespace penstock::preload
