// HTTP by the system's libcurl, which is found at run time. Connections are kept for the next
// request to the same server.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "deepfreeze/result.h"
#include "object/http.h"

namespace deepfreeze {

inline constexpr std::size_t kIdleConnectionsMax = 8;

struct CurlSettings {
  std::string ca_bundle;  // a file of certificates that are trusted; empty: the system's
};

// kUnsupported: this machine has no libcurl, or one that is too old.
[[nodiscard]] Result<std::shared_ptr<HttpTransport>> make_curl_transport(
    const CurlSettings& settings);

}  // namespace deepfreeze
