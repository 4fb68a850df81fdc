// Derived datatypes: their flattened form has MPI's packing order, and collectives on their items give MPI's results.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <vector>

#include "check.hpp"
#include "penstock/error.hpp"
#include "penstock/file.hpp"
#include "penstock/mpi.hpp"

namespace {

using namespace penstock;

/// Draws the same numbers on all ranks if all ranks draw equally often.
struct Dice {
  std::mt19937 random;
  int operator()(int least, int most) {
    return least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
  }
};

class Made {
 public:
  explicit Made(MPI_Datatype handle) : handle_(handle) { MPI_Type_commit(&handle_); }
  Made(Made&& other) noexcept : handle_(std::exchange(other.handle_, MPI_DATATYPE_NULL)) {}
  Made& operator=(Made&&) = delete;
  ~Made() {
    if (handle_ != MPI_DATATYPE_NULL) MPI_Type_free(&handle_);
  }
  MPI_Datatype get() const { return handle_; }

 private:
  MPI_Datatype handle_;
};

MPI_Datatype constructed(Dice& dice, MPI_Datatype old, MPI_Aint extent) {
  MPI_Datatype made = MPI_DATATYPE_NULL;
  const int length = dice(1, 3);
  // The blocks are far enough apart that items do not overlap. They do not always ascend.
  int lengths[] = {dice(0, 2), dice(1, 3), dice(0, 3)};
  int places[] = {8, 0, 4};
  MPI_Aint addresses[] = {places[0] * extent + 3, places[1] * extent, places[2] * extent + 1};
  int sizes[] = {dice(2, 4), dice(3, 5)};
  int subsizes[] = {dice(1, sizes[0]), dice(1, sizes[1])};
  int starts[] = {dice(0, sizes[0] - subsizes[0]), dice(0, sizes[1] - subsizes[1])};
  const int order = dice(0, 1) == 0 ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
  switch (dice(0, 11)) {
    case 0: MPI_Type_contiguous(length, old, &made); break;
    case 1: MPI_Type_vector(dice(1, 3), length, dice(3, 5), old, &made); break;
    case 2: MPI_Type_vector(dice(1, 3), length, -dice(3, 5), old, &made); break;
    case 3: MPI_Type_create_hvector(dice(1, 3), length, 3 * extent + dice(0, 7), old, &made); break;
    case 4: MPI_Type_indexed(3, lengths, places, old, &made); break;
    case 5: MPI_Type_create_hindexed(3, lengths, addresses, old, &made); break;
    case 6: MPI_Type_create_indexed_block(3, length, places, old, &made); break;
    case 7: MPI_Type_create_hindexed_block(3, length, addresses, old, &made); break;
    case 8: {
      MPI_Datatype olds[] = {old, MPI_INT, old};
      MPI_Aint beyond[] = {0, 3 * extent + 5, 4 * extent + 16};
      lengths[1] = 1;
      MPI_Type_create_struct(3, lengths, beyond, olds, &made);
      break;
    }
    case 9: MPI_Type_create_subarray(2, sizes, subsizes, starts, order, old, &made); break;
    case 10: {
      int how[] = {dice(0, 1) == 0 ? MPI_DISTRIBUTE_BLOCK : MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_CYCLIC};
      int blocks[] = {MPI_DISTRIBUTE_DFLT_DARG, dice(1, 2)};
      int grid[] = {2, 2};
      MPI_Type_create_darray(4, dice(0, 3), 2, sizes, how, blocks, grid, order, old, &made);
      break;
    }
    default: {
      MPI_Aint lower = 0;
      MPI_Type_get_extent(old, &lower, &extent);
      MPI_Type_create_resized(old, lower, extent + dice(0, 2) * 4, &made);
      break;
    }
  }
  return made;
}

/// A random datatype, nested up to two levels. It consists of ints, so ints match it.
Made datatype(Dice& dice) {
  MPI_Datatype type = MPI_INT;
  for (int depth = dice(1, 2); depth > 0; --depth) {
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    MPI_Type_get_extent(type, &lower, &extent);
    const MPI_Datatype outer = constructed(dice, type, extent);
    if (type != MPI_INT) MPI_Type_free(&type);
    type = outer;
  }
  return Made(type);
}

/// Memory for items of a datatype, filled with numbers. Items may reach to both sides of the first item's address.
struct Memory {
  std::vector<std::uint8_t> bytes;
  std::ptrdiff_t first = 0;

