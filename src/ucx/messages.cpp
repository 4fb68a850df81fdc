// The application's own messages.
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "penstock/error.hpp"
#include "ucx/transport.hpp"

namespace penstock::ucx {
namespace {

constexpr int kMostTag = (1 << (TagSpace::kTagBits - 1)) - 1;

/// The half of a context's tags that the engine does not use.
TagSpace of_messages(std::uint32_t context) {
  TagSpace tags = TagSpace::of_context(context);
  tags.base |= std::uint64_t{1} << (TagSpace::kTagBits - 1);
  return tags;
}

}  // namespace

class MessageChannel;

/// Invariant: a message that is not over is in its channel's table under its token.
struct Message::State {
  std::shared_ptr<MessageChannel> channel{};
  std::uint32_t token = 0;
  bool receives = false;
  int peer = 0;
  std::uint64_t expected_bytes = 0;
  std::optional<Channel::Done> over{};
};

class MessageChannel final : public Messages, public std::enable_shared_from_this<MessageChannel> {
 public:
  MessageChannel(Worker& worker, const Group& group, const Members& members)
      : channel_(worker, of_messages(members.context), group.rank, members.addresses, group.timeout) {}

  int max_tag() const override { return kMostTag; }

  Message send(ConstBytes from, int peer, int tag) override {
    check(peer, tag, false);
    const std::lock_guard lock(mutex_);
    auto state = add({.receives = false, .peer = peer, .expected_bytes = from.size()});
    if (channel_.send(from, peer, static_cast<std::uint64_t>(tag), state->token))
      finish({.token = state->token, .bytes = from.size(), .source = peer, .is_lost = channel_.has_failed(peer)});
    return Message(std::move(state));
  }

  Message receive(Bytes to, int peer, int tag) override {
    check(peer, tag, true);
    const std::lock_guard lock(mutex_);
    if (peer >= 0) channel_.watch(peer);  // so that the end of its process is noticed
    auto state = add({.receives = true, .peer = peer, .expected_bytes = to.size()});
    channel_.receive(to, peer, static_cast<std::uint64_t>(tag), state->token);
    return Message(std::move(state));
  }

  bool is_over(Message::State& message) {
    const std::lock_guard lock(mutex_);
    if (message.over) return true;
    poll();
    if (message.over) return true;
    if (!message.receives || message.peer < 0 || !channel_.has_gone(message.peer)) return false;
    poll();  // all that it has sent is there
    if (message.over) return true;
    channel_.cancel(message.token);
    poll();
    if (message.over) message.over->is_lost = true;
    return message.over.has_value();
  }

  bool cancel(Message::State& message) {
    const std::lock_guard lock(mutex_);
    if (message.over) return true;
    if (message.receives) channel_.cancel(message.token);
    poll();
    return message.over.has_value();
  }

 private:
  std::shared_ptr<Message::State> add(Message::State made) {
    made.channel = shared_from_this();
    while (messages_.contains(next_)) ++next_;
    made.token = next_;
    // Not the token that Channel keeps for itself.
    next_ = (next_ + 1) & 0x7fffffffu;
    auto state = std::make_shared<Message::State>(std::move(made));
    messages_.emplace(state->token, state);
    return state;
  }

  void finish(const Channel::Done& done) {
    const auto found = messages_.find(done.token);
    if (found == messages_.end()) return;
    if (const auto state = found->second.lock()) state->over = done;
    messages_.erase(found);
  }

  void poll() {
    channel_.poll(done_);
    for (const Channel::Done& each : done_) finish(each);
    done_.clear();
  }

  void check(int peer, int tag, bool may_be_any) const {
    if (tag < 0 || tag > kMostTag)
      throw Error(ErrorCode::invalid_argument,
                  "the tag is " + std::to_string(tag) + "; expected one from 0 to " + std::to_string(kMostTag));
    if (peer >= channel_.size() || peer < (may_be_any ? Channel::kAnyRank : 0))
      throw Error(ErrorCode::invalid_argument, "the peer is " + std::to_string(peer) + "; expected a rank from 0 to " +
                                                   std::to_string(channel_.size() - 1) +
                                                   (may_be_any ? ", or -1 for any" : ""));
  }

  std::mutex mutex_;
  Channel channel_;
  std::unordered_map<std::uint32_t, std::weak_ptr<Message::State>> messages_;
  std::uint32_t next_ = 0;
  std::vector<Channel::Done> done_;
};

Message::Message(std::shared_ptr<State> state) : state_(std::move(state)) {}
Message::Message(Message&&) noexcept = default;
Message& Message::operator=(Message&&) noexcept = default;

Message::~Message() { cancel(); }

bool Message::test() {
  State& state = *state_;
  if (!state.channel->is_over(state)) return false;
  const Channel::Done& done = *state.over;
  const std::string whom = (state.receives ? "a receive from " : "a send to ") +
                           (state.peer < 0 ? std::string("any rank") : "rank " + std::to_string(state.peer));
  if (done.is_lost)
    throw Error(ErrorCode::peer_failed,
                whom + " failed: rank " + std::to_string(state.peer) + " has gone: its process ended", state.peer);
  if (done.withdrawn) throw Error(ErrorCode::invalid_argument, whom + " was cancelled");
  if (done.too_long)
    throw Error(ErrorCode::mismatch,
                whom + " got a message of " + std::to_string(done.bytes) + " bytes from rank " +
                    std::to_string(done.source) + "; expected at most " + std::to_string(state.expected_bytes),
                done.source);
  return true;
}

int Message::source() const { return state_->over ? state_->over->source : -1; }
std::uint64_t Message::size_bytes() const { return state_->over ? state_->over->bytes : 0; }

bool Message::cancel() noexcept {
  try {
    return state_ == nullptr || state_->channel->cancel(*state_);
  } catch (const std::exception&) {
    return false;  // out of memory
  }
}

std::shared_ptr<Messages> make_messages(Worker& worker, const Group& group, const Members& members) {
  return std::make_shared<MessageChannel>(worker, group, members);
}

}  // namespace penstock::ucx
