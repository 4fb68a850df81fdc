// What says that a place is a store, and of which format; the same words in every backend that is durable.
#pragma once

#include <string>
#include <string_view>

namespace penstock::store {

/// The text for a new store.
std::string store_format();

/// Throws corrupt when `text`, found at `place`, names no format; unsupported when the store `url` is of a newer one.
void check_store_format(std::string_view text, const std::string& place, const std::string& url);

}  // namespace penstock::store
