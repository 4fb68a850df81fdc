// What one thread needs to make samples.
#pragma once

#include <cstdint>
#include <vector>

#include "dataset/chain.hpp"
#include "dataset/decoder.hpp"
#include "dataset/pipeline.hpp"

namespace penstock::dataset {

class Worker {
 public:
  Worker(const Chain& chain, const std::optional<SampleForm>& fixed_form) : chain_(chain), fixed_form_(fixed_form) {}

  /// Makes one sample of a batch, in its place. Places of one batch may be filled by several threads at once. Returns
  /// the failure, if there is one; throws nothing.
  std::optional<Work::Failure> make(Work& work, std::uint64_t place, SampleTimes& times) noexcept;

 private:
  void make_or_throw(Work& work, std::uint64_t place, SampleTimes& times, std::size_t& stage);
  void decode(const DecodeOptions& options, ConstBytes encoded, Destination& destination, SampleTimes& times);

  const Chain& chain_;
  const std::optional<SampleForm>& fixed_form_;
  DecoderSet decoders_;
  std::vector<std::byte> file_;
  std::vector<std::byte> spare_;
  Sample sample_;
};

}  // namespace penstock::dataset
