#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "comm/state.hpp"
#include "penstock/error.hpp"
#include "penstock/options.hpp"

namespace penstock::comm {
namespace {

struct Progress {
  int threads = 0;
  std::string reason;
};

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

Progress choose_progress(const CommOptions& given, const engine::Transport& transport) {
  const std::int64_t wanted = given.progress_cores != -1 ? given.progress_cores : options().progress_cores;
  if (wanted < -1)
    throw Error(ErrorCode::invalid_argument, "progress_cores is " + std::to_string(wanted) +
                                                 "; expected -1 (automatic), 0 (off) or a number of threads");
  if (wanted == 0) return {0, "0, as asked for"};
  if (!transport.any_thread())
    return {0, "0, since MPI was initialized without MPI_THREAD_MULTIPLE: call MPI_Init_thread to have one"};
  if (wanted > 0) return {1, "1, as asked for"};
  if (transport.size() == 1) return {0, "0, since a single rank waits for nobody"};

  const auto& nodes = transport.node_of_rank();
  const auto ranks = std::count(nodes.begin(), nodes.end(), nodes[static_cast<std::size_t>(transport.rank())]);
  const int cores = usable_cores();
  const std::string facts =
      std::to_string(cores) + " usable cores for " + std::to_string(ranks) + " ranks on this node";
  if (cores > ranks) return {1, "1, since a core is free: " + facts};
  return {0, "0, since no core is free: " + facts};
}

/// Every rank throws if `mine` holds an error on any of them; they have all come here.
void agree_on(engine::Transport& transport, const std::optional<Error>& mine) {
  struct Report {
    std::int32_t code;
    std::array<char, 508> text;
  };
  Report report{};
  if (mine) {
    report.code = static_cast<std::int32_t>(mine->code());
    std::strncpy(report.text.data(), mine->what(), report.text.size() - 1);
  }
  std::vector<Report> all(static_cast<std::size_t>(transport.size()));
  transport.allgather(std::as_bytes(std::span(&report, 1)), std::as_writable_bytes(std::span(all)));
  if (mine) throw *mine;
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r].code != 0) throw Error(ErrorCode::peer_failed, all[r].text.data(), static_cast<int>(r));
}

}  // namespace

Comm make_comm(MakeTransport make_transport, const CommOptions& given) {
  std::unique_ptr<engine::Transport> transport = make_transport();
  engine::EngineOptions settings;
  Facts facts{given, transport->any_thread(), {}};
  std::optional<Error> failure;
  try {
    const Options& wanted = options();
    settings.eager_bytes = wanted.eager_bytes;
    settings.shared_bytes = wanted.shared_bytes;
    settings.shared_memory = wanted.shared_memory;
    settings.single_copy = wanted.single_copy;
    Progress progress = choose_progress(given, *transport);
    settings.progress_threads = progress.threads;
    facts.progress_reason = std::move(progress.reason);
  } catch (const Error& error) {
    failure = error;
  }
  agree_on(*transport, failure);
  std::shared_ptr<engine::Engine> engine = engine::Engine::create(std::move(transport), settings);
  return Comm(std::make_shared<State>(std::move(engine), std::move(make_transport), std::move(facts)));
}

}  // namespace penstock::comm
