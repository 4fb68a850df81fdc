// From the bytes of a file to an array.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/dataset.hpp"

namespace penstock::dataset {

/// Where a decoder puts its result: into memory of exactly the right size (a place in a batch), or into a vector that
/// grows as needed.
class Destination {
 public:
  Destination(Bytes fixed, const SampleForm& form) : fixed_(fixed), form_(form) {}
  /// `before_allocation` as in ReadLimits.
  explicit Destination(std::vector<std::byte>& growing, std::function<void(std::uint64_t)> before_allocation = {})
      : growing_(&growing), before_allocation_(std::move(before_allocation)) {}

  /// Memory for a result of this form, uninitialised. Throws Error(corrupt) if that is not what fits.
  Bytes place(const SampleForm& form);
  const SampleForm& form() const { return form_; }

 private:
  Bytes fixed_;
  std::vector<std::byte>* growing_ = nullptr;
  std::function<void(std::uint64_t)> before_allocation_;
  SampleForm form_;
};

/// Which sample is decoded, and what it may take.
struct DecodeContext {
  std::uint64_t max_pixels = SampleLimits().pixels;
  std::uint64_t epoch = 0;
  std::uint64_t index = 0;
  std::uint64_t position = 0;
};

/// Used by one thread at a time; keeps its scratch memory from one sample to the next.
class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Throws Error(corrupt) that says what is wrong with the bytes; the destination's content is then undefined.
  virtual void decode(ConstBytes encoded, const DecodeOptions& options, const DecodeContext& context,
                      Destination& destination) = 0;
};

/// A row of decoders.def.
struct DecoderRow {
  std::string_view name;
  std::string_view summary;
  std::unique_ptr<Decoder> (*make)();
  bool (*recognises)(ConstBytes encoded);
  /// Throws Error(invalid_argument) for a shape or type that this decoder cannot give.
  void (*check)(const DecodeOptions& options);
};

const std::vector<DecoderRow>& decoders();
/// Throws Error(invalid_argument) with the known names.
const DecoderRow& decoder_from_name(std::string_view name);
/// Checks options for a row, or for all rows that "auto" may choose.
void check(const DecodeOptions& options);

/// The decoders of one thread, made when first needed.
class DecoderSet {
 public:
  DecoderSet() : decoders_(decoders().size()) {}
  void decode(ConstBytes encoded, const DecodeOptions& options, const DecodeContext& context, Destination& destination);

 private:
  std::vector<std::unique_ptr<Decoder>> decoders_;
};

}  // namespace penstock::dataset