  Memory(const Datatype& type, std::uint64_t extents, std::uint32_t seed) {
    const std::int64_t reach = static_cast<std::int64_t>(extents) * std::abs(type.extent_bytes()) + 64;
    const std::int64_t before = std::max<std::int64_t>(0, -type.begin_bytes()) + 64;
    first = before;
    bytes.resize(static_cast<std::size_t>(before + reach + std::max<std::int64_t>(0, type.end_bytes())));
    std::mt19937 random(seed);
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::uint8_t>(random()); });
  }
  void* data() { return bytes.data() + first; }
};

void flattened_types_pack_as_mpi_does() {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    Dice dice{std::mt19937(seed)};
    const Made made = datatype(dice);
    const Datatype type = make_datatype(made.get());
    int packed_bytes = 0;
    MPI_Type_size(made.get(), &packed_bytes);
    CHECK(type.size_bytes() == static_cast<std::uint64_t>(packed_bytes));
    packed_bytes *= 3;
    std::vector<std::byte> expected(static_cast<std::size_t>(packed_bytes));
    std::vector<std::byte> got(expected.size());
    Memory memory(type, 3, seed);
    int position = 0;
    MPI_Pack(memory.data(), 3, made.get(), expected.data(), packed_bytes, &position, MPI_COMM_SELF);
    type.pack(memory.data(), 3, got);
    CHECK(got == expected);

    Memory back(type, 3, seed + 1);
    Memory expected_back = back;
    position = 0;
    MPI_Unpack(expected.data(), packed_bytes, &position, expected_back.data(), 3, made.get(), MPI_COMM_SELF);
    type.unpack(expected, back.data(), 3);
    CHECK(back.bytes == expected_back.bytes);
  }
  const Datatype pair = make_datatype(MPI_SHORT_INT);
  CHECK(pair.size_bytes() == 6 && pair.pieces().size() == 2 && pair.extent_bytes() == 8);
  CHECK(make_datatype(MPI_DOUBLE).is_contiguous());
  CHECK_ERROR(make_datatype(MPI_DATATYPE_NULL), invalid_argument);
}

void large_counts() {
#if MPI_VERSION >= 4
  MPI_Datatype vector = MPI_DATATYPE_NULL;
  MPI_Type_vector_c(3, 2, 5, MPI_INT, &vector);
  const MPI_Count sizes[] = {4, 6};
  const MPI_Count subsizes[] = {2, 3};
  const MPI_Count starts[] = {1, 2};
  MPI_Datatype part = MPI_DATATYPE_NULL;
  MPI_Type_create_subarray_c(2, sizes, subsizes, starts, MPI_ORDER_C, vector, &part);
  const MPI_Count lengths[] = {1, 2};
  const MPI_Count places[] = {4000, 0};
  const MPI_Datatype olds[] = {part, MPI_INT};
  MPI_Datatype all = MPI_DATATYPE_NULL;
  MPI_Type_create_struct_c(2, lengths, places, olds, &all);
  const Made made(all);
  MPI_Type_free(&vector);
  MPI_Type_free(&part);
  const Datatype type = make_datatype(made.get());
  Memory memory(type, 2, 1);
  std::vector<std::byte> got(2 * type.size_bytes());
  std::vector<std::byte> expected(got.size());
  int position = 0;
  MPI_Pack(memory.data(), 2, made.get(), expected.data(), static_cast<int>(expected.size()), &position, MPI_COMM_SELF);
  type.pack(memory.data(), 2, got);
  CHECK(got == expected);
#endif
}

enum class Form { blocking, started, persistent };

