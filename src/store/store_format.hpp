// The text that identifies a place as a store and names its format. All durable backends use the same text.
#pragma once

#include <string>
#include <string_view>

namespace penstock::store {

/// The object that holds the text, where a store consists of objects.
inline constexpr std::string_view kFormatObject = "PENSTOCK";

/// The text for a new store.
std::string store_format();

/// Throws Error(corrupt) if `text`, found at `place`, names no format; Error(unsupported) if the store `url` has a
/// newer format.
void check_store_format(std::string_view text, const std::string& place, const std::string& url);

}  // namespace penstock::store
