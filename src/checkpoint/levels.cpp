// The two threads of a Saver: the durable events in their order.
#include <algorithm>
#include <functional>
#include <map>

#include "checkpoint/blob_header.hpp"
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
  std::uint64_t data_bytes = 0;
};

Digest signature_of(const std::vector<ArraySpec>& arrays) {
  std::string text;
  for (const ArraySpec& array : arrays) {
    text += array.name + '\n' + std::string(name(array.dtype)) + '\n' + array.layout.serialize() + '\n';
  }
  return digest(text);
}

/// Runs `action`. If it fails and a newer job has begun, that is the error: it may have removed what is missing here.
/// `foreign`: whether an object of another program is in the way.
void unless_fenced(const Tier& slow, const Attempt& of, bool& foreign, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& failure) {
    foreign = failure.code() == ErrorCode::exists;
    const std::optional<Error> fenced = attempt("", -1, [&] { slow.check_generation(of.job); });
    if (fenced && fenced->code() == ErrorCode::fenced) throw *fenced;
    throw;
  }
}

std::string manifest_of(const Job& job, std::vector<ObjectInfo> objects, std::uint64_t chunk_bytes) {
  Manifest manifest;
  manifest.version = job.version();
  manifest.chunk_bytes = chunk_bytes;
  manifest.arrays = job.arrays;
  manifest.metadata = job.metadata;
  manifest.metrics = job.metrics;
  manifest.saved_at_us = job.saved_at_us;
  manifest.offsets_bytes.resize(job.arrays.size());
  for (std::size_t r = 0; r < objects.size(); ++r) {
    const std::vector<std::uint64_t> offsets = object_offsets(job.arrays, static_cast<int>(r));
    for (std::size_t a = 0; a < job.arrays.size(); ++a) manifest.offsets_bytes[a].push_back(offsets[a]);
  }
  manifest.objects = std::move(objects);
  return manifest.serialize();
}

}  // namespace

void Saver::write(const std::shared_ptr<Job>& job) {
  const std::string what = "checkpoint of step " + std::to_string(job->step);
  const std::optional<Error> failure = attempt(what, channels_.writer->rank(), [&] {
    begin(*job, what);
    job->wait_until_staged();
    write_first_tier(*job, what);
  });
  job->wait_until_staged();  // also of a save that has failed: its memory may be used again then
  job->staged = {};
  if (failure) {
    job->fail(*failure);
  } else if (tiers_.fast) {
    job->reach(CheckpointLevel::fast);
    job->share();
    drainer_.submit([this, job] { drain(*job); });
    retire_after(*channels_.writer, *job, job->version(), false);
  } else {
    job->reach(CheckpointLevel::drained);
    retire_after(*channels_.writer, *job, job->version(), true);
  }
  job->close();
}

/// Agrees that all ranks save the same arrays, and on the version. Nothing is written before.
void Saver::begin(Job& job, const std::string& what) {
  Peers& peers = *channels_.writer;
  if (options_.staging_buffers == 0 && agreed_buffers_ == 0) {
    // A rank that cannot save knows no number.
    int least = 0;
    for (const int fit : agree(peers, what, [&] { return job.buffers_fit; })) {
      if (fit > 0 && (least == 0 || fit < least)) least = fit;
    }
    agreed_buffers_ = least;
  }
  job.begin();
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
    if (peers.rank() == 0 && generation_ != 0) tiers_.slow->check_generation(generation_);
    if (generation_ == 0) mine.seen_generation = seen_generation();
    mine.data_bytes = job.staged.size();
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
  job.end_bytes = kPlaceAlignment;
  for (std::size_t r = 0; r < begins.size(); ++r) {
    if (static_cast<int>(r) == peers.rank()) job.place_bytes = job.end_bytes;
    const std::uint64_t table_bytes = chunks_of(begins[r].data_bytes, options_.chunk_bytes) * sizeof(Digest);
    job.end_bytes = aligned_place(job.end_bytes + begins[r].data_bytes + table_bytes);
  }
  if (generation_ == 0) take_over(seen_generation, what);
  wait_for_resumed(job);
  job.assign(Version{job.step, generation_, job.sequence});
}

std::uint64_t Saver::seen_generation() const {
  std::uint64_t seen = 0;
  if (channels_.writer->rank() == 0) seen = newest_generation(*tiers_.slow);
  if (tiers_.fast) seen = std::max(seen, newest_generation(*tiers_.fast));
  return seen;
}

