#include "penstock/checkpoint.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "checkpoint/blob_tier.hpp"
#include "checkpoint/folder_tier.hpp"
#include "checkpoint/restore.hpp"
#include "checkpoint/saver.hpp"
#include "store/compression.hpp"

namespace penstock {

using checkpoint::Channels;
using checkpoint::Peers;
using checkpoint::Relay;
using checkpoint::Tiers;

namespace {

void check(const CheckpointerOptions& options) {
  const auto refuse = [](const std::string& message) { throw Error(ErrorCode::invalid_argument, message); };
  if (options.keep < 0) refuse("keep is " + std::to_string(options.keep) + "; expected 0 (all) or more");
  if (options.keep_every > 0 && options.keep == 0) {
    refuse("keep_every is " + std::to_string(options.keep_every) + " without keep, which keeps all; give keep, too");
  }
  if (options.keep_best < 0) {
    refuse("keep_best is " + std::to_string(options.keep_best) + "; expected 0 (none) or more");
  }
  if (options.keep_best > 0 && options.best_metric.empty()) {
    refuse("keep_best is " + std::to_string(options.keep_best) + " without best_metric; name the metric");
  }
  if (!(options.keep_younger_s >= 0)) {
    refuse("keep_younger_s is " + std::to_string(options.keep_younger_s) + "; expected 0 (none) or more");
  }
  if (options.keep == 0 && (options.keep_best > 0 || options.keep_younger_s > 0)) {
    refuse(std::string(options.keep_best > 0 ? "keep_best" : "keep_younger_s") +
           " is given without keep, which keeps all; give keep, too");
  }
  if (options.chunk_bytes == 0 || options.chunk_bytes % checkpoint::kArrayAlignment != 0) {
    refuse("chunk_bytes is " + std::to_string(options.chunk_bytes) + "; expected a multiple of 64 above 0");
  }
  if (options.staging_buffers < 0) {
    refuse("staging_buffers is " + std::to_string(options.staging_buffers) + "; expected at least 1, or 0 (automatic)");
  }
  if (!(options.drain_bytes_per_s >= 0 && std::isfinite(options.drain_bytes_per_s))) {
    refuse("drain_bytes_per_s is " + std::to_string(options.drain_bytes_per_s) + "; expected 0 (no limit) or more");
  }
  if (options.drain_bytes_per_s > 0 && options.burst_buffer.empty()) {
    refuse("drain_bytes_per_s is " + std::to_string(options.drain_bytes_per_s) +
           " without a burst buffer, so nothing is drained; give burst_buffer, too");
  }
  if (options.partner_copies && options.burst_buffer.empty()) {
    refuse("partner_copies is given without a burst buffer, of which they are copies; give burst_buffer, too");
  }
  if (options.compress_level != 0 && options.run.empty()) {
    refuse("compress_level is " + std::to_string(options.compress_level) +
           " without a run, whose store compresses; give run, too");
  }
  store::check_compress_level(options.compress_level);
  if (options.undrained_max < 1) {
    refuse("undrained_max is " + std::to_string(options.undrained_max) + "; expected at least 1");
  }
}

Tiers open_tiers(std::string_view url, const CheckpointerOptions& options) {
  check(options);
  Tiers tiers;
  const auto backend = store::open_backend(url);
  tiers.slow = options.run.empty() ? checkpoint::folder_tier(backend)
                                   : checkpoint::blob_tier(backend, options.run, options.compress_level);
  if (!options.burst_buffer.empty()) {
    if (options.burst_buffer == url) {
      throw Error(ErrorCode::invalid_argument,
                  "the burst buffer is the slow tier itself (" + options.burst_buffer + "); leave it out");
    }
    tiers.fast = checkpoint::folder_tier(store::open_backend(options.burst_buffer));
  }
  return tiers;
}

int ranks_on_my_node(const Comm& comm) {
  const std::vector<std::int32_t>& nodes = comm.team().node_of_rank;
  return static_cast<int>(std::count(nodes.begin(), nodes.end(), nodes[static_cast<std::size_t>(comm.rank())]));
}

Channels open_channels(const std::optional<Comm>& comm, const std::shared_ptr<Peers>& caller, bool two) {
  Channels channels;
  if (!comm || comm->size() == 1) {
    channels.writer = channels.drainer = checkpoint::single_process();
    return channels;
  }
  channels.ranks_here = ranks_on_my_node(*comm);
  channels.node_of_rank.assign(comm->team().node_of_rank.begin(), comm->team().node_of_rank.end());
  if (comm->any_thread()) {
    channels.writer = checkpoint::peers_of(comm->duplicate());
    if (two) channels.drainer = checkpoint::peers_of(comm->duplicate());
  } else {
    channels.relay = std::make_shared<Relay>(caller, 2);
    channels.writer = channels.relay->channel(0);
    channels.drainer = channels.relay->channel(1);
  }
  return channels;
}

}  // namespace

struct Checkpointer::State {
  std::shared_ptr<Peers> caller;
  std::shared_ptr<Relay> relay;
  std::unique_ptr<checkpoint::Saver> saver;
  std::vector<int> nodes;  ///< by rank
  std::optional<std::chrono::milliseconds> timeout;
};

Checkpointer::Checkpointer(std::string_view url, const CheckpointerOptions& options, std::optional<Comm> comm)
    : state_(std::make_unique<State>()) {
  // The caller's thread has its own duplicate too: collectives of restore() must not mix with the user's.
  if (comm && comm->size() > 1) comm = comm->duplicate();
  if (comm) state_->nodes.assign(comm->team().node_of_rank.begin(), comm->team().node_of_rank.end());
  state_->timeout = options.timeout;
  state_->caller = comm ? checkpoint::peers_of(*comm) : checkpoint::single_process();
  Tiers tiers;
  checkpoint::agree(*state_->caller, "Checkpointer", [&] {
    tiers = open_tiers(url, options);
    return checkpoint::Done{};
  });
  Channels channels = open_channels(comm, state_->caller, tiers.fast != nullptr);
  state_->relay = channels.relay;
  state_->saver = std::make_unique<checkpoint::Saver>(std::move(tiers), std::move(channels), options);
}

Checkpointer::~Checkpointer() = default;

CheckpointHandle Checkpointer::save(std::uint64_t step, const std::vector<CheckpointArray>& arrays,
                                    std::string_view metadata, const CheckpointMetrics& metrics) {
  return {state_->relay, state_->saver->save(step, arrays, metadata, metrics)};
}

void Checkpointer::fail_save(std::uint64_t step, const Error& error) {
  state_->saver->save(step, {}, {}, {}, error);
  throw error;
}

Restored Checkpointer::restore(const RestoreOptions& options) {
  return checkpoint::restore(*state_->caller, state_->saver->tiers(), options, state_->nodes);
}

std::optional<Restored> Checkpointer::try_restore(const RestoreOptions& options) {
  return checkpoint::try_restore(*state_->caller, state_->saver->tiers(), options, state_->nodes);
}

CheckpointInfo Checkpointer::inspect(std::optional<std::uint64_t> step) const {
  return checkpoint::inspect(state_->saver->tiers(), step);
}

std::vector<std::uint64_t> Checkpointer::steps() const {
  std::set<std::uint64_t> steps;
  for (const checkpoint::Version& version : checkpoint::complete_versions(state_->saver->tiers()))
    steps.insert(version.step);
  return {steps.begin(), steps.end()};
}

std::optional<std::uint64_t> Checkpointer::latest() const {
  const std::vector<checkpoint::Version> all = checkpoint::complete_versions(state_->saver->tiers());
  return all.empty() ? std::nullopt : std::optional(all.back().step);
}

void Checkpointer::reserve(std::uint64_t local_bytes, int buffers) { state_->saver->reserve(local_bytes, buffers); }

std::uint64_t Checkpointer::any_of(std::uint64_t flags) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(state_->caller->size()));
  state_->caller->allgather(std::as_bytes(std::span(&flags, 1)), std::as_writable_bytes(std::span(all)));
  for (const std::uint64_t one : all) flags |= one;
  return flags;
}

std::size_t Checkpointer::resume_drains() { return state_->saver->resume_drains(); }
void Checkpointer::finish(std::optional<std::chrono::milliseconds> limit) {
  state_->saver->finish(checkpoint::deadline_in(limit ? limit : state_->timeout));
}
void Checkpointer::settle(std::uint64_t step, std::optional<std::chrono::milliseconds> limit) {
  state_->saver->settle(step, checkpoint::deadline_in(limit ? limit : state_->timeout));
}
std::vector<std::string> Checkpointer::warnings() const { return state_->saver->warnings(); }
std::string Checkpointer::report() const { return state_->saver->report(); }

}  // namespace penstock
