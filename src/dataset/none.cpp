// Raw bytes that are an array already.
#include <algorithm>

#include "dataset/decoder.hpp"
#include "penstock/error.hpp"

namespace penstock::dataset {

namespace {

class NoneDecoder : public Decoder {
 public:
  void decode(ConstBytes encoded, const DecodeOptions& options, const DecodeContext&,
              Destination& destination) override {
    const SampleForm form{options.dtype, options.shape};
    if (encoded.size() != form.size_bytes())
      throw Error(ErrorCode::corrupt, "holds " + std::to_string(encoded.size()) + " bytes where " + form.describe() +
                                          " has " + std::to_string(form.size_bytes()));
    std::ranges::copy(encoded, destination.place(form).begin());
  }
};

}  // namespace

std::unique_ptr<Decoder> make_none_decoder() { return std::make_unique<NoneDecoder>(); }

// Any bytes could be raw samples, so this decoder must be named.
bool recognises_none(ConstBytes) { return false; }

void check_none(const DecodeOptions& options) {
  if (options.shape.empty())
    throw Error(ErrorCode::invalid_argument, "raw samples need a shape; pass the shape of one sample");
}

}  // namespace penstock::dataset
