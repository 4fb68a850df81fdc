// From the pixels of a decoded image to the sample that its options ask for: turned, cropped, flipped, scaled,
// normalised and laid out, in one pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataset/decoder.hpp"
#include "dataset/resize.hpp"
#include "penstock/dataset.hpp"

namespace penstock::dataset {

/// How one image becomes a sample, decided once its size is known. Everything is in the coordinates of the stored
/// image.
struct ImagePlan {
  Resizer::Size stored;
  Resizer::Box box;      ///< what is kept
  Resizer::Size target;  ///< to which that is scaled
  // From scaled to sample: rows and columns are mirrored, then exchanged.
  bool mirror_rows = false;
  bool mirror_columns = false;
  bool transpose = false;

  SampleForm form(const DecodeOptions& options) const;
  /// `box` in the coordinates of the image as a decoder has scaled it.
  Resizer::Box box_in(Resizer::Size decoded) const;
  /// All pixels in their places: a decoder that makes images of the target's size may write them into the sample.
  bool keeps_all(const DecodeOptions& options) const;
};

/// `orientation` as in EXIF, 1 to 8. Throws Error(corrupt) for an image without pixels or beyond the limit of pixels.
ImagePlan plan_image(Resizer::Size stored, int orientation, const DecodeOptions& options, const DecodeContext& context);

/// Throws Error(invalid_argument) for options that no image can be decoded with.
void check_image(const DecodeOptions& options);

/// The orientation that an EXIF block ("Exif\0\0" and a TIFF file) holds; 1 if it holds none.
int exif_orientation(ConstBytes exif);

/// Keeps its scratch memory; one thread at a time.
class ImageFinisher {
 public:
  /// At least so many bytes for pixels, whose old content is lost.
  std::uint8_t* scratch(std::size_t size_bytes);
  /// A part of a decoded image, in its pixels.
  struct Part {
    int top = 0;
    int left = 0;
    int height = 0;
    int width = 0;
    static Part of(Resizer::Size size) { return {0, 0, size.height, size.width}; }
  };
  /// RGB pixels, interleaved, of the whole image or of a smaller one that a decoder has scaled.
  void run(const std::uint8_t* pixels, Resizer::Size decoded, const ImagePlan& plan, const DecodeOptions& options,
           Destination& destination) {
    run(pixels, decoded, Part::of(decoded), plan, options, destination);
  }
  /// The same from the pixels of a part, which holds the plan's box.
  void run(const std::uint8_t* pixels, Resizer::Size decoded, const Part& part, const ImagePlan& plan,
           const DecodeOptions& options, Destination& destination);

 private:
  Resizer resizer_;
  std::vector<std::uint8_t> scratch_;
};

}  // namespace penstock::dataset