/// From here on all older jobs are fenced, so what they have left undrained is this job's to drain. All of it comes
/// before this job's own drains, on all ranks in the same order.
void Saver::take_over(std::uint64_t seen_generation, const std::string& what) {
  Peers& peers = *channels_.writer;
  generation_ =
      agree(peers, what, [&] { return peers.rank() == 0 ? tiers_.slow->take_generation(seen_generation) : 0; })[0];
  const std::vector<Version> left =
      reclaim(peers, tiers_, generation_, [this](const std::string& text) { warn(text); });
  std::vector<std::shared_ptr<Job>> drains;
  for (const Version& version : left) {
    const auto& job = drains.emplace_back(std::make_shared<Job>());
    job->step = version.step;
    job->assign({version, generation_});
    job->reach(CheckpointLevel::fast);
  }
  {
    // All of them before the first one begins: what nobody will drain is removed once a newer one is drained.
    const std::lock_guard lock(mutex_);
    resumed_.insert(resumed_.end(), drains.begin(), drains.end());
  }
  for (const auto& job : drains) drainer_.submit([this, job] { resume(*job); });
}

/// What dead jobs have left counts in `undrained_max`, too.
void Saver::wait_for_resumed(const Job& job) const {
  const std::vector<std::shared_ptr<Job>> before = resumed();
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (i + static_cast<std::size_t>(options_.undrained_max) <= before.size() + job.sequence) {
      before[i]->wait_until_settled(CheckpointLevel::drained);
    }
  }
}

void Saver::write_first_tier(Job& job, const std::string& what) {
  const trace::Span span(tiers_.fast ? "write fast" : "write slow", "checkpoint", job.staged.size());
  const bool in_blob = tiers_.slow->builds_on_base();
  Content content =
      content_of(job.staged, options_.chunk_bytes, in_blob ? job.place_bytes : 0, [this] { copying_.give_way(); });
  content.read_soon = tiers_.fast != nullptr;
  put(*channels_.writer, tiers_.first(), job, content, what);
}

void Saver::drain(Job& job) {
  const std::string what = "draining the checkpoint of step " + std::to_string(job.step);
  Peers& peers = *channels_.drainer;
  const std::optional<Error> failure = attempt(what, peers.rank(), [&] {
    const trace::Span span("drain", "checkpoint", job.own.size_bytes);
    Content content;
    bool foreign = false;
    agree(peers, what, [&] {
      unless_fenced(*tiers_.slow, job.attempt(), foreign, [&] {
        content = content_in(*tiers_.fast, job.version(), peers.rank(), job.own, options_.chunk_bytes, drain_);
      });
      return Done{};
    });
    put(peers, *tiers_.slow, job, content, what);
  });
  if (failure) {
    job.fail(*failure);
  } else {
    job.reach(CheckpointLevel::drained);
    retire_after(peers, job, job.version(), true);
  }
  job.close();
}

/// Every rank writes its object; then rank 0 makes the checkpoint exist in `tier`.
void Saver::put(Peers& peers, Tier& tier, Job& job, const Content& content, const std::string& what) {
  for (std::uint64_t published = 0; published == 0;) {
    const Base base = base_of(peers, tier, job.attempt(), what);
    Written own;
    bool foreign = false;
    std::vector<ObjectInfo> objects;
    try {
      objects = agree(peers, what, [&] {
        unless_fenced(*tiers_.slow, job.attempt(), foreign,
                      [&] { own = tier.write(job.attempt(), peers.rank(), content, base); });
        return content.info;
      });
      job.own = content.info;
      if (partners_ && &tier == tiers_.fast.get()) {
        copy_to_partner(peers, tier, job.version(), content, *partners_, what);
      }
    } catch (const Error&) {
      if (!foreign) discard(tier, job, own);
      throw;
    }
    Draft draft{job.manifest, job.end_bytes, base, {}};
    draft.drained = &tier != &tiers_.first();
    if (tier.builds_on_base()) draft.written = gather(peers, own);
    const auto complete = [&] {
      if (job.manifest.empty()) job.manifest = manifest_of(job, std::move(objects), options_.chunk_bytes);
    };
    const auto discard_own = [&] { discard(tier, job, own); };
    published = publish(peers, tier, job.attempt(), draft, complete, discard_own, what);
    if (published == 0) continue;
    if (partners_ && &tier == tiers_.fast.get()) {
      try {
        copy_manifest(peers, tier, job, what);
      } catch (const Error&) {
        // Whoever put a manifest, maybe without learning of it, removes it before the data goes.
        const Poll<Done> removed = poll(peers, what, [&] {
          tier.remove(job.version());
          return Done{};
        });
        const bool gone = std::all_of(removed.outcomes.begin(), removed.outcomes.end(),
                                      [](const Outcome& outcome) { return outcome.code == 0; });
        if (gone) discard_own();
        throw;
      }
    }
    tier.published(published, content);
  }
}

