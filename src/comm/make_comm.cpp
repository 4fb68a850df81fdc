#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <limits>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/domains.hpp"
#include "comm/state.hpp"
#include "comm/workers.hpp"
#include "penstock/error.hpp"
#include "penstock/options.hpp"

namespace penstock::comm {
namespace {

int wanted_progress_cores(const CommOptions& given) {
  const std::int64_t wanted = given.progress_cores != -1 ? given.progress_cores : options().progress_cores;
  if (wanted < -1)
    throw Error(ErrorCode::invalid_argument,
                "progress_cores is " + std::to_string(wanted) +
                    "; expected -1 (automatic), 0 (off) or a number of communication cores per node");
  return static_cast<int>(std::min<std::int64_t>(wanted, std::numeric_limits<int>::max()));
}

/// What each rank tells the others: its failure, if it has one, and its settings.
struct RankInfo {
  std::int32_t code;
  std::array<char, 506> text;
  std::uint8_t tunes;  ///< it has a tuning table
  std::uint8_t debug;
  std::uint8_t native;
  std::int32_t domain;
  std::uint64_t plan_cache_bytes;
  WorkerInfo worker;
};

void write_failure(RankInfo& info, ErrorCode code, const char* text) {
  info.code = static_cast<std::int32_t>(code);
  std::strncpy(info.text.data(), text, info.text.size() - 1);
}

/// Called by all ranks. If a rank has a failure, all ranks throw; that rank throws its own `failure`.
void exchange(engine::Transport& transport, const RankInfo& mine, std::span<RankInfo> all, std::exception_ptr failure) {
  transport.allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(all));
  if (failure != nullptr) std::rethrow_exception(failure);
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r].code != 0) throw Error(ErrorCode::peer_failed, all[r].text.data(), static_cast<int>(r));
}

}  // namespace

Comm make_comm(MakeLink make_link, const CommOptions& given) {
  Link link = make_link();
  if (link.duplicate) make_link = std::move(link.duplicate);
  std::unique_ptr<engine::Transport> transport = std::move(link.transport);
  // Allocated first: without it, this rank could not tell the others about a failure, and they would wait for it.
  std::vector<RankInfo> infos(static_cast<std::size_t>(transport->size()));
  RankInfo mine{};
  std::exception_ptr failure;
  engine::EngineOptions settings;
  Facts facts;
  std::string table;
  std::vector<WorkerInfo> worker_infos;
  std::vector<std::int32_t> local_domains;
  std::optional<WorkerAgreement> workers_of_all;
  try {
    const Options& wanted = options();
    settings.eager_bytes = wanted.eager_bytes;
    settings.stall_timeout_ms = wanted.stall_timeout_ms;
    settings.shared_bytes = wanted.shared_bytes;
    settings.shared_memory = wanted.shared_memory;
    settings.single_copy = wanted.single_copy;
    const std::string description = transport->description();
    facts.options = given;
    facts.any_thread = transport->any_thread();
    facts.mpi = description.substr(0, description.rfind(" ("));
    facts.plan_cache_bytes = wanted.plan_cache_bytes;
    table = wanted.tuning;
    worker_infos.resize(infos.size());
    local_domains.resize(infos.size());
    workers_of_all.emplace(*transport);
    mine.debug = wanted.debug > 0 ? 1 : 0;
    mine.native = wanted.native ? 1 : 0;
    mine.plan_cache_bytes = wanted.plan_cache_bytes;
    mine.tunes = table.empty() ? 0 : 1;
    mine.worker = worker_info(wanted_progress_cores(given), *transport);
    mine.domain = local_domain();
  } catch (const std::bad_alloc&) {
    write_failure(mine, ErrorCode::no_space, "there is not enough memory for a communicator");
    failure = std::current_exception();
  } catch (const Error& error) {
    write_failure(mine, error.code(), error.what());
    failure = std::current_exception();
  } catch (const std::exception& error) {
    write_failure(mine, ErrorCode::internal, error.what());
    failure = std::current_exception();
  }
  exchange(*transport, mine, infos, failure);
  for (std::size_t rank = 0; rank < infos.size(); ++rank) {
    worker_infos[rank] = infos[rank].worker;
    local_domains[rank] = infos[rank].domain;
    facts.debug = facts.debug || infos[rank].debug != 0;
    facts.native = facts.native && infos[rank].native != 0;
    facts.plan_cache_bytes = std::min(facts.plan_cache_bytes, infos[rank].plan_cache_bytes);
  }
  Workers workers = workers_of_all->reach(*transport, worker_infos);
  settings.progress_threads = static_cast<int>(workers.cpus.size());
  settings.progress_cpus = std::move(workers.cpus);
  settings.progress_cores = workers.per_node;
  facts.progress_reason = std::move(workers.reason);
  std::shared_ptr<engine::Engine> engine = engine::Engine::create(std::move(transport), settings);
  facts.team = engine->team();
  facts.team.domain_of_rank = domains_of_ranks(engine->team().node_of_rank, local_domains);
  std::shared_ptr<NativeRuns> native;
  if (link.native != nullptr)
    native = std::make_shared<NativeRuns>(std::move(link.native), facts.any_thread, settings.progress_threads > 0);
  if (infos[0].tunes != 0) read_tuning(*engine, facts, table);
  const auto end = [run = std::move(link.end)](State* state) noexcept {
    if (!run) return delete state;
    try {
      run([state] { delete state; });
    } catch (const std::exception&) {
      // Out of memory: the communicator is leaked.
    }
  };
  return Comm(std::shared_ptr<State>(
      new State(std::move(engine), std::move(native), std::move(make_link), std::move(facts)), end));
}

}  // namespace penstock::comm
