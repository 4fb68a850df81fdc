#include "checkpoint/restore.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "checkpoint/gather.hpp"
#include "checkpoint/object.hpp"
#include "penstock/trace.hpp"

namespace penstock::checkpoint {

namespace {

/// Whether an error is damage, for which another checkpoint can be read; an invalid argument is not.
bool is_damage(ErrorCode code) {
  return code == ErrorCode::corrupt || code == ErrorCode::not_found || code == ErrorCode::io;
}

std::shared_ptr<std::byte> allocate(std::uint64_t size_bytes) {
  const std::uint64_t rounded = std::max(size_bytes, std::uint64_t{1}) + kArrayAlignment - 1;
  auto* memory =
      static_cast<std::byte*>(std::aligned_alloc(kArrayAlignment, rounded / kArrayAlignment * kArrayAlignment));
  if (memory == nullptr) {
    throw Error(ErrorCode::no_space, "no memory for an array of " + std::to_string(size_bytes) + " bytes");
  }
  return {memory, [](std::byte* p) { std::free(p); }};
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t d = 0; d < shape.size(); ++d) text += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  return text + ")";
}

/// Throws unless all failures are damage. Returns the text of the first failed rank; empty if none failed.
template <class Value>
std::optional<std::string> damage_of(const Poll<Value>& poll, const std::string& what) {
  std::optional<std::string> damage;
  for (std::size_t r = 0; r < poll.outcomes.size(); ++r) {
    const Outcome& outcome = poll.outcomes[r];
    if (outcome.code == 0) continue;
    if (!is_damage(static_cast<ErrorCode>(outcome.code))) deliver(poll.own, poll.outcomes, what);
    if (!damage) damage = outcome.text + (" (rank " + std::to_string(r) + ")");
  }
  return damage;
}

/// One call of restore().
class Restoration {
 public:
  Restoration(Peers& peers, const Tiers& tiers, const RestoreOptions& options)
      : peers_(peers), tiers_(tiers), options_(options) {}

  Restored run() {
    std::set<Version> tried;
    // Meanwhile another run may remove old checkpoints and complete new ones.
    while (true) {
      std::vector<Version> untried;
      for (const Version& version : candidates()) {
        if (tried.insert(version).second) untried.push_back(version);
      }
      if (untried.empty()) break;
      for (auto version = untried.rbegin(); version != untried.rend(); ++version) {
        if (std::optional<Restored> restored = try_version(*version)) return *std::move(restored);
      }
    }
    fail(!tried.empty());
  }

 private:
  /// Versions that are complete in some tier, ascending. Equal on all ranks.
  std::vector<Version> candidates() {
    struct Request {
      std::uint64_t step = 0;
      std::uint64_t any_step = 0;
      Digest layouts{};
    };
    std::vector<Version> mine;
    const std::vector<Request> requests = agree(peers_, "restore", [&] {
      std::string layouts;
      for (const auto& [name, layout] : options_.layouts) layouts += name + '\n' + layout.serialize() + '\n';
      // All ranks see the same slow tier, so one rank lists it for all.
      if (peers_.rank() == 0) add_complete(*tiers_.slow, mine);
      if (tiers_.fast) {
        const auto failure = attempt("burst buffer", peers_.rank(), [&] { add_complete(*tiers_.fast, mine); });
        if (failure) warnings_.push_back(failure->message());
      }
      return Request{options_.step.value_or(0), options_.step ? 0u : 1u, digest(layouts)};
    });
    for (std::size_t r = 0; r < requests.size(); ++r) {
      if (requests[r].step == requests[0].step && requests[r].any_step == requests[0].any_step &&
          requests[r].layouts == requests[0].layouts) {
        continue;
      }
      throw Error(ErrorCode::mismatch, "restore: rank " + std::to_string(r) +
                                           " asks for another step or other layouts than rank 0; all ranks must ask "
                                           "for the same");
    }
    seen_.assign(requests.size(), {});
    std::set<Version> all;
    const std::vector<std::vector<Version>> gathered = gather(peers_, mine);
    for (std::size_t r = 0; r < gathered.size(); ++r) {
      for (const Version& version : gathered[r]) {
        seen_[r].insert(version);
        if (!options_.step || version.step == *options_.step) all.insert(version);
      }
    }
    return {all.begin(), all.end()};
  }

