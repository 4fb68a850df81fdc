#include "conformance/forked_ranks.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <system_error>

namespace penstock::conformance {
namespace {

constexpr int kAnyRank = -1;
constexpr int kMostForked = 256;
constexpr std::size_t kFewForked = 8;
constexpr std::size_t kMostTransports = 4;
constexpr std::size_t kGatherBytes = 1024;  // of one rank
constexpr std::size_t kTextBytes = 1000;

[[noreturn]] void throw_system(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

/// A barrier and a gather buffer in shared memory.
struct Meeting {
  std::atomic<std::uint32_t> arrived{0};
  std::atomic<std::uint32_t> round{0};
  std::byte gather[kMostForked][kGatherBytes];

  void wait_for_all(int ranks, const std::function<void()>& meanwhile = {}) {
    const std::uint32_t before = round.load();
    if (arrived.fetch_add(1) + 1 == static_cast<std::uint32_t>(ranks)) {
      arrived.store(0);
      round.fetch_add(1);
      return;
    }
    for (int look = 0; round.load() == before; ++look) {
      if (meanwhile) meanwhile();
      look < 1000 ? ::sched_yield() : ::usleep(1000);  // many ranks would keep the others from the cores
    }
  }
};

/// Memory that all processes of a job share.
struct Shared {
  Meeting barrier;
  Meeting transports[kMostTransports];
  char text[kMostForked][kTextBytes];
  std::atomic<pid_t> children[kMostForked];
};

/// A transport over one stream socket for each pair of ranks.
class SocketTransport final : public engine::Transport {
 public:
  SocketTransport(Meeting& meeting, int rank, std::vector<std::int32_t> nodes, std::vector<int> sockets)
      : meeting_(meeting), rank_(rank), nodes_(std::move(nodes)), peers_(nodes_.size()) {
    for (std::size_t i = 0; i < peers_.size(); ++i) peers_[i].socket = sockets[i];
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(nodes_.size()); }
  const std::vector<std::int32_t>& node_of_rank() const override { return nodes_; }
  bool any_thread() const override { return true; }
  int max_tag() const override { return 32767; }
  std::string description() const override { return "forked processes"; }

  bool isend(ConstBytes from, int peer, int tag, Token token) override {
    Peer& to = peers_[static_cast<std::size_t>(peer)];
    if (to.gone) return true;
    if (to.socket < 0) throw std::logic_error("many ranks have no sockets inside a node");
    to.outgoing.push_back({{static_cast<std::int64_t>(from.size()), tag}, from, 0, token});
    return false;
  }

  void irecv(Bytes to, int peer, int tag, Token token) override {
    if (!take_from(to, peer, tag, token)) posted_.push_back({to, peer, tag, token});
  }

  bool take(Bytes to, int tag, Token token) override { return take_from(to, kAnyRank, tag, token); }

  void poll(std::vector<Completion>& complete) override {
    sockets_.resize(peers_.size());
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (peers_[i].socket >= 0 && !peers_[i].gone) write_to(peers_[i]);
      sockets_[i] = {peers_[i].gone ? -1 : peers_[i].socket, POLLIN, 0};
    }
    if (::poll(sockets_.data(), sockets_.size(), 0) > 0)
      for (std::size_t i = 0; i < peers_.size(); ++i)
        if (sockets_[i].revents != 0) read_from(static_cast<int>(i));
    complete.insert(complete.end(), complete_.begin(), complete_.end());
    complete_.clear();
  }

  void cancel(Token receive) override {
    const auto found = std::ranges::find_if(posted_, [&](const Posted& each) { return each.token == receive; });
    if (found == posted_.end()) return;
    posted_.erase(found);
    complete_.push_back({.token = receive, .withdrawn = true});
  }

  bool has_gone(int peer) noexcept override { return peers_[static_cast<std::size_t>(peer)].gone; }
  void poke() noexcept override {}

  void allgather(ConstBytes mine, Bytes all) override { gather(mine, all, {}); }

  void maximum(std::span<std::uint64_t> values, const std::function<void()>& meanwhile) override {
    std::vector<std::uint64_t> all(values.size() * nodes_.size());
    gather(std::as_bytes(values), std::as_writable_bytes(std::span(all)), meanwhile);
    for (std::size_t i = 0; i < all.size(); ++i)
      values[i % values.size()] = std::max(values[i % values.size()], all[i]);
  }

 private:
  void gather(ConstBytes mine, Bytes all, const std::function<void()>& meanwhile) {
    if (mine.size() > kGatherBytes) throw std::length_error("the test's allgather is too short");
    std::memcpy(meeting_.gather[rank_], mine.data(), mine.size());
    meeting_.wait_for_all(size(), meanwhile);
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      std::memcpy(all.data() + i * mine.size(), meeting_.gather[i], mine.size());
    meeting_.wait_for_all(size());
  }

  struct Frame {
    std::int64_t bytes;
    std::int64_t tag;
  };
  struct Outgoing {
    Frame frame;
    ConstBytes data;
    std::size_t written_bytes;  // of the frame and the data
    Token token;
  };
  struct Posted {
    Bytes to;
    int peer;
    int tag;
    Token token;
  };
  struct Message {
    int source;
    int tag;
    std::vector<std::byte> data;
  };
  struct Peer {
    int socket = -1;
    std::atomic<bool> gone{false};
    std::deque<Outgoing> outgoing;
    std::vector<std::byte> incoming;
  };

  void write_to(Peer& peer) {
    while (!peer.outgoing.empty()) {
      Outgoing& message = peer.outgoing.front();
      const std::size_t total = sizeof(Frame) + message.data.size();
      while (message.written_bytes < total) {
        const bool in_frame = message.written_bytes < sizeof(Frame);
        const std::byte* from = in_frame ? reinterpret_cast<const std::byte*>(&message.frame) + message.written_bytes
                                         : message.data.data() + (message.written_bytes - sizeof(Frame));
        const std::size_t bytes = (in_frame ? sizeof(Frame) : total) - message.written_bytes;
        const ssize_t written = ::send(peer.socket, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (written < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (written < 0) return lose(peer);
        message.written_bytes += static_cast<std::size_t>(written);
      }
      complete_.push_back({message.token, message.data.size()});
      peer.outgoing.pop_front();
    }
  }

  void read_from(int source) {
    Peer& peer = peers_[static_cast<std::size_t>(source)];
    std::byte part[64 << 10];
    bool ended = false;
    for (;;) {
      const ssize_t bytes = ::recv(peer.socket, part, sizeof part, MSG_DONTWAIT);
      if (bytes < 0 && errno == EINTR) continue;
      ended = bytes == 0 || (bytes < 0 && errno != EAGAIN);
      if (bytes <= 0) break;
      peer.incoming.insert(peer.incoming.end(), part, part + bytes);
    }
    std::size_t used = 0;
    while (peer.incoming.size() - used >= sizeof(Frame)) {
      Frame frame;
      std::memcpy(&frame, peer.incoming.data() + used, sizeof frame);
      const auto bytes = static_cast<std::size_t>(frame.bytes);
      if (peer.incoming.size() - used < sizeof frame + bytes) break;
      const auto first = peer.incoming.begin() + static_cast<std::ptrdiff_t>(used + sizeof frame);
      arrive({source, static_cast<int>(frame.tag), {first, first + static_cast<std::ptrdiff_t>(bytes)}});
      used += sizeof frame + bytes;
    }
    peer.incoming.erase(peer.incoming.begin(), peer.incoming.begin() + static_cast<std::ptrdiff_t>(used));
    if (ended) lose(peer);
  }

  void lose(Peer& peer) {
    peer.gone = true;
    for (const Outgoing& message : peer.outgoing) complete_.push_back({message.token, message.data.size()});
    peer.outgoing.clear();
  }

  void arrive(Message message) {
    for (auto posted = posted_.begin(); posted != posted_.end(); ++posted) {
      if (posted->tag != message.tag || (posted->peer != kAnyRank && posted->peer != message.source)) continue;
      fill(message, posted->to, posted->token);
      posted_.erase(posted);
      return;
    }
    unexpected_.push_back(std::move(message));
  }

  bool take_from(Bytes to, int peer, int tag, Token token) {
    for (auto message = unexpected_.begin(); message != unexpected_.end(); ++message) {
      if (message->tag != tag || (peer != kAnyRank && message->source != peer)) continue;
      fill(*message, to, token);
      unexpected_.erase(message);
      return true;
    }
    return false;
  }

  void fill(const Message& message, Bytes to, Token token) {
    if (!message.data.empty()) std::memcpy(to.data(), message.data.data(), std::min(to.size(), message.data.size()));
    complete_.push_back({token, message.data.size(), message.data.size() > to.size()});
  }

  Meeting& meeting_;
  const int rank_;
  const std::vector<std::int32_t> nodes_;
  std::vector<Peer> peers_;
  std::vector<pollfd> sockets_;
  std::deque<Posted> posted_;
  std::deque<Message> unexpected_;
  std::vector<Completion> complete_;
};

void open_many_files() {
  struct rlimit limit {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return std::string("killed by ") + ::strsignal(WTERMSIG(status));
  return "ended with status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

std::vector<Outcome> run_forked(const std::vector<std::int32_t>& nodes,
                                const std::function<std::string(ForkedRank&)>& body) {
  const auto ranks = static_cast<int>(nodes.size());
  if (ranks > kMostForked) throw std::length_error("the test has too many ranks");
  const bool are_few = nodes.size() <= kFewForked;
  if (!are_few) open_many_files();
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw_system("mmap");
  auto& shared = *new (memory) Shared;
  // sockets[transport][rank][peer] is the rank's end of the connection with the peer.
  using Ends = std::vector<std::vector<int>>;
  std::vector<Ends> sockets(are_few ? kMostTransports : 1, Ends(nodes.size(), std::vector<int>(nodes.size(), -1)));
  for (Ends& of_transport : sockets)
    for (std::size_t a = 0; a < nodes.size(); ++a)
      for (std::size_t b = a + 1; b < nodes.size(); ++b) {
        if (!are_few && nodes[a] == nodes[b]) continue;
        int ends[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw_system("socketpair");
        of_transport[a][b] = ends[0];
        of_transport[b][a] = ends[1];
      }
  const auto close_if = [&](auto&& is_meant) {
    for (const Ends& of_transport : sockets)
      for (int rank = 0; rank < ranks; ++rank)
        for (const int socket : of_transport[static_cast<std::size_t>(rank)])
          if (socket >= 0 && is_meant(rank)) ::close(socket);
  };

  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t process = ::fork();
    if (process < 0) throw_system("fork");
    if (process > 0) {
      processes.push_back(process);
      continue;
    }
    ::alarm(kHangSeconds);
    close_if([&](int other) { return other != rank; });
    std::string text;
    try {
      std::size_t made = 0;
      ForkedRank self{rank,
                      [&, rank]() -> std::unique_ptr<engine::Transport> {
                        const std::size_t next = made++;
                        if (next == sockets.size()) throw std::length_error("the test has no more transports");
                        return std::make_unique<SocketTransport>(shared.transports[next], rank, nodes,
                                                                 sockets[next][static_cast<std::size_t>(rank)]);
                      },
                      [&](int all) { shared.barrier.wait_for_all(all); },
                      [&, rank] {
                        const pid_t child = ::fork();
                        if (child == 0) {
                          close_if([&](int other) { return other == rank; });
                          ::alarm(kHangSeconds);
                          for (;;) ::pause();
                        }
                        shared.children[rank].store(child);
                      }};
      text = body(self);
    } catch (const std::exception& error) {
      text = std::string("an exception: ") + error.what();
    }
    std::strncpy(shared.text[rank], text.c_str(), kTextBytes - 1);
    ::_exit(0);
  }
  close_if([](int) { return true; });

  std::vector<Outcome> outcomes(nodes.size());
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    int status = 0;
    while (::waitpid(processes[rank], &status, 0) < 0 && errno == EINTR) {
    }
    const bool returned = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    outcomes[rank].text = returned ? shared.text[rank] : how_it_ended(status);
    outcomes[rank].killed = WIFSIGNALED(status) && (WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGKILL);
  }
  for (std::atomic<pid_t>& child : shared.children)
    if (const pid_t process = child.load(); process > 0) ::kill(process, SIGKILL);
  ::munmap(memory, sizeof(Shared));
  return outcomes;
}

}  // namespace penstock::conformance
