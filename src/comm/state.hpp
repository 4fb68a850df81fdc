// What Penstock keeps for a communicator.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/json.hpp"
#include "comm/agreement.hpp"
#include "comm/items.hpp"
#include "comm/native_runs.hpp"
#include "comm/recent_redistributions.hpp"
#include "engine/engine.hpp"
#include "penstock/collective.hpp"
#include "penstock/comm.hpp"
#include "penstock/export.hpp"
#include "penstock/tuning.hpp"
#include "store/checksum.hpp"

namespace penstock {

namespace comm {

/// What an operation sends, watched at debug level 1.
class Guard {
 public:
  Guard() = default;
  Guard(std::string operation, ConstBytes sent);
  /// Throws Error(invalid_argument), once, when the memory has changed since the operation started.
  void check();

 private:
  std::string operation_;
  ConstBytes sent_;
  store::Checksum before_;
};

struct Started {
  std::shared_ptr<engine::Run> run;
  Guard guard{};
  std::shared_ptr<Agreement> agreement{};  ///< at debug level 1

  bool test();
  void wait();
};

/// What a communicator is made over. Without `native` everything is Penstock's own.
struct Link {
  Link(std::unique_ptr<engine::Transport> given, std::unique_ptr<Native> own = nullptr)
      : transport(std::move(given)), native(std::move(own)) {}

  std::unique_ptr<engine::Transport> transport;
  std::unique_ptr<Native> native;  ///< to be destroyed before the transport
};

/// A new link between the same ranks; called collectively, once per communicator and once per duplicate.
using MakeLink = std::function<Link()>;

/// Collective; where it fails on one rank, it fails on all.
PENSTOCK_API Comm make_comm(MakeLink make_link, const CommOptions& options);

/// The same operation, as the key of the plan cache: what means nothing for it has its default, and operations that
/// only move data count in bytes, so that they share their plans and take any element type.
Collective normalized(const Collective& what, int rank);

/// Equal on all ranks exactly where their calls fit together. Takes a normalized operation.
std::uint64_t signature(const Collective& what);

/// Equal where the operations of this rank are.
std::uint64_t local_hash(const Collective& what);

/// The memory that `plan` runs on. Throws Error(invalid_argument) for spans of another size (with counts: for
/// shorter ones), or that overlap.
engine::Bindings bind(const Collective& what, const Plan& plan, ConstBytes input, Bytes output);

/// What is known about a communicator when it has been made.
struct Facts {
  CommOptions options{};
  bool any_thread = false;                     ///< see Comm::any_thread
  bool debug = false;                          ///< whether a rank wants debug level 1 or more
  bool native = true;                          ///< whether all ranks let a table choose MPI's own collectives
  std::vector<std::int32_t> domain_of_rank{};  ///< see Team
  std::string mpi{};                           ///< library, version, settings of its collectives
  std::string tuning{};                        ///< what became of the table that was asked for; empty where none was
  std::string progress_reason{};               ///< how many progress threads, and why
};

class State {
 public:
  State(std::shared_ptr<engine::Engine> engine, std::shared_ptr<NativeRuns> native, MakeLink make_link, Facts facts)
      : engine_(std::move(engine)),
        native_(std::move(native)),
        make_link_(std::move(make_link)),
        facts_(std::move(facts)),
        team_(engine_->team()) {
    team_.domain_of_rank = facts_.domain_of_rank;
  }
  /// Writes what ran where the option `report` asks for it.
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const Team& team() const { return team_; }
  TuningKey tuning_key() const { return penstock::tuning_key(team_, facts_.mpi, facts_.any_thread); }
  /// Rank 0 reads the table at `path`, which only it needs to know, and all use what it found. Collective, before any
  /// other operation; never fails for the sake of a table.
  void read_tuning(const std::string& path);
  engine::Engine& engine() { return *engine_; }
  /// For whoever calls the communicator: by one thread at a time.
  RecentRedistributions& recent_redistributions() { return recent_redistributions_; }
  Comm duplicate() const { return make_comm(make_link_, facts_.options); }
  bool any_thread() const { return facts_.any_thread; }