void run(Comm& comm, Form form, const Collective& collective, const SendItems& send, const ReceiveItems& receive) {
  if (form == Form::blocking) return comm.run_items(collective, send, receive);
  if (form == Form::started) {
    Request request = comm.start_items(collective, send, receive);
    while (!request.test()) {
    }
    return;
  }
  Persistent persistent = comm.prepare_items(collective, send, receive);
  persistent.start().wait();
}

/// Runs one operation of each kind, with a derived datatype on one side, and ints or the same type on the other.
void collectives_are_mpis(Comm& comm, std::uint32_t seed) {
  Dice dice{std::mt19937(seed)};
  const int ranks = comm.size();
  const int rank = comm.rank();
  const auto n = static_cast<std::size_t>(ranks);
  const Made made = datatype(dice);
  int size = 0;
  MPI_Type_size(made.get(), &size);
  const int ints = size / static_cast<int>(sizeof(int));
  const int which = dice(0, 2);
  const MPI_Datatype sent = which == 0 ? MPI_INT : made.get();
  const MPI_Datatype received = which == 1 ? MPI_INT : made.get();
  const int count = dice(0, 4);
  const int sent_scale = which == 0 ? ints : 1;
  const int received_scale = which == 1 ? ints : 1;
  const Datatype send_type = make_datatype(sent);
  const Datatype receive_type = make_datatype(received);
  const int root = dice(0, ranks - 1);
  const bool is_root = rank == root;
  const auto form = static_cast<Form>(dice(0, 2));
  const auto own_seed = seed * 100 + static_cast<std::uint32_t>(rank);
  const auto most_extents = [n](int scale) { return (5 * n + 2) * static_cast<std::uint64_t>(scale); };
  Memory from(send_type, most_extents(sent_scale), own_seed);
  Memory expected(receive_type, most_extents(received_scale), own_seed + 50);
  Memory got = expected;

  const auto sent_count = static_cast<std::uint64_t>(count * sent_scale);
  const auto received_count = static_cast<std::uint64_t>(count * received_scale);
  const SendItems send{.data = from.data(), .count = sent_count, .datatype = send_type};
  const ReceiveItems receive{.data = got.data(), .count = received_count, .datatype = receive_type};
  const int mpi_sent = count * sent_scale;
  const int mpi_received = count * received_scale;

  const bool in_place = dice(0, 2) == 0;
  const void* mpi_send = in_place ? MPI_IN_PLACE : from.data();
  switch (dice(0, 8)) {
    case 0:
      MPI_Bcast(expected.data(), mpi_received, received, root, MPI_COMM_WORLD);
      run(comm, form, {.kind = CollectiveKind::bcast, .root = root}, {}, receive);
      break;
    case 1:
      MPI_Gather(is_root ? mpi_send : from.data(), mpi_sent, sent, expected.data(), mpi_received, received, root,
                 MPI_COMM_WORLD);
      run(comm, form, {.kind = CollectiveKind::gather, .root = root, .in_place = in_place}, send, receive);
      break;
    case 2:
      MPI_Scatter(from.data(), mpi_sent, sent, is_root && in_place ? MPI_IN_PLACE : expected.data(), mpi_received,
                  received, root, MPI_COMM_WORLD);
      run(comm, form, {.kind = CollectiveKind::scatter, .root = root, .in_place = in_place}, send, receive);
      break;
    case 3:
      MPI_Allgather(mpi_send, mpi_sent, sent, expected.data(), mpi_received, received, MPI_COMM_WORLD);
      run(comm, form, {.kind = CollectiveKind::allgather, .in_place = in_place}, send, receive);
      break;
    case 4:
      MPI_Alltoall(mpi_send, mpi_sent, sent, expected.data(), mpi_received, received, MPI_COMM_WORLD);
      run(comm, form, {.kind = CollectiveKind::alltoall, .in_place = in_place}, send, receive);
      break;
    default: {
      // Rank r has (r + a) % 3 items for rank s, at valid positions; the same number for all if MPI requires that.
      const int a = dice(0, 2);
      const bool has_places = dice(0, 1) == 1;
      std::vector<int> sends(n);
      std::vector<int> receives(n);
      std::vector<int> send_places(n);
      std::vector<int> receive_places(n);
      const auto lay = [&](std::vector<int>& counts, std::vector<int>& places, int scale) {
        int next = has_places ? 2 : 0;
        for (std::size_t i = 0; i < n; ++i) {
          counts[i] *= scale;
          places[i] = next;
          next += counts[i] + (has_places ? 1 : 0);
        }
      };
      const auto wide = [&](const std::vector<int>& list) {
        return std::vector<std::uint64_t>(list.begin(), list.end());
      };
      const int kind = dice(0, 3);
      for (int i = 0; i < ranks; ++i) {
        sends[static_cast<std::size_t>(i)] = kind == 3 ? (rank + i + a) % 3 : (i + a) % 3;
        receives[static_cast<std::size_t>(i)] = kind == 3 ? (rank + i + a) % 3 : (i + a) % 3;
      }
      const int own = (rank + a) % 3;
      lay(sends, send_places, sent_scale);
      lay(receives, receive_places, received_scale);
      SendItems send_blocks = send;
      ReceiveItems receive_blocks = receive;
      send_blocks.count = static_cast<std::uint64_t>(own * sent_scale);
      receive_blocks.count = static_cast<std::uint64_t>(own * received_scale);
      send_blocks.blocks.counts = wide(sends);
      receive_blocks.blocks.counts = wide(receives);
      if (has_places) {
        send_blocks.blocks.displacements = wide(send_places);
        receive_blocks.blocks.displacements = wide(receive_places);
      }
      if (kind == 0) {
        MPI_Gatherv(is_root ? mpi_send : from.data(), own * sent_scale, sent, expected.data(), receives.data(),
                    receive_places.data(), received, root, MPI_COMM_WORLD);
        run(comm, form, {.kind = CollectiveKind::gatherv, .root = root, .in_place = in_place}, send_blocks,
            is_root ? receive_blocks : ReceiveItems{});
      } else if (kind == 1) {
        MPI_Scatterv(from.data(), sends.data(), send_places.data(), sent,
                     is_root && in_place ? MPI_IN_PLACE : expected.data(), own * received_scale, received, root,
                     MPI_COMM_WORLD);
        run(comm, form, {.kind = CollectiveKind::scatterv, .root = root, .in_place = in_place},
            is_root ? send_blocks : SendItems{}, receive_blocks);
      } else if (kind == 2) {
        MPI_Allgatherv(mpi_send, own * sent_scale, sent, expected.data(), receives.data(), receive_places.data(),
                       received, MPI_COMM_WORLD);
        run(comm, form, {.kind = CollectiveKind::allgatherv, .in_place = in_place}, send_blocks, receive_blocks);
      } else {
        MPI_Alltoallv(mpi_send, sends.data(), send_places.data(), sent, expected.data(), receives.data(),
                      receive_places.data(), received, MPI_COMM_WORLD);
        run(comm, form, {.kind = CollectiveKind::alltoallv, .in_place = in_place}, send_blocks, receive_blocks);
      }
    }
  }
  CHECK(got.bytes == expected.bytes);
}