  static void add_complete(const store::Backend& backend, std::vector<Version>& to) {
    for (const auto& [version, holding] : list_versions(backend)) {
      if (holding.manifest) to.push_back(version);
    }
  }

  [[noreturn]] void fail(bool tried) const {
    const std::string what = options_.step ? "checkpoint of step " + std::to_string(*options_.step) : "checkpoint";
    std::string where = tiers_.slow->url();
    if (tiers_.fast) where += " and " + tiers_.fast->url();
    std::string reasons;
    for (const std::string& warning : warnings_) reasons += "\n  " + warning;
    if (tried) throw Error(ErrorCode::corrupt, "no intact " + what + " at " + where + ":" + reasons);
    throw Error(ErrorCode::not_found, "there is no complete " + what + " at " + where + reasons);
  }

  /// Empty, with a warning, if the checkpoint is damaged. Equal on all ranks.
  std::optional<Restored> try_version(const Version& version) {
    const trace::Span span("restore checkpoint", "application");
    const std::string what = "checkpoint of " + describe(version);
    const std::optional<Manifest> manifest = read_manifest(version, what);
    if (!manifest) return std::nullopt;
    Restored restored;
    std::vector<std::string> repairs;
    const Poll<Done> read = poll(peers_, what, [&] {
      restored.arrays = read_arrays(*manifest, repairs);
      return Done{};
    });
    if (const std::optional<std::string> damage = damage_of(read, what)) {
      warnings_.push_back(*damage + "; passed over");
      return std::nullopt;
    }
    restored.step = version.step;
    restored.metadata = manifest->metadata;
    restored.warnings = warnings_;
    restored.warnings.insert(restored.warnings.end(), repairs.begin(), repairs.end());
    return restored;
  }

  /// The manifest, from the first rank that sees an intact one.
  std::optional<Manifest> read_manifest(const Version& version, const std::string& what) {
    for (std::size_t holder = 0; holder < seen_.size(); ++holder) {
      if (!seen_[holder].contains(version)) continue;
      std::string text;
      const Poll<Done> read = poll(peers_, what, [&] {
        if (static_cast<std::size_t>(peers_.rank()) == holder) text = read_manifest_here(version);
        return Done{};
      });
      if (const std::optional<std::string> damage = damage_of(read, what)) {
        warnings_.push_back(*damage + "; passed over");
        continue;
      }
      return Manifest::parse(broadcast_text(peers_, std::move(text), static_cast<int>(holder)));
    }
    return std::nullopt;
  }

  std::string read_manifest_here(const Version& version) {
    const std::string key = manifest_key(version);
    std::optional<Error> failure;
    for (const store::Backend* tier : places()) {
      if (!tier->exists(key)) continue;
      std::string text;
      std::optional<Error> damage = attempt(tier->url() + ": object " + key, peers_.rank(), [&] {
        const std::vector<std::byte> bytes = store::read_all(*tier, key);
        text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        if (Manifest::parse(text).version != version) throw Error(ErrorCode::corrupt, "it is of another checkpoint");
      });
      if (!damage) return text;
      if (!is_damage(damage->code())) throw *damage;
      failure = damage;
    }
    if (failure) throw *failure;
    throw Error(ErrorCode::not_found, tiers_.slow->url() + ": " + key + " has been removed meanwhile");
  }

  std::vector<const store::Backend*> places() const {
    if (tiers_.fast) return {tiers_.fast.get(), tiers_.slow.get()};
    return {tiers_.slow.get()};
  }

  /// Throws invalid_argument for a name that is not in the checkpoint.
  template <class Value>
  void check_names(const Manifest& manifest, const std::map<std::string, Value>& named, const char* argument) const {
    for (const auto& [name, value] : named) {
      std::string known;
      bool found = false;
      for (const ArraySpec& array : manifest.arrays) {
        found = found || array.name == name;
        known += (known.empty() ? "'" : ", '") + array.name + "'";
      }
      if (!found) {
        throw Error(ErrorCode::invalid_argument, std::string(argument) + ": no array '" + name + "' was saved, only " +
                                                     (known.empty() ? "none" : known));
      }
    }
  }

