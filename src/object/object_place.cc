#include "object/object_place.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/printable.h"
#include "base/try.h"
#include "object/signature.h"
#include "object/url_parts.h"

namespace deepfreeze {
namespace {

constexpr std::string_view kScheme = "s3://";
constexpr std::size_t kBucketBytesMin = 3;
constexpr std::size_t kBucketBytesMax = 63;
constexpr std::size_t kPrefixBytesMax = 512;  // of a key's 1,024; the rest is for a run's names
constexpr std::size_t kRegionBytesMax = 63;

constexpr std::string_view kLowerCase = "abcdefghijklmnopqrstuvwxyz0123456789";
constexpr std::string_view kBucketLetters = "abcdefghijklmnopqrstuvwxyz0123456789.-";
constexpr std::string_view kRegionLetters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
constexpr std::string_view kPrefixLetters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._=+@,-/";

std::unexpected<Error> refuse_place(std::string_view object, std::string_view why) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}", object, why));
}

// Names the first letter of `text` that is none of `letters`.
Status check_letters(std::string_view object, std::string_view text, std::string_view letters) {
  const std::size_t found = text.find_first_not_of(letters);
  if (found == std::string_view::npos) return {};
  // A character beyond ASCII has several bytes, of which one alone would be no character.
  std::size_t end = found + 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) ++end;
  return refuse_place(object, fmt::format("\"{}\" is not allowed in it",
                                          printable(text.substr(found, end - found))));
}

bool is_address4(const std::string& text) {
  std::array<unsigned char, 4> ignored{};
  return ::inet_pton(AF_INET, text.c_str(), ignored.data()) == 1;
}

Status check_bucket(const std::string& bucket) {
  const std::string object = fmt::format("bucket \"{}\"", printable(bucket));
  if (bucket.empty()) return refuse_place(kScheme, "no bucket; a place is s3://bucket/prefix");
  DF_TRY_VOID(check_letters(object, bucket, kBucketLetters));
  if (bucket.size() < kBucketBytesMin || bucket.size() > kBucketBytesMax) {
    return refuse_place(object, "a name has 3 to 63 letters");
  }
  if (!kLowerCase.contains(bucket.front()) || !kLowerCase.contains(bucket.back())) {
    return refuse_place(object, "a name begins and ends with a lower-case letter or a digit");
  }
  if (bucket.contains("..")) return refuse_place(object, "a name has no \"..\"");
  if (is_address4(bucket)) return refuse_place(object, "a name must not look like an address");
  return {};
}

// Each part of a key would be a directory or a file of a run.
Status check_prefix(std::string_view prefix) {
  const std::string object = fmt::format("prefix \"{}\"", printable(prefix));
  DF_TRY_VOID(check_letters(object, prefix, kPrefixLetters));
  if (prefix.size() > kPrefixBytesMax) {
    return refuse_place(object, fmt::format("it has more than {} letters", kPrefixBytesMax));
  }
  std::string_view left = prefix;
  while (true) {
    const std::size_t end = std::min(left.find('/'), left.size());
    const std::string_view part = left.substr(0, end);
    if (part.empty() || part == "." || part == "..") {
      return refuse_place(object, fmt::format("\"{}\" is no part of a key", part));
    }
    if (end == left.size()) return {};
    left.remove_prefix(end + 1);
  }
}

// The first of these variables that is set and not empty.
std::string first_of(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto value = environment(name);
    if (value && !value->empty()) return *value;
  }
  return "";
}