/// alltoallw: every pair of ranks has a derived type, of which either side may be the contiguous one.
void random_exchange_of_types(Comm& comm, std::uint32_t seed) {
  std::mt19937 shared(seed);
  const auto dice = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(shared); };
  const int ranks = comm.size();
  const auto n = static_cast<std::size_t>(ranks);
  struct Side {
    std::vector<int> counts, places;
    std::vector<MPI_Datatype> mpi;
    std::vector<Datatype> datatypes;
    Blocks blocks() const { return {{counts.begin(), counts.end()}, {places.begin(), places.end()}}; }
  };
  std::vector<std::unique_ptr<Made>> made;  // by sender and receiver
  Side sends;
  Side receives;
  constexpr int kSlotBytes = 4096;
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to) {
      MPI_Datatype strided = MPI_DATATYPE_NULL;
      MPI_Type_vector(dice(1, 4), dice(1, 3), 3, MPI_INT, &strided);
      made.push_back(std::make_unique<Made>(strided));
      int bytes = 0;
      MPI_Type_size(strided, &bytes);
      const int count = dice(0, 3);
      const int contiguous = dice(0, 2);  // 0: the sender's side is, 1: the receiver's, 2: none
      const int gap_bytes = 4 * dice(0, 5);
      const auto add = [&](Side& side, int peer, bool is_contiguous) {
        const MPI_Datatype type = is_contiguous ? MPI_INT : strided;
        side.counts.push_back(is_contiguous ? count * bytes / static_cast<int>(sizeof(int)) : count);
        side.places.push_back(peer * kSlotBytes + gap_bytes);
        side.mpi.push_back(type);
        side.datatypes.push_back(make_datatype(type));
      };
      if (from == comm.rank()) add(sends, to, contiguous == 0);
      if (to == comm.rank()) add(receives, from, contiguous == 1);
    }
  std::vector<int> mine(n * kSlotBytes / sizeof(int));
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = comm.rank() * 1'000'000 + static_cast<int>(i);
  std::vector<int> expected(mine.size(), -1);
  std::vector<int> got = expected;
  // Not by MPI_Alltoallw: on one rank Open MPI 5.0's takes other places than those given.
  for (int shift = 0; shift < ranks; ++shift) {
    const int to = (comm.rank() + shift) % ranks;
    const int from = (comm.rank() + ranks - shift) % ranks;
    const auto at_to = static_cast<std::size_t>(to);
    const auto at_from = static_cast<std::size_t>(from);
    MPI_Sendrecv(reinterpret_cast<char*>(mine.data()) + sends.places[at_to], sends.counts[at_to], sends.mpi[at_to], to,
                 0, reinterpret_cast<char*>(expected.data()) + receives.places[at_from], receives.counts[at_from],
                 receives.mpi[at_from], from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  run(comm, static_cast<Form>(dice(0, 2)), {.kind = CollectiveKind::alltoallw},
      {.data = mine.data(), .blocks = sends.blocks(), .datatypes = sends.datatypes},
      {.data = got.data(), .blocks = receives.blocks(), .datatypes = receives.datatypes});
  CHECK(got == expected);
  // Absolute addresses as displacements.
  std::ranges::fill(got, -1);
  SendItems absolute_send{.data = nullptr, .blocks = sends.blocks(), .datatypes = {}};
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<Datatype::Piece> pieces(sends.datatypes[i].pieces().begin(), sends.datatypes[i].pieces().end());
    for (Datatype::Piece& piece : pieces) piece.offset_bytes += reinterpret_cast<std::intptr_t>(mine.data());
    absolute_send.datatypes.emplace_back(pieces, sends.datatypes[i].extent_bytes());
  }
  run(comm, Form::blocking, {.kind = CollectiveKind::alltoallw}, absolute_send,
      {.data = got.data(), .blocks = receives.blocks(), .datatypes = receives.datatypes});
  CHECK(got == expected);
}

