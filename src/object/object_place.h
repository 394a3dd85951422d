// The place of a run in an object store: "s3://bucket/prefix", and the server that has it.
#pragma once

#include <string>
#include <string_view>

#include "deepfreeze/result.h"
#include "object/credentials.h"

namespace deepfreeze {

struct ObjectPlace {
  std::string bucket;
  std::string prefix;    // of all keys; "" or "a/b", without slashes at its ends
  std::string endpoint;  // "https://s3.eu-central-1.amazonaws.com", without a slash at its end
  std::string region;
  bool path_style = false;  // endpoint/bucket/key, else bucket.endpoint/key
  std::string ca_bundle;    // a file; empty: the system's

  [[nodiscard]] std::string url() const;  // "s3://bucket/prefix", for messages
  // The encoded URL of a key below the prefix; if `key` is empty, that of the bucket.
  [[nodiscard]] std::string request_url(std::string_view key, std::string_view query = {}) const;
};

// The server of a store; an empty part is taken from the environment.
struct ObjectServer {
  std::string endpoint;
  std::string region;
};

[[nodiscard]] bool is_object_url(std::string_view text);  // begins with "s3://"

// From the URL, `server`, and AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_REGION or
// AWS_DEFAULT_REGION, AWS_CA_BUNDLE. An endpoint that is named is used in path style, AWS itself in
// virtual-host style unless the bucket's name has a dot. kInvalidArgument: no bucket, a name that
// S3 forbids, a prefix with empty, "." or ".." parts or letters that file names of a run do not
// have, or plain http to another machine unless DEEPFREEZE_ALLOW_HTTP is 1.
[[nodiscard]] Result<ObjectPlace> parse_object_url(std::string_view url,
                                                   const Environment& environment,
                                                   const ObjectServer& server = {});

}  // namespace deepfreeze
