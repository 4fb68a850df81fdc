// Ranks that do not come: named, once for each operation, while it goes on waiting for them.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "engine/executor.hpp"
#include "plan/order.hpp"

namespace penstock::engine {
namespace {

constexpr std::size_t kMostNamed = 8;

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == kMostNamed && ranks.size() > kMostNamed + 2)
      return text + " and " + std::to_string(ranks.size() - i) + " others";
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace

// Whether anything of the operation has come from this rank.
bool Executor::has_called(const Operation& operation, int peer) const {
  for (StepId step = 0; step < operation.plan->steps.size(); ++step) {
    const Step& what = operation.plan->steps[step];
    if (plan::takes(what.kind) && what.peer == peer && (operation.flags[step] & Operation::matched)) return true;
  }
  return operation.open_sets != 0 && is_local(peer) &&
         board_->entry(operation.sequence, local(peer)).sequence.load(std::memory_order_seq_cst) == operation.sequence;
}

// Called every now and then by a thread that waits. Silence is that nothing has come for the operation.
void Executor::watch_silence(Operation& operation) {
  if (options_.silence_ms <= 0 || operation.silence_told) return;
  std::uint64_t mark = operation.steps_left;
  receives_.for_each([&](const ReceiveTransfer& transfer) {
    if (transfer.operation == &operation) mark += transfer.received_bytes;
  });
  sends_.for_each([&](const SendTransfer& transfer) {
    if (transfer.operation == &operation) mark += transfer.sent_bytes;
  });
  const auto now = std::chrono::steady_clock::now();
  if (mark != operation.silence_mark || operation.executing > 0) {
    operation.silence_mark = mark;
    operation.silent_since = now;
    return;
  }
  const auto silent = std::chrono::duration_cast<std::chrono::milliseconds>(now - operation.silent_since);
  if (silent.count() < options_.silence_ms) return;
  std::vector<int> missing = missing_peers(operation);
  std::erase(missing, rank_);
  if (missing.empty()) return;
  std::vector<int> absent = missing;
  std::erase_if(absent, [&](int peer) { return has_called(operation, peer); });
  operation.silence_told = true;
  const std::string text = "rank " + std::to_string(rank_) + " has heard nothing for " +
                           std::to_string(silent.count() / 1000) + "." + std::to_string(silent.count() / 100 % 10) +
                           " s in " + describe(operation) + ": it waits for " +
                           ranks_text(absent.empty() ? missing : absent) +
                           (absent.empty() ? ", from which more has to come" : ", from which nothing has come") +
                           "; it goes on waiting (PENSTOCK_SILENCE_MS=0: without this line)";
  std::fprintf(stderr, "penstock: %s\n", text.c_str());
  ++silences_;
  last_silence_ = text;
}

}  // namespace penstock::engine
