// The state of one run of a plan.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/compiled_plan.hpp"
#include "engine/engine.hpp"
#include "engine/message.hpp"

namespace penstock::engine {

/// A message that came before its step was ready.
struct StoredMessage {
  Header header;
  std::byte* payload = nullptr;  ///< of the engine's pool
  std::uint64_t payload_bytes = 0;
  StoredMessage* next = nullptr;
};

/// Protected by the engine's lock, but for `finished` and `delivered`. Made by start(), or earlier by the first message
/// for an operation that this rank has not started yet. Returns to the engine's pool when it has left the window and
/// the caller has dropped its Run.
struct Operation {
  std::uint64_t sequence = 0;
  std::uint64_t signature = 0;
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const CompiledPlan> compiled;
  Bindings bindings;
  Arithmetic arithmetic;

  bool started = false;  ///< start() or fail_next() has been called for it
  bool running = false;  ///< its steps are being issued
  bool failed = false;
  bool in_window = false;
  bool has_run = false;
  bool by_flags = false;  ///< in Executor::flagged_
  bool shown = false;     ///< what it shows by flags lies there already
  std::optional<Error> error;

  std::byte* scratch = nullptr;
  std::byte* shared = nullptr;
  std::uint64_t shared_offset = 0;                ///< of `shared` in this rank's arena
  std::vector<std::uint64_t> peer_shared_offset;  ///< by local rank, from their expose messages

  std::uint64_t entered_sets = 0;          ///< bits: share steps whose tasks this rank has entered on the board
  std::uint64_t open_sets = 0;             ///< of these, the ones that are not complete
  std::uint32_t scan_from = 0;             ///< no task before it is left to claim
  std::array<std::uint64_t, 2> scanned{};  ///< by Caller: version of the board + 1 when no task could be claimed
  bool sharing = false;                    ///< in Executor::sharing_
  bool leaves_node = false;                ///< counted in Executor::leaving_

  enum StepFlag : std::uint8_t { matched = 1, posted = 2 };
  std::vector<std::uint32_t> waiting_for;  ///< dependencies left, by step
  std::vector<std::uint8_t> flags;         ///< StepFlag, by step
  std::vector<StoredMessage*> arrived;     ///< by step: matched before the step was ready
  std::vector<std::uint32_t> announced;    ///< by step: the number of a transfer that the receiver knows of; or empty
  StepId announce_from = 0;                ///< sends before it are announced, or need not be
  std::uint32_t announced_ahead = 0;       ///< of `announced`, before they were ready, and not sent yet
  StoredMessage* early_first = nullptr;    ///< came before start()
  StoredMessage* early_last = nullptr;
  std::size_t steps_left = 0;
  std::uint32_t executing = 0;       ///< steps that a thread works on outside of the lock
  std::uint32_t remote_pending = 0;  ///< transport calls in flight for it, and control messages that wait for cells
  std::uint32_t probes_sent = 0;
  std::uint64_t silence_mark = ~std::uint64_t{0};        ///< of the last check: changes with whatever comes
  std::chrono::steady_clock::time_point silent_since{};  ///< when it changed
  bool silence_told = false;
  std::uint64_t begin_ns = 0;  ///< when tracing

  std::atomic<bool> finished{false};
  std::atomic<bool> delivered{false};
};

}  // namespace penstock::engine
