// Tensors of a checkpoint in a plain safetensors file, for other programs to read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/progress.h"
#include "deepfreeze/tensor.h"
#include "restore/snapshot.h"

namespace deepfreeze {

struct ExportedFile {
  std::string path;
  std::vector<TensorSpec> specs;
  std::string prefix;  // is cut off from the names
  bool replace = false;
};

// Writes the file, verified while read: whole under its name, or not there at all. Returns its
// bytes. `done`: the data bytes of files before it, which `progress` counts too.
[[nodiscard]] Result<std::uint64_t> export_file(const Snapshot& snapshot, const ExportedFile& file,
                                                Progress& progress, std::uint64_t done = 0);

// Without headers. kInvalidArgument on overflow.
[[nodiscard]] Result<std::uint64_t> data_bytes(const std::vector<TensorSpec>& specs);

}  // namespace deepfreeze
