// Small plans for tests of the engine, and random plans with known results.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "penstock/plan.hpp"

namespace penstock::engine {

/// Every rank sends `bytes` to every rank, with no order between messages.
inline std::shared_ptr<const Plan> alltoall_plan(int rank, int size, std::uint64_t bytes) {
  PlanBuilder builder("test/alltoall", rank, size);
  for (int peer = 0; peer < size; ++peer) {
    const std::uint64_t at = static_cast<std::uint64_t>(peer) * bytes;
    builder.recv({at, bytes, Buffer::output}, peer, 1);
    builder.send({at, bytes, Buffer::input}, peer, 1);
  }
  const auto total = static_cast<std::uint64_t>(size) * bytes;
  return std::make_shared<const Plan>(std::move(builder).finish(total, total));
}

/// `count` messages of `bytes` from every rank to the next one. Half of them are ready at once; each of the others
/// depends on the previous one.
inline std::shared_ptr<const Plan> messages_plan(int rank, int size, std::uint32_t count, std::uint64_t bytes) {
  PlanBuilder builder("test/messages", rank, size);
  StepId sent = PlanBuilder::kNone;
  for (std::uint32_t i = 0; i < count; ++i) {
    builder.recv({i * bytes, bytes, Buffer::output}, (rank + size - 1) % size, i);
    const Region from{i * bytes, bytes, Buffer::input};
    if (i % 2 == 0)
      builder.send(from, (rank + 1) % size, i);
    else
      sent = builder.send(from, (rank + 1) % size, i, {sent});
  }
  return std::make_shared<const Plan>(std::move(builder).finish(count * bytes, count * bytes));
}

/// Rank 0 reduces `bytes` of all ranks, one after the other, and sends the result to all.
inline std::shared_ptr<const Plan> allreduce_plan(int rank, int size, std::uint64_t bytes, Lane lane = Lane::progress) {
  PlanBuilder builder("test/allreduce", rank, size);
  const Region input{0, bytes, Buffer::input};
  const Region output{0, bytes, Buffer::output};
  if (rank == 0) {
    StepId last = builder.copy(input, output);
    for (int peer = 1; peer < size; ++peer) {
      const Region arrived = builder.scratch(bytes);
      const StepId received = builder.recv(arrived, peer, 0);
      last = builder.reduce(arrived, output, {received, last});
    }
    for (int peer = 1; peer < size; ++peer) builder.send(output, peer, 1, {last});
  } else {
    const StepId sent = builder.send(input, 0, 0);
    builder.recv(output, 0, 1, {sent});
  }
  Plan plan = std::move(builder).finish(bytes, bytes);
  for (Step& step : plan.steps) step.lane = lane;
  return std::make_shared<const Plan>(std::move(plan));
}

/// Every rank sends `bytes` to each other one. Each message comes into memory of its own and is then copied.
inline std::shared_ptr<const Plan> exchange_plan(int rank, int size, std::uint64_t bytes) {
  PlanBuilder builder("test/exchange", rank, size);
  for (int peer = 0; peer < size; ++peer) {
    const Region block{static_cast<std::uint64_t>(peer) * bytes, bytes, Buffer::output};
    if (peer == rank) {
      builder.copy({block.offset_bytes, bytes, Buffer::input}, block);
      continue;
    }
    builder.send({block.offset_bytes, bytes, Buffer::input}, peer, 1);
    const Region arrived = builder.scratch(bytes);
    builder.copy(arrived, block, {builder.recv(arrived, peer, 1)});
  }
  const auto total = static_cast<std::uint64_t>(size) * bytes;
  return std::make_shared<const Plan>(std::move(builder).finish(total, total));
}

/// Every rank of a node publishes its input in shared memory and reads the inputs of all others.
inline std::shared_ptr<const Plan> shared_allgather_plan(int rank, int size, std::uint64_t bytes) {
  PlanBuilder builder("test/shared_allgather", rank, size);
  const Region mine = builder.shared(bytes);
  const StepId published = builder.copy({0, bytes, Buffer::input}, mine);
  for (int peer = 0; peer < size; ++peer) {
    const Region to{static_cast<std::uint64_t>(peer) * bytes, bytes, Buffer::output};
    if (peer == rank) {
      builder.copy({0, bytes, Buffer::input}, to);
      continue;
    }
    builder.signal(peer, 3, {published});
    const StepId seen = builder.wait(peer, 3);
    builder.read(mine, peer, to, {seen});
  }
  return std::make_shared<const Plan>(std::move(builder).finish(bytes, bytes * static_cast<std::uint64_t>(size)));
}

/// Plans of all ranks that move and add numbers between random slots. Their dependencies give the result of sequential
/// execution. The input and the output of a rank are all its slots.
struct RandomPlans {
  std::vector<std::shared_ptr<const Plan>> plans;
  std::vector<std::vector<std::uint32_t>> inputs;
  std::vector<std::vector<std::uint32_t>> outputs;