  RestoredArray target_of(const ArraySpec& saved) const {
    const auto wanted = options_.layouts.find(saved.name);
    RestoredArray array{saved.name,
                        saved.dtype,
                        wanted != options_.layouts.end()
                            ? wanted->second
                            : Layout::whole(saved.layout.shape(), peers_.rank(), peers_.size()),
                        {},
                        nullptr};
    if (array.layout.shape() != saved.layout.shape()) {
      throw Error(ErrorCode::invalid_argument, "array '" + saved.name + "' was saved with the shape " +
                                                   shape_text(saved.layout.shape()) + "; the requested layout has " +
                                                   shape_text(array.layout.shape()));
    }
    if (array.layout.ranks() > peers_.size()) {
      throw Error(ErrorCode::invalid_argument, "array '" + saved.name + "': the requested layout is on " +
                                                   std::to_string(array.layout.ranks()) + " ranks; expected at most " +
                                                   std::to_string(peers_.size()));
    }
    const std::uint64_t wanted_bytes = local_bytes({saved.name, saved.dtype, array.layout}, peers_.rank());
    const auto into = options_.into.find(saved.name);
    if (into == options_.into.end()) {
      array.memory = allocate(wanted_bytes);
      array.local = {array.memory.get(), wanted_bytes};
    } else if (into->second.size() != wanted_bytes) {
      throw Error(ErrorCode::invalid_argument, "array '" + saved.name + "' takes " + std::to_string(wanted_bytes) +
                                                   " bytes on rank " + std::to_string(peers_.rank()) + ", " +
                                                   std::to_string(into->second.size()) + " given");
    } else {
      array.local = into->second;
    }
    return array;
  }

  std::vector<RestoredArray> read_arrays(const Manifest& manifest, std::vector<std::string>& repairs) const {
    check_names(manifest, options_.layouts, "layouts");
    check_names(manifest, options_.into, "into");
    const auto saved_ranks = static_cast<std::size_t>(manifest.ranks());
    std::vector<RestoredArray> arrays;
    std::vector<std::vector<Piece>> pieces(saved_ranks);
    for (std::size_t a = 0; a < manifest.arrays.size(); ++a) {
      const ArraySpec& saved = manifest.arrays[a];
      arrays.push_back(target_of(saved));
      plan_pieces(saved.layout, arrays.back().layout, peers_.rank(), size_bytes(saved.dtype), manifest.offsets_bytes[a],
                  arrays.back().local, pieces);
    }
    // Each rank starts with another object, so that the ranks do not all read the same one.
    for (std::size_t i = 0; i < saved_ranks; ++i) {
      const std::size_t r = (static_cast<std::size_t>(peers_.rank()) + i) % saved_ranks;
      if (pieces[r].empty()) continue;
      ObjectReader reader({places(), data_key(manifest.version, static_cast<int>(r))}, manifest.objects[r],
                          manifest.chunk_bytes, [&](const std::string& text) { repairs.push_back(text); });
      fill(pieces[r], manifest.chunk_bytes, [&](std::uint64_t index) { return reader.chunk(index); });
      pieces[r] = {};
    }
    return arrays;
  }

  Peers& peers_;
  const Tiers& tiers_;
  const RestoreOptions& options_;
  std::vector<std::set<Version>> seen_;  ///< by rank
  std::vector<std::string> warnings_;
};

}  // namespace

Restored restore(Peers& peers, const Tiers& tiers, const RestoreOptions& options) {
  return Restoration(peers, tiers, options).run();
}

std::vector<Version> complete_versions(const Tiers& tiers) {
  std::set<Version> complete;
  for (const store::Backend* tier : {tiers.slow.get(), tiers.fast.get()}) {
    if (tier == nullptr) continue;
    for (const auto& [version, holding] : list_versions(*tier)) {
      if (holding.manifest) complete.insert(version);
    }
  }
  return {complete.begin(), complete.end()};
}

}  // namespace penstock::checkpoint
