// Who serves a non-blocking collective. The ranks cannot agree inside one, since it must not wait for others. So MPI
// and Penstock are measured beside the program, with buffers of their own, inside a later call that waits for all
// ranks.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "penstock/comm.hpp"
#include "preload/batch.hpp"
#include "preload/by_length.hpp"
#include "preload/call.hpp"
#include "preload/looks.hpp"
#include "preload/trial.hpp"

namespace penstock::preload {

/// Those of one communicator, whose ranks all make the same calls, so their members do the same on all ranks.
class Rehearsals {
 public:
  /// What this rank has kept of the calls for a look, the same ones on all ranks.
  struct Kept {
    Looks looks{};
    std::vector<Pattern> patterns{};
    bool is_whole = true;  ///< none is missing
  };

  /// An operation and length, or an operation with lists.
  struct Part {
    explicit Part(std::uint64_t bytes) : trial(bytes, Trial::Cost::all_calls) {}
    explicit Part(std::unique_ptr<Kept> of_lists) : trial(Looks::new_trial()), kept(std::move(of_lists)) {}
    /// Counts a call for which nothing is to be done. False, and it counts nothing, for others.
    bool rests() noexcept;
    void count_in_flight() noexcept;

    Trial trial;
    std::unique_ptr<Kept> kept{};  ///< with lists
    std::uint64_t calls = 0;       ///< before there is a choice; later ones are not counted on all ranks
    /// At once, at most, of this process with those of other operations, while Penstock serves them.
    std::uint64_t in_flight = 1;
  };

  /// That of a non-blocking call, which it counts: now and then the operation and length is rehearsed. nullptr if
  /// Penstock serves it without.
  Part* of(const Call& call, const Members& members);
  bool are_due() const noexcept { return !due_.empty(); }
  /// Rehearses what is due. Collective. Throws Penstock's Error.
  void run(Comm& penstock, const Members& members);

 private:
  struct Due {
    Part* part;
    Call like;  ///< without its buffers
    std::uint64_t bytes;
  };
  struct Size;

  Part* of_lists(const Call& call, const Members& members);
  static void look(Part& part, Comm& penstock, const Members& members);
  static void rehearse(Part& part, std::vector<Pattern> patterns, const Size& size, Comm& penstock,
                       const Members& members);

  ByLength<Part> parts_{};
  std::array<std::unique_ptr<Part>, kCollectiveKinds> of_lists_{};
  std::vector<Due> due_{};
};

}  // namespace penstock::preload