  RandomPlans(int size, int events, std::size_t slots, std::uint64_t slot_elems, std::uint32_t seed) {
    std::mt19937 random(seed);
    const auto pick = [&](std::size_t below) {
      return std::uniform_int_distribution<std::size_t>(0, below - 1)(random);
    };
    struct Slot {
      StepId writer = PlanBuilder::kNone;
      std::vector<StepId> readers;
    };
    const auto ranks = static_cast<std::size_t>(size);
    std::vector<PlanBuilder> builders;
    std::vector<std::vector<Slot>> slot_of(ranks, std::vector<Slot>(slots));
    std::vector<std::uint32_t> tags(ranks * ranks, 0);
    const std::uint64_t bytes = slot_elems * 4;
    for (int rank = 0; rank < size; ++rank) {
      builders.emplace_back("test/random", rank, size);
      builders.back().scratch(bytes * slots);
      inputs.emplace_back();
      for (std::size_t i = 0; i < slots * slot_elems; ++i) inputs.back().push_back(random());
      for (std::size_t slot = 0; slot < slots; ++slot)
        slot_of[static_cast<std::size_t>(rank)][slot].writer =
            builders.back().copy({slot * bytes, bytes, Buffer::input}, {slot * bytes, bytes, Buffer::scratch});
    }
    outputs = inputs;
    const auto reading = [&](std::size_t rank, std::size_t slot) {
      return std::vector<StepId>{slot_of[rank][slot].writer};
    };
    const auto writing = [&](std::size_t rank, std::size_t slot) {
      std::vector<StepId> after = slot_of[rank][slot].readers;
      after.push_back(slot_of[rank][slot].writer);
      return after;
    };
    const auto written = [&](std::size_t rank, std::size_t slot, StepId step) { slot_of[rank][slot] = {step, {}}; };
    for (int event = 0; event < events; ++event) {
      const std::size_t from_rank = pick(ranks);
      const std::size_t to_rank = pick(4) == 0 ? from_rank : pick(ranks);
      const std::size_t from = pick(slots);
      std::size_t to = pick(slots);
      const std::uint64_t elems = pick(slot_elems + 1);
      const Region source{from * bytes, elems * 4, Buffer::scratch};
      if (from_rank == to_rank && from == to) to = (to + 1) % slots;
      const Region target{to * bytes, elems * 4, Buffer::scratch};
      const bool add = from_rank == to_rank && pick(2) == 0;
      if (from_rank == to_rank && (add || pick(3) != 0)) {
        std::vector<StepId> after = writing(to_rank, to);
        after.push_back(slot_of[from_rank][from].writer);
        const StepId step =
            add ? builders[to_rank].reduce(source, target, after) : builders[to_rank].copy(source, target, after);
        slot_of[from_rank][from].readers.push_back(step);
        written(to_rank, to, step);
      } else {
        const std::uint32_t tag = tags[from_rank * ranks + to_rank]++;
        const StepId sent = builders[from_rank].send(source, static_cast<int>(to_rank), tag, reading(from_rank, from));
        slot_of[from_rank][from].readers.push_back(sent);
        written(to_rank, to, builders[to_rank].recv(target, static_cast<int>(from_rank), tag, writing(to_rank, to)));
      }
      for (std::uint64_t i = 0; i < elems; ++i) {
        const std::uint32_t value = outputs[from_rank][from * slot_elems + i];
        std::uint32_t& cell = outputs[to_rank][to * slot_elems + i];
        cell = add ? cell + value : value;
      }
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (std::size_t slot = 0; slot < slots; ++slot)
        builders[rank].copy({slot * bytes, bytes, Buffer::scratch}, {slot * bytes, bytes, Buffer::output},
                            reading(rank, slot));
      Plan plan = std::move(builders[rank]).finish(bytes * slots, bytes * slots);
      for (Step& step : plan.steps) step.lane = pick(2) == 0 ? Lane::progress : Lane::application;
      plans.push_back(std::make_shared<const Plan>(std::move(plan)));
    }
  }
};

inline const Arithmetic kAddUint32{.dtype = DType::uint32, .op = ReduceOp::sum};

}  // namespace penstock::engine
