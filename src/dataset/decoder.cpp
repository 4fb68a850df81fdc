#include "dataset/decoder.hpp"

#include "penstock/error.hpp"

namespace penstock::dataset {

#define PENSTOCK_DECODER(name, summary)             \
  std::unique_ptr<Decoder> make_##name##_decoder(); \
  bool recognises_##name(ConstBytes encoded);       \
  void check_##name(const DecodeOptions& options);
#include "dataset/decoders.def"
#undef PENSTOCK_DECODER

Bytes Destination::place(const SampleForm& form) {
  if (growing_ != nullptr) {
    if (before_allocation_) before_allocation_(form.size_bytes());
    growing_->resize(form.size_bytes());
    form_ = form;
    return *growing_;
  }
  if (form != form_)
    throw Error(ErrorCode::corrupt, "is " + form.describe() + " where " + form_.describe() + " is expected");
  return fixed_;
}

const std::vector<DecoderRow>& decoders() {
  static const std::vector<DecoderRow> rows{
#define PENSTOCK_DECODER(name, summary) {#name, summary, make_##name##_decoder, recognises_##name, check_##name},
#include "dataset/decoders.def"
#undef PENSTOCK_DECODER
  };
  return rows;
}

const DecoderRow& decoder_from_name(std::string_view name) {
  std::string known = "auto";
  for (const DecoderRow& row : decoders()) {
    if (row.name == name) return row;
    known += ", " + std::string(row.name);
  }
  throw Error(ErrorCode::invalid_argument,
              "no decoder is called \"" + std::string(name) + "\"; expected one of " + known);
}

void check(const DecodeOptions& options) {
  if (options.threads < 0 || options.threads > 1024)
    throw Error(ErrorCode::invalid_argument, "cannot decode with " + std::to_string(options.threads) +
                                                 " threads; expected 1 to 1024, or 0 for the default");
  // "auto" is for images: any bytes could be raw samples, so that decoder must be named.
  if (options.format == "auto")
    decoders().front().check(options);
  else
    decoder_from_name(options.format).check(options);
}

void DecoderSet::decode(ConstBytes encoded, const DecodeOptions& options, const DecodeContext& context,
                        Destination& destination) {
  for (std::size_t i = 0; i < decoders_.size(); ++i) {
    const DecoderRow& row = decoders()[i];
    if (options.format == "auto" ? !row.recognises(encoded) : row.name != options.format) continue;
    if (!decoders_[i]) decoders_[i] = row.make();
    decoders_[i]->decode(encoded, options, context, destination);
    return;
  }
  throw Error(ErrorCode::corrupt, encoded.empty() ? "is empty" : "starts with the bytes of no known format");
}

}  // namespace penstock::dataset

namespace penstock {

Sample decode_sample(ConstBytes encoded, const DecodeOptions& options, const SampleLimits& limits,
                     const std::string& name) {
  dataset::check(options);
  thread_local dataset::DecoderSet decoders;
  Sample sample;
  dataset::Destination destination(sample.data);
  try {
    if (encoded.size() > limits.bytes)
      throw Error(ErrorCode::invalid_argument, "holds " + std::to_string(encoded.size()) +
                                                   " bytes, more than the limit of " + std::to_string(limits.bytes));
    decoders.decode(encoded, options, {.max_pixels = limits.pixels}, destination);
  } catch (const Error& error) {
    throw Error(error.code(), name + " " + error.message(), -1, error.cause());
  }
  sample.form = destination.form();
  return sample;
}

std::vector<std::string> decoder_names() {
  std::vector<std::string> names;
  for (const dataset::DecoderRow& row : dataset::decoders()) names.emplace_back(row.name);
  return names;
}

}  // namespace penstock