// The endpoint's own text may hold a password: no message has it.
Result<std::string> check_endpoint(std::string endpoint, const Environment& environment) {
  constexpr std::string_view kObject = "endpoint, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL";
  while (endpoint.ends_with('/')) endpoint.pop_back();
  const auto parts = split_url(endpoint);
  if (!parts) return std::unexpected(parts.error().within(kObject));
  if (!parts->query.empty()) return refuse_place(kObject, "the URL has a query");
  DF_TRY_VOID(check_letters(kObject, parts->path, kPrefixLetters));
  if (!parts->is_encrypted && !is_loopback(parts->host) &&
      environment("DEEPFREEZE_ALLOW_HTTP") != "1") {
    return refuse_place(kObject,
                        fmt::format("{} is another machine, and plain http:// to it can be "
                                    "read and changed on the way; use https://, or set "
                                    "DEEPFREEZE_ALLOW_HTTP=1",
                                    parts->host));
  }
  return endpoint;
}

std::string endpoint_of_aws(std::string_view region) {
  return fmt::format("https://s3.{}.amazonaws.com{}", region,
                     region.starts_with("cn-") ? ".cn" : "");
}

Status read_names(std::string_view names, ObjectPlace& place) {
  const std::size_t bucket_end = std::min(names.find('/'), names.size());
  place.bucket = names.substr(0, bucket_end);
  if (place.bucket.contains('@')) {
    return refuse_place(kScheme, "keys are not taken from the URL; set AWS_ACCESS_KEY_ID");
  }
  DF_TRY_VOID(check_bucket(place.bucket));
  place.prefix = names.substr(std::min(bucket_end + 1, names.size()));
  if (place.prefix.size() > 1 && place.prefix.ends_with('/')) place.prefix.pop_back();
  return place.prefix.empty() ? Status() : check_prefix(place.prefix);
}

Status read_server(const Environment& environment, const ObjectServer& server, ObjectPlace& place) {
  constexpr std::string_view kRegion = "region, AWS_REGION or AWS_DEFAULT_REGION";
  place.region = server.region;
  if (place.region.empty()) {
    place.region = first_of(environment, {"AWS_REGION", "AWS_DEFAULT_REGION"});
  }
  if (place.region.empty()) place.region = "us-east-1";
  DF_TRY_VOID(check_letters(kRegion, place.region, kRegionLetters));
  if (place.region.size() > kRegionBytesMax) return refuse_place(kRegion, "it is too long");

  const std::string of_aws = endpoint_of_aws(place.region);
  place.endpoint = server.endpoint;
  if (place.endpoint.empty()) {
    place.endpoint = first_of(environment, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  }
  if (place.endpoint.empty()) place.endpoint = of_aws;
  DF_TRY(place.endpoint, check_endpoint(std::move(place.endpoint), environment));
  // A certificate for all buckets does not cover a bucket's name with a dot.
  place.path_style = place.endpoint != of_aws || place.bucket.contains('.');
  place.ca_bundle = first_of(environment, {"AWS_CA_BUNDLE"});
  return {};
}

}  // namespace

bool is_object_url(std::string_view text) { return text.starts_with(kScheme); }

Result<ObjectPlace> parse_object_url(std::string_view url, const Environment& environment,
                                     const ObjectServer& server) {
  if (!is_object_url(url)) return refuse_place(printable(url), "it does not begin with s3://");
  ObjectPlace place;
  DF_TRY_VOID(read_names(url.substr(kScheme.size()), place));
  DF_TRY_VOID(read_server(environment, server, place));
  return place;
}

std::string ObjectPlace::url() const {
  return prefix.empty() ? fmt::format("s3://{}", bucket)
                        : fmt::format("s3://{}/{}", bucket, prefix);
}

std::string ObjectPlace::request_url(std::string_view key, std::string_view query) const {
  std::string address = endpoint;
  if (path_style) {
    address += "/" + bucket;
  } else {
    address.insert(address.find("://") + 3, bucket + ".");
  }
  if (!key.empty()) {
    if (!prefix.empty()) address += "/" + uri_encode(prefix, true);
    address += "/" + uri_encode(key, true);
  } else if (!path_style) {
    address += "/";
  }
  return query.empty() ? address : fmt::format("{}?{}", address, query);
}

}  // namespace deepfreeze
