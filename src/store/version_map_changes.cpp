// Makes maps from other maps, and compares maps.
#include <algorithm>

#include "store/encoding.hpp"
#include "store/map_parts.hpp"
#include "store/version_map.hpp"

namespace penstock::store {

namespace {

/// A stretch of a map with one source, or none.
struct Stretch {
  std::uint64_t end_bytes;
  const Source* source;
  std::uint64_t skip_bytes;  ///< offset in the source of the begin of the stretch
};

std::vector<Stretch> stretches(const VersionMap& map) {
  std::vector<Stretch> found;
  map.visit(0, map.size_bytes(),
            [&](std::uint64_t offset, std::uint64_t size, const Source* source, std::uint64_t skip) {
              found.push_back({offset + size, source, skip});
            });
  return found;
}

bool same_place(const Stretch& a, std::uint64_t a_skip, const Stretch& b, std::uint64_t b_skip, std::uint64_t size) {
  if (a.source == nullptr || b.source == nullptr) return a.source == b.source;
  const Source& left = *a.source;
  const Source& right = *b.source;
  const std::uint64_t left_offset = a.skip_bytes + a_skip;
  const std::uint64_t right_offset = b.skip_bytes + b_skip;
  if (left.is_object() || right.is_object()) {
    return left.object().key == right.object().key && left_offset == right_offset;
  }
  return std::ranges::equal(left.inlined().subspan(left_offset, size), right.inlined().subspan(right_offset, size));
}

void add(std::vector<Extent>& extents, std::uint64_t offset, std::uint64_t size) {
  if (size == 0) return;
  if (!extents.empty() && extents.back().offset_bytes + extents.back().size_bytes == offset) {
    extents.back().size_bytes += size;
  } else {
    extents.push_back({offset, size});
  }
}

}  // namespace

VersionMap VersionMap::adopted(std::uint64_t blob_id,
                               const std::function<ObjectReference(const ObjectReference&)>& renamed) const {
  need_whole();
  VersionMap map(blob_id, size_bytes_);
  map.version_ = 1;
  map.identities_.push_back(0);
  map.fragments_ = fragments_;
  map.sources_ = sources_;
  for (const std::uint32_t number : used_sources()) {
    const Source& from = *sources_[number];
    if (from.is_object()) map.sources_[number] = std::make_shared<const Source>(renamed(from.object()));
  }
  return map;
}

void VersionMap::apply_delta(ConstBytes sealed, const std::string& name) {
  const ConstBytes content = unseal(sealed, name);
  Decoder decoder(content, name);
  if (!is_in_parts(decode_head(decoder, kDeltaMagic, name, kCompressedPartsFormat))) decoder.fail("is of another kind");
  const WholeMap delta = decode_parts(content, name);
  if (delta.head.blob_id != blob_id_) decoder.fail("belongs to another blob");
  if (delta.head.base > version_ || delta.head.version < version_) decoder.fail("does not follow on this version");
  const auto first = static_cast<std::uint32_t>(sources_.size());
  std::vector<Fragment> run;
  const auto place_run = [&] {
    fragments_.place(run);
    run.clear();
  };
  // A whole map has no zeros, so they are cleared between the runs.
  for (Fragment fragment : delta.fragments) {
    if (!stored_ && !delta.sources[fragment.source]) {
      place_run();
      fragments_.clear(fragment.offset_bytes, fragment.size_bytes);
      continue;
    }
    fragment.source += first;
    run.push_back(fragment);
  }
  place_run();
  sources_.insert(sources_.end(), delta.sources.begin(), delta.sources.end());
  version_ = delta.head.version;
  size_bytes_ = delta.head.size_bytes;
  fence_below_ = delta.head.fence_below;
  identities_.clear();
  remember(delta.head.replayed);
  drop_unused_sources();
}

bool VersionMap::changes_as(const VersionMap& other) const {
  if (version_ != other.version_ || size_bytes_ != other.size_bytes_ || fence_below_ != other.fence_below_)
    return false;
  const auto stretches_over = [](const VersionMap& map) {
    std::vector<std::pair<std::uint64_t, Stretch>> found;  // (offset, stretch); neighbours in one place are joined
    map.fragments_.for_each([&](const Fragment& fragment) {
      const Stretch next{fragment.end_bytes(), map.sources_[fragment.source].get(), fragment.source_offset_bytes};
      if (!found.empty() && found.back().second.end_bytes == fragment.offset_bytes) {
        auto& [offset, last] = found.back();
        const bool one_source = last.source == next.source || (last.source != nullptr && last.source->is_object());
        if (one_source && same_place(last, fragment.offset_bytes - offset, next, 0, fragment.size_bytes)) {
          last.end_bytes = next.end_bytes;
          return;
        }
      }
      found.emplace_back(fragment.offset_bytes, next);
    });
    return found;
  };
  return std::ranges::equal(stretches_over(*this), stretches_over(other), [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.end_bytes == b.second.end_bytes &&
           same_place(a.second, 0, b.second, 0, a.second.end_bytes - a.first);
  });
}

bool VersionMap::agrees_with(const VersionMap& other) const {
  const std::size_t known = std::min(identities_.size(), other.identities_.size());
  return version_ == other.version_ && size_bytes_ == other.size_bytes_ && fence_below_ == other.fence_below_ &&
         std::equal(identities_.rbegin(), identities_.rbegin() + static_cast<std::ptrdiff_t>(known),
                    other.identities_.rbegin()) &&
         changes_since(other).empty();
}

VersionMap VersionMap::moved(const std::vector<Part>& parts) const {
  need_whole();
  VersionMap map = *this;
  map.fragments_.clear_all();
  map.place_parts(parts, 0);
  map.compacted_ = true;
  return map;
}

std::vector<Extent> VersionMap::stored_ranges() const {
  need_whole();
  std::vector<Extent> ranges;
  fragments_.for_each([&](const Fragment& fragment) { add(ranges, fragment.offset_bytes, fragment.size_bytes); });
  return ranges;
}

std::vector<Extent> VersionMap::changes_since(const VersionMap& other) const {
  const std::vector<Stretch> mine = stretches(*this);
  const std::vector<Stretch> others = stretches(other);
  std::vector<Extent> changes;
  auto a = mine.begin();
  auto b = others.begin();
  std::uint64_t a_start = 0;
  std::uint64_t b_start = 0;
  std::uint64_t at = 0;
  while (a != mine.end() && b != others.end()) {
    const std::uint64_t end = std::min(a->end_bytes, b->end_bytes);
    if (!same_place(*a, at - a_start, *b, at - b_start, end - at)) add(changes, at, end - at);
    at = end;
    if (a->end_bytes == at) a_start = (a++)->end_bytes;
    if (b->end_bytes == at) b_start = (b++)->end_bytes;
  }
  add(changes, at, std::max(size_bytes_, other.size_bytes()) - at);
  return changes;
}

}  // namespace penstock::store
