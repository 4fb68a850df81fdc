// A record of each rank, as one exchange gathers them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/transport.hpp"

namespace penstock::engine {

/// Each record is followed by what the caller of the exchange adds. Allocates nothing.
template <typename Record>
class RankRecords {
 public:
  static std::size_t bytes_of_one(std::size_t more_bytes) noexcept { return sizeof(Record) + more_bytes; }

  RankRecords() = default;
  /// `memory`: of all ranks. `own`: of one.
  RankRecords(Bytes memory, Bytes own) noexcept : memory_(memory), own_(own) {}

  /// Blocking and collective. `more`: as long as the memory allows, or shorter on all ranks.
  void exchange(Transport& transport, const Record& mine, ConstBytes more) {
    stride_bytes_ = bytes_of_one(more.size());
    std::memcpy(own_.data(), &mine, sizeof mine);
    if (!more.empty()) std::memcpy(own_.data() + sizeof mine, more.data(), more.size());
    transport.allgather(own_.first(stride_bytes_),
                        memory_.first(stride_bytes_ * static_cast<std::size_t>(transport.size())));
  }
  Record of(std::int32_t rank) const {
    Record record;
    std::memcpy(&record, memory_.data() + offset_of(rank), sizeof record);
    return record;
  }
  ConstBytes more_of(std::int32_t rank) const {
    return ConstBytes(memory_).subspan(offset_of(rank) + sizeof(Record), stride_bytes_ - sizeof(Record));
  }
  /// Instead of an exchange, for each rank.
  void set(std::int32_t rank, const Record& record) {
    stride_bytes_ = bytes_of_one(0);
    std::memcpy(memory_.data() + offset_of(rank), &record, sizeof record);
  }

 private:
  std::size_t offset_of(std::int32_t rank) const { return static_cast<std::size_t>(rank) * stride_bytes_; }

  Bytes memory_;
  Bytes own_;
  std::size_t stride_bytes_ = 0;
};

}  // namespace penstock::engine
