// One file on its way into an object store: a PUT, or parts that several threads send.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "deepfreeze/result.h"
#include "object/s3_client.h"
#include "storage/tier_store.h"

namespace deepfreeze {

inline constexpr std::size_t kPartsInFlight = 3;  // besides the one that is being filled

// `client` outlives the upload.
struct ObjectTarget {
  S3Client& client;
  std::string key;
  std::uint64_t bytes = 0;
  IfTaken if_taken = IfTaken::kRefuse;
  std::uint64_t part_bytes = 0;  // a file of up to so many is one PUT
};
[[nodiscard]] Result<std::unique_ptr<Upload>> begin_object_upload(ObjectTarget target);

// The size of the parts of a file: at least `part_bytes`, and so large that there are at most
// kPartsMax.
inline constexpr std::uint64_t kPartsMax = 9'000;  // S3 takes 10,000
[[nodiscard]] std::uint64_t part_bytes_for(std::uint64_t file_bytes, std::uint64_t part_bytes);

}  // namespace deepfreeze
