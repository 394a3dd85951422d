#include "restore/other_copies.h"

#include <algorithm>
#include <utility>

#include "manifest/history.h"
#include "manifest/run_directory.h"

namespace deepfreeze {

std::vector<ShardFile> other_copies(Vfs& vfs, const Manifest& manifest, const ManifestFile& file) {
  auto listing = read_run(vfs);
  if (!listing) return {};
  std::vector<std::pair<Point, ShardFile>> found;
  for (const AttemptState& attempt : listing->attempts) {
    if (!attempt.committed() || attempt.manifest->point == manifest.point) continue;
    for (const ManifestFile& other : attempt.manifest->files) {
      if (other.name != file.name || other.header_crc != file.header_crc ||
          other.bytes != file.bytes ||
          origin_of(*attempt.manifest, other) != origin_of(manifest, file)) {
        continue;
      }
      auto shard = open_shard_file(vfs, *attempt.manifest, other);
      if (shard) found.emplace_back(attempt.manifest->point, *std::move(shard));
    }
  }
  std::ranges::sort(found, [](const auto& a, const auto& b) { return older(b.first, a.first); });
  std::vector<ShardFile> copies;
  for (auto& [point, shard] : found) copies.push_back(std::move(shard));
  return copies;
}

}  // namespace deepfreeze
