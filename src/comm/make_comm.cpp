#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/parts/group.hpp"
#include "comm/state.hpp"
#include "comm/workers.hpp"
#include "engine/all_or_none.hpp"
#include "engine/node_setup.hpp"
#include "host/domains.hpp"
#include "host/node_names.hpp"
#include "host/topology.hpp"
#include "measurement/machine.hpp"
#include "measurement/node_rows.hpp"
#include "penstock/choice_by_cost.hpp"
#include "penstock/cost_model.hpp"
#include "penstock/error.hpp"
#include "penstock/options.hpp"

namespace penstock::comm {
namespace {

using engine::all_or_none;

int wanted_progress_cores(const CommOptions& given) {
  const std::int64_t wanted = given.progress_cores != -1 ? given.progress_cores : options().progress_cores;
  if (wanted < -1)
    throw Error(ErrorCode::invalid_argument,
                "progress_cores is " + std::to_string(wanted) +
                    "; expected -1 (automatic), 0 (off) or a number of communication cores per node");
  return static_cast<int>(std::min<std::int64_t>(wanted, std::numeric_limits<int>::max()));
}

/// What every rank tells the others.
struct RankInfo {
  std::uint8_t tunes;  ///< asks for a tuning table
  std::uint8_t debug;
  std::uint8_t native;
  std::uint8_t measures_algorithms;
  std::int16_t network;  ///< its place in network_classes(), or one of the constants below
  std::int32_t domain;
  std::uint64_t plan_cache_bytes;
  std::uint64_t kernel;     ///< see host::kernel_of_process()
  std::uint64_t node_rows;  ///< NodeRows::id of what it knows for as many ranks on one node; 0: nothing
  WorkerInfo worker;
};

constexpr std::int16_t kUnknownNetwork = -1;
constexpr std::int16_t kMeasuredNetwork = -2;

std::int16_t network_named(const std::string& name) {
  if (name == "off") return kUnknownNetwork;
  if (name == "measured" || name.empty()) return kMeasuredNetwork;
  static_cast<void>(machine_with(name));  // refuses an unknown one
  const auto row = std::ranges::find(network_classes(), name, &NetworkClass::name);
  return static_cast<std::int16_t>(row - network_classes().begin());
}

RankInfo info_of(const engine::NodeSetup& setup, std::size_t rank) {
  RankInfo info;
  std::memcpy(&info, setup.more_facts_of(static_cast<std::int32_t>(rank)).data(), sizeof info);
  return info;
}

constexpr engine::NodeSetup::More kMore{.facts_bytes = sizeof(RankInfo), .results_bytes = sizeof(WorkerDecision)};

}  // namespace

std::size_t exchange_bytes(int ranks) noexcept { return engine::NodeSetup::memory_bytes(ranks, kMore); }

Comm make_comm(MakeLink make_link, const CommOptions& given) {
  Link link = make_link();
  if (link.duplicate) make_link = std::move(link.duplicate);
  engine::Transport& transport = *link.transport;
  std::shared_ptr<engine::Transport> owned;  // until all ranks have made their communicator
  std::unique_ptr<Native> native = std::move(link.native);
  const std::shared_ptr<const Graph> graph = std::move(link.graph);
  RankInfo mine{};
  engine::EngineOptions settings;
  StateParts parts;
  Facts& facts = parts.facts;
  std::string table;
  std::vector<WorkerInfo> worker_infos;
  std::vector<std::int32_t> local_domains;
  std::optional<WorkerAgreement> workers_of_all;
  std::shared_ptr<const measurement::NodeRows> rows;
  std::vector<std::byte> memory = std::move(link.exchange_memory);
  if (memory.empty()) all_or_none(transport, [&] { memory.resize(exchange_bytes(transport.size())); });
  engine::NodeSetup setup(transport, std::move(memory), kMore);
  const std::exception_ptr failure = engine::failure_of([&] {
    if (link.failure != nullptr) std::rethrow_exception(link.failure);
    owned = std::move(link.transport);
    const Options& wanted = options();
    settings.eager_bytes = wanted.eager_bytes;
    settings.caches = host::cache_sizes();
    settings.stall_timeout_ms = wanted.stall_timeout_ms;
    settings.shared_bytes = wanted.shared_bytes;
    settings.shared_memory = wanted.shared_memory;
    settings.single_copy = wanted.single_copy;
    settings.huge_pages = wanted.huge_pages;
    const std::string description = transport.description();
    facts.options = given;
    facts.any_thread = true;
    facts.mpi = description.substr(0, description.rfind(" ("));
    facts.plan_cache_bytes = wanted.plan_cache_bytes;
    facts.progress_reason.reserve(sizeof WorkerDecision::reason);
    table = wanted.tuning;
    worker_infos.resize(static_cast<std::size_t>(transport.size()));
    local_domains.resize(worker_infos.size());
    workers_of_all.emplace(transport);
    mine.debug = wanted.debug > 0 ? 1 : 0;
    mine.native = wanted.native ? 1 : 0;
    mine.plan_cache_bytes = wanted.plan_cache_bytes;
    mine.tunes = table.empty() ? 0 : 1;
    mine.network = network_named(wanted.network);
    mine.measures_algorithms = wanted.measure_algorithms ? 1 : 0;
    rows = measurement::known_node_rows(transport.size());
    mine.kernel = host::kernel_of_process();
    mine.node_rows = rows != nullptr ? rows->id : 0;
    const host::CpuSet bound = host::cpus_of_this_process();
    mine.worker = worker_info(wanted_progress_cores(given), transport, bound);
    mine.domain = host::local_domain(bound);
    parts.native = std::make_shared<NativeRuns>(std::move(native), mine.worker.any_thread != 0);
    parts.make_link = std::move(make_link);
  });
  setup.exchange_facts(settings, std::as_bytes(std::span(&mine, 1)), failure);
  const std::uint64_t first_kernel = info_of(setup, 0).kernel;
  std::size_t ranks_there = 0;
  host::CpuSet cpus_there;
  for (std::size_t rank = 0; rank < worker_infos.size(); ++rank) {
    const RankInfo info = info_of(setup, rank);
    worker_infos[rank] = info.worker;
    facts.any_thread = facts.any_thread && info.worker.any_thread != 0;
    local_domains[rank] = info.domain;
    facts.debug = facts.debug || info.debug != 0;
    facts.native = facts.native && info.native != 0;
    facts.plan_cache_bytes = std::min(facts.plan_cache_bytes, info.plan_cache_bytes);
    // Ranks that want no workers do not tell their CPUs.
    if (first_kernel != 0 && info.kernel == first_kernel && !info.worker.bound.empty()) {
      ++ranks_there;
      cpus_there |= info.worker.bound;
    }
    if (info.node_rows == 0 || info.node_rows != mine.node_rows) rows = nullptr;
  }
  // The host of rank 0 stands for all, as in what is measured.
  const bool outnumber_cpus = ranks_there > static_cast<std::size_t>(cpus_there.count());
  const bool tunes = info_of(setup, 0).tunes != 0;
  const std::int16_t network = info_of(setup, 0).network;
  const bool measures_algorithms = info_of(setup, 0).measures_algorithms != 0 && !tunes;
  const std::optional<WorkerDecision> decision = workers_of_all->decide(worker_infos);
  const auto end = [run = std::move(link.end)](State* state) noexcept {
    if (!run) return delete state;
    try {
      run([state] { delete state; });
    } catch (const std::exception&) {
      // Out of memory: the communicator is leaked.
    }
  };
  std::shared_ptr<engine::Engine> engine;
  std::shared_ptr<State> state;
  bool measures = false;
  bool is_one_node = false;
  const auto choose_by = [&](const std::shared_ptr<const measurement::NodeRows>& known) {
    if (known->times.empty()) return;
    facts.team.by_cost = std::make_shared<const ChoiceByCost>(
        facts.team, std::shared_ptr<const std::vector<RowTime>>(known, &known->times));
  };
  const auto make_state = [&] {
    parts.native->set_has_workers(settings.progress_threads > 0);
    state = {new State(engine, std::move(parts)), end};
  };
  const auto make_engine = [&](engine::Node node) {
    engine = engine::Engine::create(owned, settings, std::move(node));
    facts.team = engine->team();
    facts.graph = graph;
    facts.team.domain_of_rank = host::domains_of_ranks(engine->team().node_of_rank, local_domains);
    if (network >= 0)
      facts.team.by_cost = std::make_shared<const ChoiceByCost>(
          facts.team, Machine{.network = network_classes()[static_cast<std::size_t>(network)].network, .node = {}});
    // Beside communication cores nothing is chosen by cost, and a table decides for all of a node's rows.
    is_one_node = collectives::node_count(facts.team) == 1;
    facts.team.shares_cores = !is_one_node && outnumber_cpus;
    measures = network == kMeasuredNetwork && facts.team.progress_cores == 0 &&
               (!is_one_node || (measures_algorithms && facts.team.size() > 1));
    if (measures && is_one_node && rows != nullptr) {
      choose_by(rows);
      measures = false;
    }
    if (!tunes && !measures) make_state();
  };
  const auto discard = [&]() noexcept {
    if (state != nullptr) parts = state->dissolve();
    state.reset();
    engine.reset();
  };
  const auto told_by = [&](std::size_t rank) {
    WorkerDecision told{};
    const ConstBytes bytes = setup.more_results_of(static_cast<std::int32_t>(rank));
    std::memcpy(&told, bytes.data(), bytes.size());
    return told;
  };
  const auto are_told_of_workers = [&] {
    for (std::size_t rank = 0; decision && rank < worker_infos.size(); ++rank)
      if (told_by(rank).count > 0) return true;
    return false;
  };
  // Only whether the next communicator is made at once depends on it.
  static std::atomic<bool> had_workers{false};
  try {
    // Makes what needs no further word of the other ranks: the promised node without workers. If all ranks have done
    // so when they meet, they need not meet again.
    bool is_ready = false;
    const std::exception_ptr own_failure = engine::failure_of([&] {
      if (had_workers.load(std::memory_order_relaxed) || (decision && decision->count > 0)) return;
      std::optional<engine::Node> node = setup.promised(settings);
      if (!node) return;
      make_engine(std::move(*node));
      is_ready = true;
    });
    const bool are_all_ready = setup.exchange_results(decision ? std::as_bytes(std::span(&*decision, 1)) : ConstBytes{},
                                                      is_ready, own_failure);
    const bool has_workers = are_told_of_workers();
    had_workers.store(has_workers, std::memory_order_relaxed);
    if (are_all_ready && !has_workers) {
      const WorkerDecision told = decision ? told_by(workers_of_all->decider()) : WorkerDecision{};
      const char* const reason = decision ? told.reason.data() : kNoWorkersWanted;
      if (state != nullptr)
        state->set_progress_reason(reason);
      else
        facts.progress_reason = reason;
    } else {
      discard();
      all_or_none(transport, [&] {
        Workers workers = workers_of_all->reach(worker_infos, told_by);
        settings.progress_threads = static_cast<int>(workers.cpus.size());
        settings.progress_cpus = std::move(workers.cpus);
        settings.progress_cores = workers.per_node;
        facts.progress_reason = std::move(workers.reason);
        make_engine(setup.finish(settings));
      });
    }
    engine->enter();
    const auto progress = [&] { engine->progress(); };
    if (measures)
      all_or_none(
          transport,
          [&] {
            if (is_one_node)
              choose_by(measurement::node_rows(*engine, facts.team, facts.mpi, measurement::Purpose::choose));
            else if (const auto machine = measurement::machine_for_choices(*engine, facts.team, facts.mpi))
              facts.team.by_cost = std::make_shared<const ChoiceByCost>(facts.team, *machine);
            else
              facts.team.shares_cores = true;
            if (!tunes) make_state();
          },
          progress);
    if (tunes)
      all_or_none(
          transport,
          [&] {
            read_tuning(*engine, facts, table);
            make_state();
          },
          progress);
  } catch (...) {
    discard();
    throw;
  }
  return Comm(std::move(state));
}

}  // namespace penstock::comm

void penstock::check_options() {
  static_cast<void>(comm::network_named(options().network));
  static_cast<void>(comm::wanted_progress_cores({}));
}
