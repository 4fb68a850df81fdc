// Tests penstock::Comm made from an MPI communicator.
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "check.hpp"
#include "penstock/mpi.hpp"

namespace {

using namespace penstock;

template <typename T>
ConstBytes in(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}
template <typename T>
Bytes out(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

void against_mpi(Comm& comm, int turns) {
  std::mt19937 random(7);  // equal on all ranks
  for (int turn = 0; turn < turns; ++turn) {
    const std::size_t count = random() % (turn % 4 == 0 ? 50000 : 300);
    const int root = static_cast<int>(random() % static_cast<unsigned>(comm.size()));
    const auto ranks = static_cast<std::size_t>(comm.size());
    std::vector<double> mine(count);
    for (std::size_t i = 0; i < count; ++i)
      mine[i] = static_cast<double>((i + 1) * static_cast<std::size_t>(comm.rank() + 1));
    const int n = static_cast<int>(count);
    std::vector<double> expected(count);
    std::vector<double> got(count);
    std::vector<double> all_expected(count * ranks);
    std::vector<double> all_got(count * ranks);

    const Collective base{.count = count, .dtype = DType::float64, .root = root};
    const auto with = [&](CollectiveKind kind) {
      Collective collective = base;
      collective.kind = kind;
      return collective;
    };
    MPI_Allreduce(mine.data(), expected.data(), n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    comm.run(with(CollectiveKind::allreduce), in(mine), out(got));
    CHECK(got == expected);
    got.assign(count, 0);
    comm.run(with(CollectiveKind::reduce), in(mine), comm.rank() == root ? out(got) : Bytes{});
    if (comm.rank() == root) CHECK(got == expected);

    MPI_Allgather(mine.data(), n, MPI_DOUBLE, all_expected.data(), n, MPI_DOUBLE, MPI_COMM_WORLD);
    comm.run(with(CollectiveKind::allgather), in(mine), out(all_got));
    CHECK(all_got == all_expected);
    all_got.assign(all_got.size(), 0);
    comm.run(with(CollectiveKind::gather), in(mine), comm.rank() == root ? out(all_got) : Bytes{});
    if (comm.rank() == root) CHECK(all_got == all_expected);
    got.assign(count, 0);
    comm.run(with(CollectiveKind::scatter), comm.rank() == root ? in(all_expected) : ConstBytes{}, out(got));
    CHECK(got == mine);
    got = mine;
    expected = mine;
    MPI_Bcast(expected.data(), n, MPI_DOUBLE, root, MPI_COMM_WORLD);
    comm.run(with(CollectiveKind::bcast), {}, out(got));
    CHECK(got == expected);
    comm.run(with(CollectiveKind::barrier), {}, {});
  }
}

void agreement(Comm& comm) {
  comm.agree([] {});
  const int failing = comm.size() - 1;
  const auto fail = [&] {
    if (comm.rank() == failing) throw Error(ErrorCode::no_space, "the disk of this rank is full", comm.rank());
  };
  if (comm.rank() == failing) {
    CHECK_ERROR(comm.agree(fail), no_space);
  } else {
    CHECK_ERROR(comm.agree(fail), peer_failed);
    try {
      comm.agree(fail);
    } catch (const Error& error) {
      CHECK(error.message().find("disk of this rank") != std::string::npos);
      CHECK(error.rank() == failing);
    }
  }
  if (comm.rank() == failing) CHECK_ERROR(comm.agree(fail), no_space);
}

void mistakes(Comm& comm) {
  std::vector<float> x(100, 1.0f);
  std::vector<float> y(100);
  const Collective collective{.kind = CollectiveKind::allreduce, .count = 100, .dtype = DType::float32};
  const int wrong = comm.size() / 2;
  if (comm.rank() == wrong)
    CHECK_ERROR(comm.run(collective, in(x).first(396), out(y)), invalid_argument);
  else
    CHECK_ERROR(comm.run(collective, in(x), out(y)), peer_failed);
  Collective unknown = collective;
  unknown.algorithm = "magic";
  CHECK_ERROR(comm.run(unknown, in(x), out(y)), invalid_argument);
  Collective huge = collective;
  huge.count = ~std::uint64_t{0} / 2;
  CHECK_ERROR(comm.run(huge, in(x), out(y)), invalid_argument);
  comm.run(collective, in(x), out(y));
  CHECK(y[99] == static_cast<float>(comm.size()));
}

void every_algorithm(Comm& comm) {
  std::vector<std::int32_t> x(5000, comm.rank());
  for (const Algorithm& algorithm : algorithms()) {
    Collective collective{.kind = algorithm.kind, .count = x.size(), .dtype = DType::int32};
    if (is_neighborhood(collective.kind))
      collective.graph = std::make_shared<const Graph>(Graph::cartesian(std::vector{comm.size()}, {false}));
    if (!algorithm.fits(comm.team(), collective)) continue;
    collective.algorithm = algorithm.name;
    CHECK(comm.explain(collective).find(std::string(algorithm.name)) != std::string::npos);
    if (collective.kind != CollectiveKind::allreduce) continue;
    std::vector<std::int32_t> y(x.size());
    comm.run(collective, in(x), out(y));
    for (const std::int32_t value : y) CHECK(value == comm.size() * (comm.size() - 1) / 2);
  }
}

void duplicates(Comm& comm) {
  Comm twin = comm.duplicate();
  std::vector<std::int64_t> x(10, 1);
  std::vector<std::int64_t> y(10);
  std::vector<std::int64_t> z(10);
  const Collective collective{.kind = CollectiveKind::allreduce, .count = 10, .dtype = DType::int64};
  Request first = comm.start(collective, in(x), out(y));
  Request second = twin.start(collective, in(x), out(z));
  second.wait();
  first.wait();
  CHECK(y == z);
  CHECK(y[0] == comm.size());
  CHECK(Request().test());
}

}  // namespace

int main(int argc, char** argv) {
  CHECK_ERROR(make_comm(MPI_COMM_WORLD), invalid_argument);  // before MPI_Init
  begin(&argc, &argv);
  CHECK_ERROR(make_comm(MPI_COMM_NULL), invalid_argument);
  if (world_rank() == 0)
    CHECK_ERROR(make_comm(MPI_COMM_WORLD, {.progress_cores = -5}), invalid_argument);
  else
    CHECK_ERROR(make_comm(MPI_COMM_WORLD), peer_failed);

  Comm comm = make_comm(MPI_COMM_WORLD);
  CHECK(comm.rank() == world_rank());
  CHECK(comm.any_thread());
  against_mpi(comm, 20);
  agreement(comm);
  mistakes(comm);
  every_algorithm(comm);
  duplicates(comm);
  {
    // A progress thread completes a started operation without further calls by this rank.
    Comm driven = make_comm(MPI_COMM_WORLD, {.progress_cores = 1});
    against_mpi(driven, 8);
  }
  CHECK(comm.report().find("progress threads: ") != std::string::npos);

  Comm open = make_comm(MPI_COMM_WORLD, {.progress_cores = 1});
  open.run({}, {}, {});
  // The handles outlive MPI.
  MPI_Finalize();
  return 0;
}