/// All ranks get the error of one rank.
void wrong_calls(Comm& comm) {
  std::vector<int> memory(static_cast<std::size_t>(comm.size()) * 4);
  const Datatype item = make_datatype(MPI_INT);
  const auto attempt = [&](const Collective& collective, const SendItems& wrong, const ReceiveItems& receive) {
    const bool is_wrong = comm.rank() == 0;
    const SendItems right{.data = memory.data(), .count = 2, .datatype = item};
    if (is_wrong)
      CHECK_ERROR(comm.run_items(collective, wrong, receive), invalid_argument);
    else
      CHECK_ERROR(comm.run_items(collective, right, receive), peer_failed);
  };
  std::vector<int> others(memory.size());
  const ReceiveItems receive{.data = others.data(), .count = 2, .datatype = item};
  attempt({.kind = CollectiveKind::allgather}, {.data = memory.data(), .count = 3, .datatype = item}, receive);
  attempt({.kind = CollectiveKind::allgather}, {.data = nullptr, .count = 2, .datatype = item}, receive);
  attempt({.kind = CollectiveKind::allgather}, {.data = nullptr, .count = ~std::uint64_t{0}, .datatype = item},
          receive);
  for (const CollectiveKind kind : {CollectiveKind::allreduce, CollectiveKind::alltoallv, CollectiveKind::alltoallw}) {
    const Collective collective{.kind = kind};
    CHECK_ERROR(comm.run_items(collective, {}, receive), invalid_argument);
  }
  comm.run({}, {}, {});  // the communicator stays usable
}