  /// See Comm::use.
  void use(CollectiveKind kind, const std::string& algorithm, std::uint64_t segment_bytes);
  Started start(const Collective& what, ConstBytes input, Bytes output, std::shared_ptr<const UserOp> user);
  void run(const Collective& what, ConstBytes input, Bytes output, std::shared_ptr<const UserOp> user);
  Started start(std::shared_ptr<const Plan> plan, const engine::Bindings& bindings, const Arithmetic& arithmetic,
                std::uint64_t signature);
  /// See engine::Engine::fail_next.
  void fail_next(const std::string& message) noexcept;
  std::string explain(const Collective& what);
  std::string report();

 private:
  struct Planned {
    Collective what;  ///< normalized
    std::shared_ptr<const Plan> plan;
    std::uint64_t signature = 0;
    std::uint64_t runs = 0;  ///< under the lock
    /// Of MPI's own collective: why. The plan has the sizes of the buffers alone then. Otherwise nullptr.
    std::shared_ptr<const std::string> native_reason{};
  };
  /// The latest call of a kind. A program makes the same one again and again.
  struct Recent {
    Collective asked;
    std::shared_ptr<Planned> planned;  ///< or nullptr
  };
  struct Hash {
    std::size_t operator()(const Collective& what) const { return static_cast<std::size_t>(local_hash(what)); }
  };

  struct Used {
    std::string algorithm;
    std::uint64_t segment_bytes = 0;
  };

  /// With the algorithm that is to be used where none is named.
  Collective with_used(const Collective& asked) const;
  std::shared_ptr<const Planned> plan(const Collective& asked);
  Planned make_planned(const Collective& normalized_what) const;
  /// Why MPI's own collective is to serve it; nullptr where one of ours is. The same on all ranks. Throws
  /// Error(invalid_argument) where it is asked for by name and cannot.
  std::shared_ptr<const std::string> native_reason(const Collective& normalized_what) const;
  Choice choice(const Planned& planned) const;
  struct Prepared {
    std::shared_ptr<const Planned> planned;
    engine::Bindings bindings;
  };
  Started start(const Prepared& prepared, std::shared_ptr<const UserOp> user);
  /// Throws what is wrong with the arguments, after the other ranks have been told. A rank that fails before it has
  /// called MPI's own collective tells nobody.
  Prepared prepare(const Collective& given, ConstBytes input, Bytes output, const UserOp* user);
  /// At debug level 1 every operation, also one that has failed here, begins by this.
  std::shared_ptr<Agreement> agree_on(std::vector<std::uint64_t> card);
  /// What is known of a plan, as the members of a JSON object.
  json::Object facts_of(const Planned& planned) const;

  std::shared_ptr<engine::Engine> engine_;
  std::shared_ptr<NativeRuns> native_;  ///< or nullptr
  MakeLink make_link_;
  Facts facts_;
  Team team_;
  std::map<CollectiveKind, Used> used_;
  std::vector<std::shared_ptr<Agreement>> unwatched_;                     ///< of calls that have failed here
  std::mutex mutex_;                                                      ///< of plans_ and recent_
  std::unordered_map<Collective, std::shared_ptr<Planned>, Hash> plans_;  ///< by Planned::what
  std::array<Recent, kCollectiveKinds> recent_;                           ///< by kind
  RecentRedistributions recent_redistributions_;
};

}  // namespace comm

struct Request::Run {
  explicit Run(std::shared_ptr<comm::State> its_state, comm::Started its_start = {})
      : state(std::move(its_state)), started(std::move(its_start)) {}
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  bool test();
  void wait();

  std::shared_ptr<comm::State> state;          ///< outlives the run
  std::unique_ptr<comm::Unpacking> unpacking;  ///< of a call on items; its memory outlives the run, too
  comm::Started started;
};

}  // namespace penstock
