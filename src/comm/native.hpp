// What a communicator can leave to the collectives of the library below it. src/mpi implements it for each MPI ABI.
#pragma once

#include <memory>
#include <string_view>

#include "penstock/collective.hpp"
#include "penstock/types.hpp"

namespace penstock::comm {

/// Operations that the library runs by itself, on a communicator that nobody else starts operations on. All ranks start
/// the same ones in the same order and in the same form, blocking or not. Failures throw Error(mpi).
class Native {
 public:
  /// As the caller's algorithm, and in tuning tables.
  static constexpr std::string_view kName = "native";

  /// An operation in flight. Not thread-safe. Its buffers must live until test() was true or has thrown.
  class Pending {
   public:
    virtual ~Pending() = default;
    virtual bool test() = 0;
  };

  virtual ~Native() = default;

  /// Whether the library has this operation, for these elements and sizes. The same on all ranks: a function of what
  /// all of them know. Takes a normalized operation.
  virtual bool serves(const Collective& collective) const = 0;
  /// Whether any thread of any rank may call the library, so that one can wait inside of it while another goes on
  /// with what else is in flight. The same on all ranks.
  virtual bool may_block() const = 0;
  /// Spans as large as the operation needs, see State.
  virtual void run(const Collective& collective, ConstBytes input, Bytes output) = 0;
  virtual std::unique_ptr<Pending> start(const Collective& collective, ConstBytes input, Bytes output) = 0;
};

}  // namespace penstock::comm
