// How many messages between nodes this rank has sent to a peer and received from it: what shows that none is left.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>

namespace penstock::engine {

/// Of one pair of ranks, as one of them sees it. Epochs are runs of operations, see TagSplit. A tag is used again two
/// epochs later; by then all messages of its last use must have been received, and its receives be gone. So each of the
/// two tells the other, when the operations of an epoch are over, how many messages it has sent up to its end. Nothing
/// of the next but one epoch passes between them before both have told and each has received as many.
class MessageCounts {
 public:
  struct Told {
    std::uint64_t epoch = 0;
    std::uint64_t sent = 0;  ///< in this epoch and all before
  };

  void note_sent(std::uint64_t epoch) { sent_.add(epoch); }
  void note_received(std::uint64_t epoch) { received_.add(epoch); }

  /// Messages of epochs below may be posted.
  std::uint64_t may_post_before() const { return std::min(told_before_, cleared_before_) + kAhead; }
  static constexpr std::uint64_t kAhead = 2;  ///< may_post_before() at first

  /// Epochs below have been told, or there was nothing to tell; of this one and the next there may be.
  std::uint64_t told_before() const { return told_before_; }
  bool has_news(std::uint64_t epoch) const {
    return epoch >= told_before_ && (sent_.through(epoch) != told_sent_ || received_.through(epoch) != told_received_);
  }
  /// The peer has told of an epoch that is not over here, and waits.
  void ask(std::uint64_t epoch) { asked_before_ = epoch + 1; }
  /// Of epochs below, and was not told.
  std::uint64_t asked_before() const { return asked_before_ > told_before_ ? asked_before_ : 0; }
  /// What to tell of an epoch whose operations are over here.
  Told tell(std::uint64_t epoch) {
    told_before_ = epoch + 1;
    told_sent_ = sent_.through(epoch);
    told_received_ = received_.through(epoch);
    return {epoch, told_sent_};
  }
  /// May have been told, or is none of the last ones.
  bool may_have_sent_in(std::uint64_t epoch) const { return sent_.may_have(epoch); }

  /// In the order in which the peer tells. What it tells again is ignored.
  void hear(const Told& told) {
    if (told.epoch >= (heard_.empty() ? cleared_before_ : heard_.back().epoch + 1)) heard_.push_back(told);
  }
  bool has_heard() const { return !heard_.empty(); }
  const Told& heard() const { return heard_.front(); }
  /// Of the first epoch that was heard, whose operations are over here.
  std::uint64_t received_of_heard() const { return received_.through(heard().epoch); }
  void clear_heard() {
    cleared_before_ = heard().epoch + 1;
    heard_.pop_front();
  }

 private:
  struct Count {
    struct Recent {
      std::uint64_t epoch = ~std::uint64_t{0};
      std::uint64_t count = 0;
    };
    std::uint64_t total = 0;
    std::array<Recent, 2> recent{};

    void add(std::uint64_t epoch) {
      ++total;
      Recent& of_this = recent[epoch % 2];
      if (of_this.epoch != epoch) of_this = {epoch, 0};
      ++of_this.count;
    }
    /// There is nothing yet beyond the epoch after this one.
    std::uint64_t through(std::uint64_t epoch) const {
      const Recent& next = recent[(epoch + 1) % 2];
      return next.epoch == epoch + 1 ? total - next.count : total;
    }
    bool may_have(std::uint64_t epoch) const {
      const Recent& of_this = recent[epoch % 2];
      return of_this.epoch != ~std::uint64_t{0} && of_this.epoch >= epoch;
    }
  };

  Count sent_;
  Count received_;
  std::uint64_t told_before_ = 0;
  std::uint64_t told_sent_ = 0;
  std::uint64_t told_received_ = 0;
  std::uint64_t asked_before_ = 0;
  std::uint64_t cleared_before_ = 0;
  std::deque<Told> heard_;
};

}  // namespace penstock::engine
