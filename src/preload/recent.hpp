// A short way for calls that are repeated. Calls may take less than half a microsecond, so each nanosecond before
// Penstock or MPI begins matters.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/two_places.hpp"
#include "preload/call.hpp"
#include "preload/rehearsals.hpp"
#include "preload/trial.hpp"
#include "preload/types.hpp"

namespace penstock::preload {

/// What counts the calls of a rest: of a blocking call its trial, of a non-blocking one its part of the rehearsals,
/// too.
struct Counter {
  Trial* trial = nullptr;
  Rehearsals::Part* part = nullptr;

  /// Counts a call that is not measured. False, and it counts nothing, for others.
  bool rests() const noexcept { return part != nullptr ? part->rests() : trial->rests(); }
};

/// The lists of a side as they were in a call. A program may change them in their places.
class KeptLists {
 public:
  /// `blocks`: see ListLengths.
  void keep(const Side& side, std::size_t blocks) {
    counts_.resize(blocks);
    displacements_.resize(side.displacements == nullptr ? 0 : blocks);
    for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] = side.count_of(i);
    for (std::size_t i = 0; i < displacements_.size(); ++i) displacements_[i] = side.displacement_of(i);
  }
  [[gnu::always_inline]] bool holds(const Side& side) const noexcept {
    for (std::size_t i = 0; i < counts_.size(); ++i)
      if (side.count_of(i) != counts_[i]) return false;
    if (side.displacements == nullptr) return displacements_.empty();
    for (std::size_t i = 0; i < displacements_.size(); ++i)
      if (side.displacement_of(i) != displacements_[i]) return false;
    return true;
  }

 private:
  std::vector<std::int64_t> counts_{};
  std::vector<std::int64_t> displacements_{};
};

/// Calls of one communicator in one form, and what is known of each: whatever follows from arguments, and lists, that
/// are equal.
class Recent {
 public:
  /// The arguments of a call apart from its communicator, buffers and lists. Two calls with equal keys, and equal lists
  /// if they have any, are the same for Penstock.
  struct Key {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    MPI_Datatype sent_type{};
    MPI_Datatype received_type{};
    MPI_Op op{};
    int root = 0;
    std::uint32_t sorts = 0;  ///< of the operation and of both sides

    Key() = default;
    [[gnu::always_inline]] explicit Key(const Call& call) noexcept
        : sent(static_cast<std::uint64_t>(call.send.count)),
          received(static_cast<std::uint64_t>(call.receive.count)),
          sent_type(call.send.type),
          received_type(call.receive.type),
          op(call.op),
          root(call.root),
          sorts(static_cast<std::uint32_t>(call.kind) << 8U | sort(call.send) << 4U | sort(call.receive)) {}
    CollectiveKind kind() const noexcept { return static_cast<CollectiveKind>(sorts >> 8U); }
    friend bool operator==(const Key&, const Key&) = default;

   private:
    [[gnu::always_inline]] static std::uint32_t sort(const Side& side) noexcept {
      return (side.buffer == nullptr ? 1U : 0U) | (side.buffer == MPI_IN_PLACE ? 2U : 0U) | (has_lists(side) ? 4U : 0U);
    }
  };

  struct Entry {
    Key key{};
    bool is_set = false;
    bool has_any_arguments = false;  ///< of all calls of an operation whose lengths are not known: they have one trial
    bool synchronises = false;
    const char* reason = nullptr;  ///< why MPI always serves it
    Counter counter{};             ///< without a trial: it is not measured
    KeptLists sent{};
    KeptLists received{};
    bool is_translated = false;  ///< of any arguments: the call that was kept last
    Translated translated{};
    std::ptrdiff_t input_begin = 0;  ///< of the translation, from the call's buffer on: displacements may be negative
    std::ptrdiff_t output_begin = 0;
    bool has_payload = false;
    std::uint64_t payload_bytes = 0;

    /// The translation for a call that find() has found, and its buffers. nullptr if it has to be translated.
    [[gnu::always_inline]] const Translated* of(const Call& now) noexcept {
      if (!is_translated) return nullptr;
      if (has_any_arguments && (key != Key(now) || !holds_lists_of(now))) return nullptr;
      if (translated.input.data() != nullptr)
        translated.input = {static_cast<const std::byte*>(now.send.buffer) + input_begin, translated.input.size()};
      if (translated.output.data() != nullptr)
        translated.output = {static_cast<std::byte*>(const_cast<void*>(now.receive.buffer)) + output_begin,
                             translated.output.size()};
      return &translated;
    }
    /// Of a call with the same key.
    [[gnu::always_inline]] bool holds_lists_of(const Call& now) const noexcept {
      return !has_lists(now) || (sent.holds(now.send) && received.holds(now.receive));
    }
  };

  /// nullptr if it is not one of the calls that are kept. Inline, so that arguments are compared in registers: what has
  /// just been written to memory in pieces is slow to read as a whole.
  [[gnu::always_inline]] Entry* find(const Call& call) const noexcept {
    if (entries_ == nullptr) return nullptr;
    if (!knows_lengths(call.kind))
      if (Entry* const all = entries_->of_any_arguments[static_cast<std::size_t>(call.kind)].get()) return all;
    return entries_->of_equal_arguments.find(hash(call), IsOf{call, Key(call)});
  }

