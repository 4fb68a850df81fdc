#include "store/s3_place.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string_view>

#include "penstock/error.hpp"

namespace penstock::store {

namespace {

constexpr std::string_view kStart = "s3://";
constexpr std::uint64_t kLeastPartBytes = 5 << 20;  // S3's own rule
constexpr std::string_view kForm = "expected s3://, a bucket, '/' and a name";

[[noreturn]] void refuse(const std::string& url, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "'" + url + "' " + why);
}

/// The first of the variables that is set.
std::string environment(std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return {};
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

/// The settings of a section of one of the files of AWS; empty if there is no such file or section.
std::map<std::string, std::string> section_of(const std::string& path, std::string_view wanted) {
  std::map<std::string, std::string> found;
  std::ifstream file(path);
  bool is_wanted = false;
  for (std::string line; std::getline(file, line);) {
    const std::string_view text = trimmed(line);
    if (text.starts_with('[')) {
      is_wanted = trimmed(text.substr(1, text.find(']') - 1)) == wanted;
    } else if (const std::size_t equals = text.find('=');
               is_wanted && equals != std::string_view::npos && !text.starts_with('#')) {
      found[std::string(trimmed(text.substr(0, equals)))] = trimmed(text.substr(equals + 1));
    }
  }
  return found;
}

/// Fills what is still empty from the files of a profile.
void add_profile(S3Place& place, const std::string& profile) {
  const std::string home = environment({"HOME"}) + "/.aws/";
  const auto path = [&](const char* variable, const char* file) {
    const std::string given = environment({variable});
    return given.empty() ? home + file : given;
  };
  const bool is_default = profile == "default";
  const auto config = section_of(path("AWS_CONFIG_FILE", "config"), is_default ? profile : "profile " + profile);
  const auto credentials = section_of(path("AWS_SHARED_CREDENTIALS_FILE", "credentials"), profile);
  const auto take = [&](std::string& to, const char* name) {
    if (!to.empty()) return;
    if (const auto at = credentials.find(name); at != credentials.end())
      to = at->second;
    else if (const auto of = config.find(name); of != config.end())
      to = of->second;
  };
  take(place.endpoint, "endpoint_url");
  take(place.region, "region");
  if (!place.key.empty()) return;  // the three belong together
  take(place.key, "aws_access_key_id");
  take(place.secret, "aws_secret_access_key");
  take(place.session_token, "aws_session_token");
}

template <class Number>
Number number_in(const S3Place& place, std::string_view name, std::string_view text, Number least) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least) {
    refuse(place.url, "has " + std::string(name) + "=" + std::string(text) + ": expected a whole number of at least " +
                          std::to_string(least));
  }
  return number;
}

/// Query parameters may be written as %XX.
std::string decoded(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr == text.data() + i + 3) {
      plain += static_cast<char>(value);
      i += 2;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

void set_parameter(S3Place& place, std::string& profile, std::string_view name, std::string_view value) {
  if (name == "endpoint") {
    place.endpoint = decoded(value);
  } else if (name == "region") {
    place.region = value;
  } else if (name == "profile") {
    profile = decoded(value);
  } else if (name == "timeout_s") {
    place.timeout_s = number_in(place, name, value, 1U);
  } else if (name == "part_bytes") {
    place.part_bytes = number_in(place, name, value, kLeastPartBytes);
  } else if (name == "put_bytes") {
    place.put_bytes = number_in(place, name, value, std::uint64_t{1});
  } else if (name == "in_flight") {
    place.in_flight = number_in(place, name, value, 1U);
  } else {
    refuse(place.url, "has the unknown parameter '" + std::string(name) +
                          "': expected endpoint, region, profile, timeout_s, part_bytes, put_bytes or in_flight");
  }
}

bool is_name(std::string_view text) {
  return std::ranges::all_of(text, [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           std::string_view("._-/").find(c) != std::string_view::npos;
  });
}

}  // namespace

S3Place parse_s3_url(const std::string& url) {
  S3Place place;
  place.url = url;
  if (!url.starts_with(kStart)) refuse(url, "names no bucket: " + std::string(kForm));
  const std::string_view rest = std::string_view(url).substr(kStart.size());
  const std::string_view path = rest.substr(0, rest.find('?'));
  const std::size_t slash = std::min(path.find('/'), path.size());
  place.bucket = path.substr(0, slash);
  std::string_view prefix = path.substr(std::min(slash + 1, path.size()));
  while (prefix.ends_with('/')) prefix.remove_suffix(1);
  if (place.bucket.empty()) refuse(url, "names no bucket: " + std::string(kForm));
  if (!is_name(path) || prefix.starts_with('/') || prefix.find("//") != std::string_view::npos) {
    refuse(url, "has a name that is not allowed: expected letters, digits, '.', '_', '-', and '/' between them");
  }
  if (!prefix.empty()) place.prefix = std::string(prefix) + '/';

  std::string_view query = path.size() == rest.size() ? std::string_view() : rest.substr(path.size() + 1);
  std::string profile;
  while (!query.empty()) {
    const std::string_view parameter = query.substr(0, query.find('&'));
    const std::size_t equals = std::min(parameter.find('='), parameter.size());
    set_parameter(place, profile, parameter.substr(0, equals),
                  parameter.substr(std::min(equals + 1, parameter.size())));
    query.remove_prefix(std::min(parameter.size() + 1, query.size()));
  }
  if (!profile.empty()) add_profile(place, profile);  // named for this place, so it comes before the environment
  if (place.endpoint.empty()) place.endpoint = environment({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  if (place.region.empty()) place.region = environment({"AWS_REGION", "AWS_DEFAULT_REGION"});
  if (place.key.empty()) {
    place.key = environment({"AWS_ACCESS_KEY_ID"});
    place.secret = environment({"AWS_SECRET_ACCESS_KEY"});
    place.session_token = environment({"AWS_SESSION_TOKEN"});
  }
  if (profile.empty()) profile = environment({"AWS_PROFILE"});
  add_profile(place, profile.empty() ? "default" : profile);
  if (place.key.empty() || place.secret.empty()) {
    refuse(url,
           "has no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile in ~/.aws/credentials "
           "(`aws configure`; others: `aws configure export-credentials --format env`)");
  }
  if (place.region.empty()) place.region = "us-east-1";
  if (place.endpoint.empty()) place.endpoint = "https://s3." + place.region + ".amazonaws.com";
  if (!place.endpoint.starts_with("http://") && !place.endpoint.starts_with("https://")) {
    refuse(url, "has the endpoint " + place.endpoint + ": expected http:// or https:// and a host");
  }
  while (place.endpoint.ends_with('/')) place.endpoint.pop_back();
  return place;
}

}  // namespace penstock::store
