// The data of large objects in Ceph: stripes of equal size, each a RADOS object. Ceph spreads them over its targets
// (OSDs) by their names.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "store/rados_entry.hpp"
#include "store/rados_io.hpp"

namespace penstock::store {

/// The stripe size for an object of this size; at most `most_bytes`.
std::uint64_t stripe_bytes_of(std::uint64_t size_bytes, std::uint64_t most_bytes);

/// Starts to write all stripes. Copies the pieces.
void start_stripes(RadosBatch& batch, std::string_view key, const RadosEntry& entry,
                   std::span<const ConstBytes> pieces);
/// These wait for all stripes and return the first status that is not 0, else 0.
int read_stripes(const RadosIo& io, std::string_view key, const RadosEntry& entry, std::uint64_t offset_bytes,
                 Bytes to);
int remove_stripes(const RadosIo& io, std::string_view key, const RadosEntry& entry);

}  // namespace penstock::store