  /// A call that MPI always serves.
  void keep_native(const Call& call, const Members& members, bool reports, const char* reason) noexcept {
    // That a reduction is none of Penstock's follows from its operation, and from any derived type.
    if (!computes(call.kind) && (has_lists(call) || !is_lasting(call))) return;
    if (Entry* const made = make(call, members, reports && !has_lists(call))) made->reason = reason;
  }
  /// A call that is counted, whoever serves it.
  void keep(const Call& call, const Members& members, bool reports, Counter counter) noexcept {
    if (find(call) != nullptr) return;
    if (!counter.trial->knows_length()) {
      if (Entry* const made = make_for_any_arguments(call)) made->counter = counter;
    } else if (is_lasting(call)) {
      Entry* const made = make(call, members, reports);
      if (made != nullptr && keep_lists(*made, call, members)) made->counter = counter;
    }
  }
  /// A call that Penstock serves. Takes the translation, or returns nullptr if it is not kept.
  Entry* keep(const Call& call, const Members& members, bool reports, Counter counter,
              Translated& translated) noexcept {
    const bool knows_length = counter.trial == nullptr || counter.trial->knows_length();
    if (!is_lasting(call) || translated.items != nullptr) return nullptr;
    Entry* kept = find(call);
    if (kept == nullptr) kept = knows_length ? make(call, members, reports) : make_for_any_arguments(call);
    if (kept == nullptr || !keep_lists(*kept, call, members)) return nullptr;
    kept->key = Key(call);
    kept->counter = counter;
    if (translated.input.data() != nullptr)
      kept->input_begin = translated.input.data() - static_cast<const std::byte*>(call.send.buffer);
    if (translated.output.data() != nullptr)
      kept->output_begin = translated.output.data() - static_cast<const std::byte*>(call.receive.buffer);
    translated.plain = PlainCall::of(translated.collective);
    kept->translated = std::move(translated);
    kept->is_translated = true;
    return kept;
  }

 private:
  /// No lambda: the compiler makes a function of a long one, for which arguments go through memory.
  struct IsOf {
    const Call& call;
    Key key;
    [[gnu::always_inline]] bool operator()(const Entry& kept) const noexcept {
      return kept.key == key && kept.is_set && (kept.reason != nullptr || kept.holds_lists_of(call));
    }
  };
  struct Entries {
    base::TwoPlaces<Entry> of_equal_arguments{};
    std::array<std::unique_ptr<Entry>, kCollectiveKinds> of_any_arguments{};
  };

  [[gnu::always_inline]] static std::uint64_t hash(const Call& call) noexcept {
    return base::hash_of_call(static_cast<std::uint64_t>(call.kind), call.root,
                              static_cast<std::uint64_t>(count(call)));
  }
  /// Something about the length of a call. Reads only what MPI says is significant on every rank.
  [[gnu::always_inline]] static std::int64_t count(const Call& call) noexcept {
    if (call.kind == CollectiveKind::gatherv) return call.send.count;
    const bool has_list = call.kind == CollectiveKind::allgatherv || call.kind == CollectiveKind::alltoallv ||
                          call.kind == CollectiveKind::reduce_scatter;
    return has_list && call.receive.counts != nullptr ? call.receive.count_of(0) : call.receive.count;
  }
  [[gnu::always_inline]] static bool has_lists(const Side& side) noexcept {
    return side.counts != nullptr || side.types != nullptr;
  }
  [[gnu::always_inline]] static bool has_lists(const Call& call) noexcept {
    return has_lists(call.send) || has_lists(call.receive);
  }
  /// A derived type may be freed, and its handle become that of a type of another length.
  static bool is_lasting(MPI_Datatype type) noexcept {
    return type == MPI_DATATYPE_NULL || named_type(type) != nullptr;
  }
  static bool is_lasting(const Call& call) noexcept {
    return call.send.types == nullptr && call.receive.types == nullptr && is_lasting(call.send.type) &&
           is_lasting(call.receive.type);
  }

  bool has_entries() noexcept {
    if (entries_ == nullptr) entries_.reset(new (std::nothrow) Entries);
    return entries_ != nullptr;
  }
  /// In place of a call that was there. nullptr without memory. `reports`: all calls of the entry have one payload,
  /// which a report needs.
  Entry* make(const Call& call, const Members& members, bool reports) noexcept {
    if (!has_entries()) return nullptr;
    Entry* const known = find(call);
    Entry& made = known != nullptr ? *known : entries_->of_equal_arguments.make_room(hash(call), [](const Entry& kept) {
      return !kept.is_set;
    });
    made = {.key = Key(call), .is_set = true, .synchronises = preload::synchronises(call)};
    made.has_payload = reports && is_lasting(call);
    if (made.has_payload) made.payload_bytes = payload_bytes(call, members);
    return &made;
  }
  Entry* make_for_any_arguments(const Call& call) noexcept {
    if (!has_entries()) return nullptr;
    auto& made = entries_->of_any_arguments[static_cast<std::size_t>(call.kind)];
    made.reset(new (std::nothrow) Entry{.is_set = true, .has_any_arguments = true});
    return made.get();
  }
  /// The entry becomes one of this call. False without memory: then it is none any more.
  static bool keep_lists(Entry& entry, const Call& call, const Members& members) noexcept {
    entry.is_translated = false;
    try {
      const ListLengths lengths = list_lengths(call, members);
      entry.sent.keep(call.send, lengths.sent);
      entry.received.keep(call.receive, lengths.received);
    } catch (const std::bad_alloc&) {
      if (!entry.has_any_arguments) entry = {};
      return false;
    }
    return true;
  }

  std::unique_ptr<Entries> entries_{};
};

}  // namespace penstock::preload
