// All-pairs shortest paths (Floyd-Warshall), with the matrix distributed by rows. In step k the owner of row k
// broadcasts it, so broadcasts limit the scaling. Usage: mpiexec -n 4 asp [vertices] [--native]
// --native broadcasts with MPI_Bcast instead. For up to 1024 vertices the paths are compared with those of one rank.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include <penstock/mpi.hpp>

namespace {

constexpr std::int32_t kFar = 1 << 29;  // 2 * kFar does not overflow

std::vector<std::int32_t> graph(int vertices) {
  std::vector<std::int32_t> lengths(static_cast<std::size_t>(vertices) * static_cast<std::size_t>(vertices), kFar);
  std::uint32_t state = 12345;
  const auto random = [&] { return (state = state * 1664525u + 1013904223u) >> 8; };
  for (int from = 0; from < vertices; ++from) {
    const auto row = lengths.begin() + static_cast<std::ptrdiff_t>(from) * vertices;
    row[from] = 0;
    for (int edge = 0; edge < 8; ++edge) {
      const int to = static_cast<int>(random() % static_cast<std::uint32_t>(vertices));
      if (to != from) row[to] = static_cast<std::int32_t>(1 + random() % 1000);
    }
  }
  return lengths;
}

void relax(std::span<std::int32_t> row, std::span<const std::int32_t> through, int k) {
  const std::int32_t to_k = row[static_cast<std::size_t>(k)];
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = std::min(row[j], to_k + through[j]);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int vertices = 512;
  bool native = false;
  for (int i = 1; i < argc; ++i)
    if (std::strcmp(argv[i], "--native") == 0)
      native = true;
    else
      vertices = std::max(1, std::atoi(argv[i]));
  bool is_right = true;
  {
    penstock::Comm comm = penstock::make_comm(MPI_COMM_WORLD);
    const auto n = static_cast<std::size_t>(vertices);
    const auto first_of = [&](int rank) { return static_cast<int>(std::int64_t{vertices} * rank / comm.size()); };
    const int first = first_of(comm.rank());
    const int end = first_of(comm.rank() + 1);
    const std::vector<std::int32_t> all = graph(vertices);
    std::vector<std::int32_t> mine(all.begin() + static_cast<std::ptrdiff_t>(first) * vertices,
                                   all.begin() + static_cast<std::ptrdiff_t>(end) * vertices);
    std::vector<std::int32_t> through(n);
    const auto row = [&](int k) { return std::span(mine).subspan(static_cast<std::size_t>(k - first) * n, n); };

    MPI_Barrier(MPI_COMM_WORLD);
    const double begin_s = MPI_Wtime();
    double bcast_s = 0;
    for (int k = 0, owner = 0; k < vertices; ++k) {
      while (k >= first_of(owner + 1)) ++owner;
      if (owner == comm.rank()) std::ranges::copy(row(k), through.begin());
      const double at_s = MPI_Wtime();
      if (native)
        MPI_Bcast(through.data(), vertices, MPI_INT32_T, owner, MPI_COMM_WORLD);
      else
        comm.run({.kind = penstock::CollectiveKind::bcast, .count = n, .dtype = penstock::DType::int32, .root = owner},
                 {}, std::as_writable_bytes(std::span(through)));
      bcast_s += MPI_Wtime() - at_s;
      for (int i = first; i < end; ++i) relax(row(i), through, k);
    }
    double times_s[2] = {MPI_Wtime() - begin_s, bcast_s};
    MPI_Allreduce(MPI_IN_PLACE, times_s, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);

    if (vertices <= 1024) {
      std::vector<std::int32_t> alone = all;
      for (int k = 0; k < vertices; ++k) {
        std::ranges::copy(std::span(alone).subspan(static_cast<std::size_t>(k) * n, n), through.begin());
        for (std::size_t i = 0; i < n; ++i) relax(std::span(alone).subspan(i * n, n), through, k);
      }
      is_right = std::ranges::equal(mine, std::span(alone).subspan(static_cast<std::size_t>(first) * n, mine.size()));
    }
    int all_right = is_right;
    MPI_Allreduce(MPI_IN_PLACE, &all_right, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    is_right = all_right != 0;
    if (comm.rank() == 0)
      std::printf("%d vertices, %d ranks, %s: %.3f s, of these %.3f s in broadcasts; %s\n", vertices, comm.size(),
                  native ? "MPI_Bcast" : "Penstock", times_s[0], times_s[1],
                  vertices > 1024 ? "not compared"
                  : is_right      ? "as by one rank"
                                  : "WRONG");
  }
  MPI_Finalize();
  return is_right ? 0 : 1;
}
