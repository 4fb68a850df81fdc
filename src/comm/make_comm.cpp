#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
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

/// What every rank tells the others: what it failed with, if it did, or what its process may use.
struct Card {
  std::int32_t code;
  std::array<char, 506> text;
  std::uint8_t tunes;  ///< asks for a tuning table
  std::uint8_t debug;
  std::uint8_t native;
  std::int32_t domain;
  WorkerCard worker;
};

struct Agreed {
  std::vector<WorkerCard> workers;
  std::vector<std::int32_t> domains;
  bool tunes;  ///< as rank 0 says
};

/// Every rank throws if `mine` holds an error on any of them; they have all come here.
Agreed agree_on(engine::Transport& transport, const std::optional<Error>& mine, const WorkerCard& worker, bool tunes,
                Facts& facts) {
  Card card{};
  card.debug = facts.debug ? 1 : 0;
  card.native = facts.native ? 1 : 0;
  if (!mine) card.domain = domain_card();
  card.worker = worker;
  card.tunes = tunes ? 1 : 0;
  if (mine) {
    card.code = static_cast<std::int32_t>(mine->code());
    std::strncpy(card.text.data(), mine->what(), card.text.size() - 1);
  }
  std::vector<Card> all(static_cast<std::size_t>(transport.size()));
  transport.allgather(std::as_bytes(std::span(&card, 1)), std::as_writable_bytes(std::span(all)));
  if (mine) throw *mine;
  Agreed agreed{.workers = {}, .domains = {}, .tunes = all[0].tunes != 0};
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].code != 0) throw Error(ErrorCode::peer_failed, all[r].text.data(), static_cast<int>(r));
    agreed.workers.push_back(all[r].worker);
    agreed.domains.push_back(all[r].domain);
    facts.debug = facts.debug || all[r].debug != 0;
    facts.native = facts.native && all[r].native != 0;
  }
  return agreed;
}

}  // namespace

Comm make_comm(MakeLink make_link, const CommOptions& given) {
  Link link = make_link();
  std::unique_ptr<engine::Transport> transport = std::move(link.transport);
  engine::EngineOptions settings;
  const std::string description = transport->description();
  Facts facts{
      .options = given, .any_thread = transport->any_thread(), .mpi = description.substr(0, description.rfind(" ("))};
  WorkerCard card;
  std::optional<Error> failure;
  try {
    const Options& wanted = options();
    facts.debug = wanted.debug > 0;
    facts.native = wanted.native;
    settings.eager_bytes = wanted.eager_bytes;
    settings.silence_ms = wanted.silence_ms;
    settings.shared_bytes = wanted.shared_bytes;
    settings.shared_memory = wanted.shared_memory;
    settings.single_copy = wanted.single_copy;
    card = worker_card(wanted_progress_cores(given), *transport);
  } catch (const Error& error) {
    failure = error;
  }
  const std::string table = failure ? "" : options().tuning;
  const Agreed agreed = agree_on(*transport, failure, card, !table.empty(), facts);
  Workers workers = agree_on_workers(*transport, agreed.workers);
  settings.progress_threads = static_cast<int>(workers.cpus.size());
  settings.progress_cpus = std::move(workers.cpus);
  settings.progress_cores = workers.per_node;
  facts.progress_reason = std::move(workers.reason);
  std::shared_ptr<engine::Engine> engine = engine::Engine::create(std::move(transport), settings);
  facts.domain_of_rank = domains_of_ranks(engine->team().node_of_rank, agreed.domains);
  std::shared_ptr<NativeRuns> native;
  if (link.native != nullptr)
    native = std::make_shared<NativeRuns>(std::move(link.native), facts.any_thread, settings.progress_threads > 0);
  auto state = std::make_shared<State>(std::move(engine), std::move(native), std::move(make_link), std::move(facts));
  if (agreed.tunes) state->read_tuning(table);
  return Comm(std::move(state));
}

}  // namespace penstock::comm
