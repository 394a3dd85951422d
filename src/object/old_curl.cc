// A libcurl from before the oldest one that we take, for a test: it only tells its version.
#include "object/curl_library.h"

extern "C" const deepfreeze::curl::Version* curl_version_info(int /*age*/) {
  static constexpr deepfreeze::curl::Version kVersion{
      .age = 0, .text = "7.67.0", .number = 0x074300};
  return &kVersion;
}
