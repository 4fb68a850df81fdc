// The interface to the collectives of the MPI library. src/mpi implements it for each MPI ABI.
#pragma once

#include <memory>
#include <string_view>

#include "penstock/collective.hpp"
#include "penstock/comm.hpp"
#include "penstock/types.hpp"

namespace penstock::comm {

/// Runs collectives of the library on a private communicator. All ranks start the same operations in the same order and
/// the same form, blocking or not. Failures throw Error(mpi).
class Native {
 public:
  /// The name of the algorithm, in calls and in tuning tables.
  static constexpr std::string_view kName = "native";

  virtual ~Native() = default;

  /// Whether the library can run this operation with these elements and sizes. Equal on all ranks. Takes a normalized
  /// operation.
  virtual bool serves(const Collective& collective) const = 0;
  /// Whether any thread of any rank may call the library: then one thread can block in it while another makes progress
  /// with other operations. Equal on all ranks.
  virtual bool may_block() const = 0;
  /// Blocking. The spans have the sizes that the operation needs.
  virtual void run(const Collective& collective, ConstBytes input, Bytes output) = 0;
  /// The non-blocking form, not started. Its buffers must live until its test() has returned true or thrown.
  virtual std::unique_ptr<ExternalOperation> prepare(const Collective& collective, ConstBytes input, Bytes output) = 0;
};

}  // namespace penstock::comm
