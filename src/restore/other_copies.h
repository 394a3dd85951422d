// Further copies of a file that several checkpoints of a run share. They are files of their own on
// the disk, or names of the same one.
#pragma once

#include <vector>

#include "format/records.h"
#include "restore/shard_file.h"
#include "storage/vfs.h"

namespace deepfreeze {

// The file in other committed attempts, newest first, if its header verifies there. It has the same
// origin and the same header. Reads all manifests of the run.
[[nodiscard]] std::vector<ShardFile> other_copies(Vfs& vfs, const Manifest& manifest,
                                                  const ManifestFile& file);

}  // namespace deepfreeze
