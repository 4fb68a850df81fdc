// The two threads of a Saver: the durable events in their order.
#include <algorithm>
#include <map>

#include "checkpoint/object.hpp"
#include "checkpoint/saver.hpp"
#include "penstock/trace.hpp"

namespace penstock::checkpoint {

namespace {

/// What each rank contributes when a checkpoint begins.
struct Begin {
  std::uint64_t step = 0;
  Digest signature{};               ///< of names, types and layouts
  std::uint64_t first_attempt = 0;  ///< first free attempt that this rank sees
  std::uint64_t over = 0;           ///< how many of the first saves have finished
};

Digest signature_of(const std::vector<ArraySpec>& arrays) {
  std::string text;
  for (const ArraySpec& array : arrays) {
    text += array.name + '\n' + std::string(name(array.dtype)) + '\n' + array.layout.serialize() + '\n';
  }
  return digest(text);
}

std::uint64_t free_attempt(const store::Backend& backend, std::uint64_t step) {
  std::uint64_t attempt = 0;
  for (const auto& [version, holding] : list_versions(backend)) {
    if (version.step == step) attempt = std::max(attempt, version.attempt + 1);
  }
  return attempt;
}

void remove_quietly(store::Backend& backend, const std::string& key, const Warn& warn) {
  if (const auto error = attempt("removing " + key, -1, [&] { backend.remove(key); })) warn(error->message());
}

}  // namespace

void Saver::write(const std::shared_ptr<Job>& job) {
  const std::string what = "checkpoint of step " + std::to_string(job->step);
  const std::optional<Error> failure = attempt(what, channels_.writer->rank(), [&] {
    begin(*job, what);
    write_first_tier(*job, what);
  });
  job->staged = {};
  if (failure) {
    job->fail(*failure);
    job->close();
  } else if (tiers_.fast) {
    job->reach(CheckpointLevel::fast);
    drainer_.submit([this, job] { drain(*job); });
    retire_after(*channels_.writer, *job, false);
  } else {
    job->reach(CheckpointLevel::drained);
    retire_after(*channels_.writer, *job, true);
    job->close();
  }
}

/// Agrees that all ranks save the same arrays, and on the version. Nothing is written before.
void Saver::begin(Job& job, const std::string& what) {
  Peers& peers = *channels_.writer;
  const std::vector<std::shared_ptr<Job>> all = jobs();
  for (const auto& earlier : all) {
    // Limits the space in the burst buffer, and the number of checkpoints that a crash of its node can lose.
    if (earlier->sequence + static_cast<std::uint64_t>(options_.undrained_max) <= job.sequence) {
      earlier->wait_until_settled(CheckpointLevel::drained);
    }
  }
  const std::vector<Begin> begins = agree(peers, what, [&] {
    if (job.refused) throw *job.refused;
    Begin mine;
    mine.step = job.step;
    mine.signature = signature_of(job.arrays);
    if (peers.rank() == 0) mine.first_attempt = free_attempt(*tiers_.slow, job.step);
    if (tiers_.fast) mine.first_attempt = std::max(mine.first_attempt, free_attempt(*tiers_.fast, job.step));
    mine.over = job.sequence;
    for (const auto& other : all) {
      if (!other->settled(CheckpointLevel::drained)) mine.over = std::min(mine.over, other->sequence);
    }
    return mine;
  });
  Version version{job.step, 0};
  job.over_everywhere = job.sequence;
  for (std::size_t r = 0; r < begins.size(); ++r) {
    if (begins[r].step != begins[0].step || begins[r].signature != begins[0].signature) {
      throw Error(ErrorCode::mismatch,
                  what + ": rank " + std::to_string(r) + " saves " +
                      (begins[r].step != begins[0].step ? "step " + std::to_string(begins[r].step) + ", rank 0 step " +
                                                              std::to_string(begins[0].step)
                                                        : "arrays of other names, types or layouts than rank 0") +
                      "; all ranks must save the same thing");
    }
    version.attempt = std::max(version.attempt, begins[r].first_attempt);
    job.over_everywhere = std::min(job.over_everywhere, begins[r].over);
  }
  job.assign(version);
  if (!reclaimed_) {
    reclaim(peers, tiers_, [this](const std::string& text) { warn(text); });
    reclaimed_ = true;
  }
}

void Saver::write_first_tier(Job& job, const std::string& what) {
  Peers& peers = *channels_.writer;
  store::Backend& backend = tiers_.first();
  const std::string key = data_key(job.version(), peers.rank());
  Manifest manifest;
  const trace::Span span(tiers_.fast ? "write fast" : "write slow", "checkpoint", job.staged.size());
  try {
    manifest.objects = agree(peers, what, [&] {
      job.own = write_object(backend, key, job.staged, options_.chunk_bytes);
      return job.own;
    });
  } catch (const Error& error) {
    if (error.code() != ErrorCode::exists)
      remove_quietly(backend, key, [this](const std::string& text) { warn(text); });
    throw;
  }
  if (peers.rank() == 0) {
    manifest.version = job.version();
    manifest.chunk_bytes = options_.chunk_bytes;
    manifest.arrays = job.arrays;
    manifest.metadata = job.metadata;
    manifest.offsets_bytes.resize(job.arrays.size());
    for (int r = 0; r < peers.size(); ++r) {
      const std::vector<std::uint64_t> offsets = object_offsets(job.arrays, r);
      for (std::size_t a = 0; a < job.arrays.size(); ++a) manifest.offsets_bytes[a].push_back(offsets[a]);
    }
    job.manifest = manifest.serialize();
  }
  put_manifest(peers, backend, job, what);
}

void Saver::drain(Job& job) {
  const std::string what = "draining the checkpoint of step " + std::to_string(job.step);
  Peers& peers = *channels_.drainer;
  const std::optional<Error> failure = attempt(what, peers.rank(), [&] {
    const trace::Span span("drain", "checkpoint", job.own.size_bytes);
    const std::string key = data_key(job.version(), peers.rank());
    try {
      agree(peers, what, [&] {
        copy_object(*tiers_.fast, *tiers_.slow, key, job.own, options_.chunk_bytes, drain_memory_);
        return Done{};
      });
    } catch (const Error& error) {
      if (error.code() != ErrorCode::exists)
        remove_quietly(*tiers_.slow, key, [this](const std::string& text) { warn(text); });
      throw;
    }
    put_manifest(peers, *tiers_.slow, job, what);
  });
  if (failure) {
    job.fail(*failure);
  } else {
    job.reach(CheckpointLevel::drained);
    retire_after(peers, job, true);
  }
  job.close();
}

/// Writes the manifest. The checkpoint then exists in `backend`; all its data is durable before.
void Saver::put_manifest(Peers& peers, store::Backend& backend, Job& job, const std::string& what) {
  struct Result {
    Outcome outcome;
    std::uint64_t gone = 0;  ///< it failed, and certainly left no manifest
  };
  std::optional<Error> own;
  const std::vector<Result> results = agree(peers, what, [&] {
    Result result;
    if (peers.rank() != 0) return result;
    const std::string key = manifest_key(job.version());
    const ConstBytes text = std::as_bytes(std::span(job.manifest.data(), job.manifest.size()));
    own = attempt(what, 0, [&] {
      if (!backend.put_if_absent(key, std::span(&text, 1))) {
        throw Error(ErrorCode::exists,
                    backend.url() + ": object " + key + " exists already; is another run saving to the same place?");
      }
    });
    if (!own) return result;
    result.outcome = Outcome::of(*own);
    result.gone = own->code() != ErrorCode::exists && !attempt(what, 0, [&] { backend.remove(key); });
    return result;
  });
  if (results[0].outcome.code == 0) return;
  // If the manifest may have become visible despite the failure, the data must stay.
  if (results[0].gone != 0) {
    remove_quietly(backend, data_key(job.version(), peers.rank()), [this](const std::string& text) { warn(text); });
  }
  deliver(own, {results[0].outcome}, what);
}

void Saver::retire_after(Peers& peers, const Job& job, bool drained) {
  Retirement retirement;
  retirement.saved = job.version();
  retirement.drained = drained;
  retirement.keep = options_.keep;
  for (const auto& other : jobs()) {
    if (other.get() != &job && !other->settled(CheckpointLevel::drained)) retirement.under_way.insert(other->version());
  }
  const std::optional<Error> failure = attempt("removing old checkpoints", peers.rank(), [&] {
    retire(peers, tiers_, retirement, [this](const std::string& text) { warn(text); });
  });
  if (failure) warn(failure->message());
}

}  // namespace penstock::checkpoint
