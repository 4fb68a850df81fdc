// One atomic, non-contiguous write to a shared blob, and two snapshots of it: ./versions file:///tmp/example
#include <penstock/error.hpp>
#include <penstock/store.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <span>
#include <string>

int main(int argc, char** argv) try {
  penstock::Store store(argc > 1 ? argv[1] : "memory:example");
  const std::string name = "field";
  penstock::Blob blob = store.exists(name) ? store.open(name) : store.create(name, {.size_bytes = 1 << 20});

  const std::string left = "left", right = "right";
  const std::array<penstock::WriteRegion, 2> regions = {
      {{0, std::as_bytes(std::span(left))}, {4096, std::as_bytes(std::span(right))}}};
  const std::uint64_t version = blob.write(regions);

  std::string now(right.size(), '?'), before(right.size(), '?');
  const std::array<penstock::ReadRegion, 1> to_now = {{{4096, std::as_writable_bytes(std::span(now))}}};
  const std::array<penstock::ReadRegion, 1> to_before = {{{4096, std::as_writable_bytes(std::span(before))}}};
  blob.read(to_now, version);
  blob.read(to_before, version - 1);
  std::cout << "version " << version << " holds '" << now << "' at 4096\n";
  return now == right ? 0 : 1;
} catch (const penstock::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
