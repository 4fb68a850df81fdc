#include "checkpoint/peers.hpp"

#include <algorithm>

namespace penstock::checkpoint {

namespace {

class SingleProcess final : public Peers {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void allgather(ConstBytes mine, Bytes all) override {
    if (!mine.empty()) std::memcpy(all.data(), mine.data(), mine.size());
  }
  void broadcast(Bytes, int) override {}
  void shift(ConstBytes data, int, Bytes received, int) override {
    if (!data.empty()) std::memcpy(received.data(), data.data(), data.size());
  }
};

/// Truncates at the start of a UTF-8 character.
void copy_text(char* to, std::size_t capacity, const std::string& text) {
  std::size_t length = std::min(text.size(), capacity - 1);
  if (length < text.size()) {
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
  }
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

}  // namespace

std::shared_ptr<Peers> single_process() { return std::make_shared<SingleProcess>(); }

Outcome Outcome::of(const Error& error) {
  Outcome outcome;
  outcome.code = static_cast<std::int32_t>(error.code());
  std::string text = error.message();
  if (!error.cause().empty() && text.find(error.cause()) == std::string::npos) text += ": " + error.cause();
  copy_text(outcome.text, sizeof outcome.text, text);
  return outcome;
}

std::optional<Error> attempt(const std::string& what, int rank, const std::function<void()>& action) {
  try {
    action();
    return std::nullopt;
  } catch (const Error& error) {
    const bool told = error.message().starts_with(what);
    return Error(error.code(), told ? error.message() : what + ": " + error.message(),
                 error.rank() >= 0 ? error.rank() : rank, error.cause());
  } catch (const std::exception& error) {
    return Error(ErrorCode::internal, what + ": " + error.what(), rank);
  }
}

void deliver(const std::optional<Error>& own, const std::vector<Outcome>& outcomes, const std::string& what) {
  if (own) throw *own;
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    if (outcomes[r].code == 0) continue;
    std::string text = outcomes[r].text;
    if (text.starts_with(what + ": ")) text.erase(0, what.size() + 2);
    throw Error(ErrorCode::peer_failed,
                what + " failed on rank " + std::to_string(r) + " (" +
                    std::string(name(static_cast<ErrorCode>(outcomes[r].code))) + "): " + text,
                static_cast<int>(r));
  }
}

std::string broadcast_text(Peers& peers, std::string text, int root) {
  std::uint64_t size_bytes = text.size();
  peers.broadcast(std::as_writable_bytes(std::span(&size_bytes, 1)), root);
  text.resize(size_bytes);
  if (size_bytes > 0) peers.broadcast(std::as_writable_bytes(std::span(text.data(), text.size())), root);
  return text;
}

}  // namespace penstock::checkpoint