Base Saver::base_of(Peers& peers, Tier& tier, const Attempt& attempt, const std::string& what) const {
  Base base;
  if (!tier.builds_on_base()) return base;
  const std::vector<Base> bases = agree(peers, what, [&] {
    Base mine = peers.rank() == 0 ? tier.base(attempt.job) : Base{};
    mine.distrusted = tier.distrusts() ? 1 : 0;
    return mine;
  });
  base.number = bases[0].number;
  for (const Base& mine : bases) base.distrusted |= mine.distrusted;
  return base;
}

/// What this rank has written of a save that failed.
void Saver::discard(Tier& tier, const Job& job, const Written& own) {
  const Warn warning = [this](const std::string& text) { warn(text); };
  tier.discard(job.attempt(), channels_.writer->rank(), own, warning);
  if (partners_ && &tier == tiers_.fast.get()) tier.discard(job.attempt(), partners_->kept, {}, warning);
}

/// All data is durable before. Returns the number of the publication; 0 if the ranks have to write again. `complete`
/// makes what the draft still lacks, on rank 0; `discard` takes back what this rank has written.
std::uint64_t Saver::publish(Peers& peers, Tier& tier, const Attempt& of, const Draft& draft,
                             const std::function<void()>& complete, const std::function<void()>& discard,
                             const std::string& what) {
  struct Result {
    Outcome outcome;
    std::uint64_t number = 0;
    std::uint64_t gone = 0;
  };
  std::optional<Error> failure;
  const std::vector<Result> results = agree(peers, what, [&] {
    Result result;
    if (peers.rank() != 0) return result;
    Publication publication;
    failure = attempt(what, 0, [&] {
      publication.gone = true;
      complete();
      publication.gone = false;
      publication = tier.publish(of, draft, *tiers_.slow);
      if (publication.failure) throw *publication.failure;
    });
    if (failure) result.outcome = Outcome::of(*failure);
    result.number = publication.number;
    result.gone = publication.gone ? 1 : 0;
    if (!publication.warning.empty()) warn(what + ": " + publication.warning);
    return result;
  });
  if (results[0].outcome.code != 0) {
    // If the checkpoint may have become visible despite the failure, the data must stay.
    if (results[0].gone != 0) discard();
    deliver(failure, {results[0].outcome}, what);
  }
  return results[0].number;
}

/// The keeper of rank 0's object puts the manifest into its burst buffer, too. No newer job had begun when rank 0 put
/// it. If one has begun since, it has seen the manifest of rank 0, or has marked what the keeper holds as abandoned.
void Saver::copy_manifest(Peers& peers, Tier& tier, const Job& job, const std::string& what) {
  const std::string text = broadcast_text(peers, job.manifest, 0);
  agree(peers, what, [&] {
    if (partners_->kept == 0) tier.copy_manifest(job.version(), text);
    return Done{};
  });
}

KeepRules Saver::keep_rules() const {
  return {options_.keep,        options_.keep_every,      options_.keep_best,
          options_.best_metric, options_.best_is_highest, options_.keep_younger_s};
}

/// `saved`: the newest that is durable in the tier; rank 0's counts.
void Saver::retire_after(Peers& peers, const Job& job, const Version& saved, bool drained) {
  Retirement retirement;
  retirement.saved = saved;
  retirement.drained = drained;
  retirement.has_copies = partners_.has_value();
  retirement.rules = keep_rules();
  retirement.rating = [this](const Version& version) { return rating_of(version); };
  for (const auto& some : {jobs(), resumed()}) {
    for (const auto& other : some) {
      if (other.get() == &job || other->settled(CheckpointLevel::drained)) continue;
      retirement.under_way.insert(other->version());
    }
  }
  const std::optional<Error> failure = attempt("removing old checkpoints", peers.rank(), [&] {
    retire(peers, tiers_, retirement, [this](const std::string& text) { warn(text); });
  });
  if (failure) warn(failure->message());
}

/// From the manifest in the slow tier, which is read once. Nothing if it cannot be read. For one thread at a time: that
/// of the slow tier.
std::optional<Rating> Saver::rating_of(const Version& version) {
  if (const auto known = ratings_.find(version); known != ratings_.end()) return known->second;
  std::optional<Rating> found;
  try_to([this](const std::string& text) { warn(text); }, "whether the checkpoint of " + describe(version) + " stays",
         [&] {
           const Manifest manifest = Manifest::parse(tiers_.slow->manifest(version));
           found.emplace();
           found->saved_at_us = manifest.saved_at_us;
           const auto metric = manifest.metrics.find(options_.best_metric);
           if (metric != manifest.metrics.end()) found->metric = metric->second;
         });
  if (found) ratings_.emplace(version, *found);
  return found;
}

}  // namespace penstock::checkpoint
