#include "engine/fragments.hpp"

#include "plan/eager.hpp"

namespace penstock::engine {

std::size_t Fragments::count(std::uint64_t size_bytes) {
  const std::uint64_t needed = (size_bytes + plan::kEagerBytes - 1) / plan::kEagerBytes;
  return needed >= 1 && needed <= kMost ? needed : 1;
}

void Fragments::cut(std::uint64_t size_bytes) {
  size_bytes_ = size_bytes;
  moved_bytes_ = 0;
  count_ = count(size_bytes);
  done_ = 0;
}

void Fragments::isend(Transport& transport, ConstBytes from, int peer, int tag) {
  cut(from.size());
  for (std::size_t fragment = 0; fragment < count_; ++fragment)
    handles_[fragment] =
        transport.isend(from.subspan(begin(fragment), begin(fragment + 1) - begin(fragment)), peer, tag);
}

void Fragments::irecv(Transport& transport, Bytes to, int peer, int tag) {
  cut(to.size());
  irecv_rest(transport, to, peer, tag);
}

void Fragments::irecv_rest(Transport& transport, Bytes to, int peer, int tag) {
  for (std::size_t fragment = done_; fragment < count_; ++fragment)
    handles_[fragment] = transport.irecv(to.subspan(begin(fragment), begin(fragment + 1) - begin(fragment)), peer, tag);
}

std::optional<std::uint64_t> Fragments::test(Transport& transport) {
  for (; done_ < count_; ++done_) {
    const auto bytes = transport.test(handles_[done_]);
    if (!bytes) return std::nullopt;
    moved_bytes_ += *bytes;
    if (*bytes > 0) continue;
    ++done_;
    withdraw(transport);
    done_ = count_;
    break;
  }
  return moved_bytes_;
}

bool Fragments::withdraw(Transport& transport) {
  std::size_t first_left = count_;
  // From the end: a fragment that arrives meanwhile matches the earliest receive that is still posted.
  for (std::size_t fragment = count_; fragment-- > done_;)
    if (transport.cancel(handles_[fragment])) first_left = fragment;
  done_ = first_left;
  return done_ < count_;
}

}  // namespace penstock::engine
