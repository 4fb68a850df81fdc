// The two threads of a Saver: the durable events in their order.
#include <algorithm>
#include <functional>
#include <map>

#include "checkpoint/generations.hpp"
#include "checkpoint/object.hpp"
#include "checkpoint/saver.hpp"
#include "penstock/trace.hpp"

namespace penstock::checkpoint {

namespace {

/// What each rank contributes when a checkpoint begins.
struct Begin {
  std::uint64_t step = 0;
  Digest signature{};                 ///< of names, types and layouts
  std::uint64_t over = 0;             ///< how many of the first saves have finished
  std::uint64_t seen_generation = 0;  ///< the highest that this rank sees; for a job's first save
};

Digest signature_of(const std::vector<ArraySpec>& arrays) {
  std::string text;
  for (const ArraySpec& array : arrays) {
    text += array.name + '\n' + std::string(name(array.dtype)) + '\n' + array.layout.serialize() + '\n';
  }
  return digest(text);
}

void remove_quietly(store::Backend& backend, const std::string& key, const Warn& warn) {
  if (const auto error = attempt("removing " + key, -1, [&] { backend.remove(key); })) warn(error->message());
}

/// Runs `action`. If it fails and a newer job has begun, that is the error: it may have removed what is missing here.
/// `foreign`: whether an object of another program is in the way.
void unless_fenced(const store::Backend& slow, const Version& version, bool& foreign,
                   const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& failure) {
    foreign = failure.code() == ErrorCode::exists;
    const std::optional<Error> fenced = attempt("", -1, [&] { check_generation(slow, version.generation); });
    if (fenced && fenced->code() == ErrorCode::exists) throw *fenced;
    throw;
  }
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
    // Spares a job that is fenced already the work. What counts is the look after the manifest.
    if (peers.rank() == 0 && generation_ != 0) check_generation(*tiers_.slow, generation_);
    if (generation_ == 0) {
      if (peers.rank() == 0) mine.seen_generation = newest_generation(*tiers_.slow);
      if (tiers_.fast) mine.seen_generation = std::max(mine.seen_generation, newest_generation(*tiers_.fast));
    }
    mine.over = job.sequence;
    for (const auto& other : all) {
      if (!other->settled(CheckpointLevel::drained)) mine.over = std::min(mine.over, other->sequence);
    }
    return mine;
  });
  std::uint64_t seen_generation = 0;
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
    seen_generation = std::max(seen_generation, begins[r].seen_generation);
    job.over_everywhere = std::min(job.over_everywhere, begins[r].over);
  }
  if (generation_ == 0) {
    generation_ =
        agree(peers, what, [&] { return peers.rank() == 0 ? take_generation(*tiers_.slow, seen_generation) : 0; })[0];
    reclaim(peers, tiers_, generation_, [this](const std::string& text) { warn(text); });
  }
  job.assign({job.step, generation_, job.sequence});
}

void Saver::write_first_tier(Job& job, const std::string& what) {
  Peers& peers = *channels_.writer;
  store::Backend& backend = tiers_.first();
  const std::string key = data_key(job.version(), peers.rank());
  Manifest manifest;
  const trace::Span span(tiers_.fast ? "write fast" : "write slow", "checkpoint", job.staged.size());
  bool foreign = false;
  try {
    manifest.objects = agree(peers, what, [&] {
      unless_fenced(*tiers_.slow, job.version(), foreign,
                    [&] { job.own = write_object(backend, key, job.staged, options_.chunk_bytes); });
      return job.own;
    });
  } catch (const Error&) {
    if (!foreign) remove_quietly(backend, key, [this](const std::string& text) { warn(text); });
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
    bool foreign = false;
    try {
      agree(peers, what, [&] {
        unless_fenced(*tiers_.slow, job.version(), foreign, [&] {
          copy_object(*tiers_.fast, *tiers_.slow, key, job.own, options_.chunk_bytes, drain_memory_);
        });
        return Done{};
      });
    } catch (const Error&) {
      if (!foreign) remove_quietly(*tiers_.slow, key, [this](const std::string& text) { warn(text); });
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
    bool foreign = false;
    own = attempt(what, 0, [&] {
      foreign = !backend.put_if_absent(key, std::span(&text, 1));
      if (foreign) {
        throw Error(ErrorCode::exists,
                    backend.url() + ": object " + key + " exists already; was it put there by another program?");
      }
      // If no newer job has begun by now, any that begins later counts this checkpoint as older than its own.
      check_generation(*tiers_.slow, job.version().generation);
    });
    if (!own) return result;
    result.outcome = Outcome::of(*own);
    result.gone = !foreign && !attempt(what, 0, [&] { backend.remove(key); });
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
  retirement.keep_every = options_.keep_every;
  for (const auto& other : jobs()) {
    if (other.get() != &job && !other->settled(CheckpointLevel::drained)) retirement.under_way.insert(other->version());
  }
  const std::optional<Error> failure = attempt("removing old checkpoints", peers.rank(), [&] {
    retire(peers, tiers_, retirement, [this](const std::string& text) { warn(text); });
  });
  if (failure) warn(failure->message());
}

}  // namespace penstock::checkpoint
