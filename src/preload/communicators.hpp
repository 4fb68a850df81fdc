// What the library knows of each communicator of the program: who serves its collectives, and what has been served.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "penstock/comm.hpp"
#include "preload/call.hpp"
#include "preload/contests.hpp"
#include "preload/recent.hpp"
#include "preload/rehearsals.hpp"

namespace penstock::preload {

enum class Form : std::uint8_t { blocking, nonblocking, persistent };
inline constexpr std::size_t kForms = 3;

/// The calls of one operation in one form.
struct Tally {
  std::uint64_t served = 0;
  std::uint64_t native = 0;
  std::uint64_t served_bytes = 0;
  std::uint64_t native_bytes = 0;
  std::uint64_t served_ticks = 0;  ///< of ticks()
  std::uint64_t native_ticks = 0;
  std::uint64_t verified = 0;
  std::uint64_t differed = 0;
  const char* reason = nullptr;  ///< why calls were native; the last one
};

struct Channel;

/// Who is faster, by form.
struct Measured {
  Contests blocking{};
  Rehearsals nonblocking{};
  bool has_nonblocking = false;  ///< otherwise Penstock serves them all

  /// Whether the next call that waits for all ranks settles or rehearses something. Equal on all ranks.
  bool is_due() const noexcept { return blocking.are_due() || nonblocking.are_due(); }
  /// Does that. Collective; waits for all ranks. Throws Penstock's Error.
  void settle(Comm& penstock, const Members& members) {
    blocking.settle(penstock);
    nonblocking.run(penstock, members);
  }
};

/// One communicator. All members change only inside collective calls on it, which MPI wants one at a time; the tallies
/// of persistent operations under a lock of their own.
struct Communicator {
  MPI_Comm handle = MPI_COMM_NULL;
  int rank = 0;
  int ranks = 1;
  std::uint64_t number = 0;              ///< in the order in which this process met them
  std::uint64_t weight = 0;              ///< of the calls until it is prepared; equal on all ranks
  std::unique_ptr<Comm> penstock{};      ///< once it is prepared
  std::string why_native{};              ///< never to be prepared
  std::unique_ptr<Measured> measured{};  ///< once it is prepared, if calls are measured
  bool one_node = false;                 ///< once it is prepared: all ranks of the job are on one node
  bool times = false;                    ///< calls are timed for the report
  bool verifies = false;
  bool only_blocking = false;  ///< others are MPI's
  Recent blocking_recent{};    ///< once it is prepared
  Recent nonblocking_recent{};
  std::vector<std::shared_ptr<Channel>> channels{};  ///< of persistent operations; equal on all ranks
  std::array<std::array<Tally, kForms>, kCollectiveKinds> tallies{};

  Members members() const { return {rank, ranks, penstock == nullptr ? nullptr : penstock->graph().get()}; }
  Recent& recent(Form form) { return form == Form::blocking ? blocking_recent : nonblocking_recent; }
  Tally& tally(CollectiveKind kind, Form form) {
    return tallies[static_cast<std::size_t>(kind)][static_cast<std::size_t>(form)];
  }
};

/// Whether MPI has all non-blocking collectives of this job, and nobody counts them. Set when the job begins.
extern bool passes_nonblocking;

/// Changes whenever a communicator is forgotten, since MPI may give its handle to another.
extern std::atomic<std::uint64_t> generation;

/// The communicator that the thread has used last.
struct Last {
  MPI_Comm handle{};
  Communicator* found = nullptr;
  std::uint64_t generation = 0;
};
extern constinit thread_local Last last __attribute__((tls_model("initial-exec")));

/// communicator_of() for another than the last one.
Communicator* look_up(MPI_Comm comm, std::uint64_t now);

/// nullptr for MPI_COMM_NULL, and outside of MPI_Init and MPI_Finalize.
inline Communicator* communicator_of(MPI_Comm comm) {
  const std::uint64_t now = generation.load(std::memory_order_acquire);
  return last.generation == now && last.handle == comm ? last.found : look_up(comm, now);
}

/// Shares the ownership, so that its life can be watched.
std::shared_ptr<Communicator> shared(const Communicator& on);

/// Makes Penstock's communicator. Collective: `on` is about to enter a blocking collective that synchronises all ranks.
/// If it fails, it fails on all ranks, and the communicator stays native.
void prepare(Communicator& on);

/// At the end of MPI_Init: finds out whether all ranks of the job are on one node. Collective.
void begin_job();

/// At MPI_Finalize: forgets all communicators, in the order in which this process met them. Collectives that the
/// program still calls, as MPI deletes its attributes, are MPI's.
void forget_all();

}  // namespace penstock::preload
