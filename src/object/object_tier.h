// A tier in an object store, and its files for reading. Keys are the names of vfs.h below the
// place's prefix. A file of up to kPartBytes is one PUT, a larger one a multipart upload; either
// has its name only once it is whole. Any thread; an Upload or File belongs to its opener.
//
// The view answers list, open_read and remove_file; remove_dir and make_dir succeed, as a store has
// no directories; names are durable when they are given, so settle() and sync_dir() have nothing to
// do. A rename puts the new name before it deletes the old one, for files of up to kPartBytes: both
// are there in between, and after a crash. create is kUnsupported.
#pragma once

#include <atomic>
#include <memory>
#include <string_view>

#include "deepfreeze/result.h"
#include "object/s3_client.h"
#include "storage/tier_store.h"
#include "storage/vfs.h"

namespace deepfreeze {

inline constexpr std::uint64_t kPartBytes = 16U << 20U;  // grows for files of more than 9,000 parts
inline constexpr std::uint64_t kObjectBytesMax = std::uint64_t{5} << 40U;  // of S3

// Neither asks the store anything. Tests bring smaller parts.
// `takes_references` needs a store that honours conditions of writes: ObjectProbe.
[[nodiscard]] std::unique_ptr<TierStore> make_object_tier(std::shared_ptr<S3Client> client,
                                                          std::uint64_t part_bytes = kPartBytes,
                                                          bool takes_references = true);
[[nodiscard]] std::unique_ptr<Vfs> make_object_view(std::shared_ptr<S3Client> client);

// Whether the bucket answers, and the keys allow reading and, unless `read_only`, writing and
// deleting: a probe object is put, refused a second time, read and removed. Aborts uploads of this
// prefix that began more than kStaleUpload ago.
struct ObjectProbe {
  bool has_conditional_writes = false;  // "If-None-Match: *" is honoured
  bool keeps_checksums = false;         // HEAD tells the CRC-32C of a whole object
};
inline constexpr std::chrono::hours kStaleUpload{24};
[[nodiscard]] Result<ObjectProbe> probe(S3Client& client, bool read_only);

}  // namespace deepfreeze
