// The state of a communicator.
#pragma once

#include <memory>
#include <string>
#include <typeindex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "comm/agreement.hpp"
#include "comm/check.hpp"
#include "comm/facts.hpp"
#include "comm/items.hpp"
#include "comm/link.hpp"
#include "comm/native_runs.hpp"
#include "comm/planner.hpp"
#include "comm/started.hpp"
#include "engine/engine.hpp"
#include "penstock/collective.hpp"
#include "penstock/comm.hpp"

namespace penstock {

namespace comm {

/// What a State consists of beside its engine.
struct StateParts {
  std::shared_ptr<NativeRuns> native;
  MakeLink make_link;
  Facts facts;
};

/// Owned by the copies of a Comm. The planner decides what a call runs, the engine or MPI runs it, and at debug level 1
/// the ranks first agree on it.
class State {
 public:
  State(std::shared_ptr<engine::Engine> engine, StateParts parts)
      : engine_(std::move(engine)),
        native_(std::move(parts.native)),
        make_link_(std::move(parts.make_link)),
        facts_(std::move(parts.facts)),
        planner_(facts_, native_->native()),
        agreements_(*engine_, facts_.debug) {}
  /// Writes the report if the option `report` is set.
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  /// Takes apart one that no call has used.
  StateParts dissolve() noexcept {
    engine_ = nullptr;
    return {std::move(native_), std::move(make_link_), std::move(facts_)};
  }
  /// Allocates nothing if the text is as long as what Facts::progress_reason has reserved.
  void set_progress_reason(const char* reason) { facts_.progress_reason = reason; }

  const Facts& facts() const { return facts_; }
  const Team& team() const { return facts_.team; }
  engine::Engine& engine() { return *engine_; }
  Planner& planner() { return planner_; }
  Comm duplicate() const { return make_comm(make_link_, facts_.options); }
  /// State of a layer above: one object of each type, constructed from these arguments by the first call. One thread at
  /// a time.
  template <class T, class... Arguments>
  T& kept_with(Arguments&&... arguments) {
    std::shared_ptr<void>& slot = kept_[typeid(T)];
    if (slot == nullptr) slot = std::make_shared<T>(std::forward<Arguments>(arguments)...);
    return *static_cast<T*>(slot.get());
  }

  Started start(const Collective& collective, ConstBytes input, Bytes output, std::shared_ptr<const UserOp> user);
  void run(const Collective& collective, ConstBytes input, Bytes output, std::shared_ptr<const UserOp> user);
  /// See Comm::run_again.
  bool run_again(const PlainCall& call, const void* send, void* receive);
  Started start(std::shared_ptr<const Plan> plan, const engine::Bindings& bindings, const Arithmetic& arithmetic,
                std::uint64_t signature);
  /// See Comm::start_external.
  Started start_external(std::unique_ptr<ExternalOperation> operation, std::uint64_t signature);
  /// See engine::Engine::fail_next.
  void fail_next(const std::string& message) noexcept;
  void set_timeout(std::chrono::milliseconds timeout) noexcept { engine_->set_timeout(timeout); }
  std::string report();

 private:
  struct Prepared {
    std::shared_ptr<const Planned> planned;
    engine::Bindings bindings;
    std::shared_ptr<const std::vector<std::byte>> contribution{};  ///< see Started
  };
  Started start(const Prepared& prepared, std::shared_ptr<const UserOp> user);
  /// Throws if the arguments are wrong, after it has failed the operation on the other ranks. If MPI's own collective
  /// would run, the other ranks are not told.
  Prepared prepare(const Collective& given, ConstBytes input, Bytes output, const UserOp* user);

  std::shared_ptr<engine::Engine> engine_;
  std::shared_ptr<NativeRuns> native_;
  MakeLink make_link_;
  Facts facts_;
  Planner planner_;
  Agreements agreements_;
  std::unordered_map<std::type_index, std::shared_ptr<void>> kept_;
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
  /// Unpacks what an operation on items has received, if `is_over()`. Returns what that has returned.
  template <typename IsOver>
  bool unpack_if(const IsOver& is_over);

  std::shared_ptr<comm::State> state;          ///< outlives the run
  std::unique_ptr<comm::Unpacking> unpacking;  ///< of a call on items; its memory outlives the run
  comm::Started started;
};

}  // namespace penstock