/// Received data is unpacked even if the request is dropped.
void dropped_requests(Comm& comm) {
  MPI_Datatype column = MPI_DATATYPE_NULL;
  MPI_Type_vector(4, 1, 5, MPI_INT, &column);
  const Made made(column);
  std::vector<int> memory(20, comm.rank());
  comm.start_items({.kind = CollectiveKind::bcast}, {},
                   {.data = memory.data(), .count = 1, .datatype = make_datatype(made.get())});
  for (std::size_t i = 0; i < memory.size(); ++i) CHECK(memory[i] == (i % 5 == 0 ? 0 : comm.rank()));
}

/// Items at MPI_BOTTOM have absolute addresses.
void absolute_addresses(Comm& comm) {
  const std::vector<int> mine{comm.rank(), 7, comm.rank() + 1};
  std::vector<int> got(static_cast<std::size_t>(comm.size()) * 2, -1);
  MPI_Aint places[2];
  MPI_Get_address(&mine[0], &places[0]);
  MPI_Get_address(&mine[2], &places[1]);
  MPI_Datatype there = MPI_DATATYPE_NULL;
  MPI_Type_create_hindexed_block(2, 1, places, MPI_INT, &there);
  const Made made(there);
  CHECK(make_datatype(made.get()).is_absolute());
  CHECK(!make_datatype(MPI_INT).is_absolute());
  comm.run_items({.kind = CollectiveKind::allgather},
                 {.data = MPI_BOTTOM, .count = 1, .datatype = make_datatype(made.get())},
                 {.data = got.data(), .count = 2, .datatype = make_datatype(MPI_INT)});
  for (int rank = 0; rank < comm.size(); ++rank) {
    CHECK(got[static_cast<std::size_t>(2 * rank)] == rank);
    CHECK(got[static_cast<std::size_t>(2 * rank + 1)] == rank + 1);
  }
}

void file_views() {
  MPI_Datatype column = MPI_DATATYPE_NULL;
  MPI_Type_vector(4, 1, 5, MPI_INT, &column);
  const Made made(column);
  const FileView view = make_view(100, sizeof(int), make_datatype(made.get()));
  CHECK(view.pieces.size() == 4 && view.pieces[3].offset_bytes == 60 && view.extent_bytes == 64);
  const FileView of_nothing = make_view(0, 1, Datatype(std::vector<Datatype::Piece>{}, 4));
  CHECK(of_nothing.pieces.size() == 1 && of_nothing.pieces[0].size_bytes == 0);
  CHECK_ERROR(make_view(0, 1, Datatype({Datatype::Piece{-4, 4}}, 4)), invalid_argument);
}

}  // namespace

int main(int argc, char** argv) {
  begin(&argc, &argv);
  {
    Comm comm = make_comm(MPI_COMM_WORLD);
    if (comm.rank() == 0) flattened_types_pack_as_mpi_does();
    large_counts();
    for (std::uint32_t seed = 0; seed < 400; ++seed) collectives_are_mpis(comm, seed);
    for (std::uint32_t seed = 0; seed < 100; ++seed) random_exchange_of_types(comm, seed);
    wrong_calls(comm);
    absolute_addresses(comm);
    dropped_requests(comm);
    file_views();
  }
  MPI_Finalize();
  return 0;
}
