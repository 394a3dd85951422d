// A directory for from_pretrained() of the transformers library: weights, in several files with an
// index if they are many, and the files beside them. Written by `deepfreeze export --transformers`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/progress.h"
#include "deepfreeze/tensor.h"
#include "restore/snapshot.h"

namespace deepfreeze {

struct ModelDirectory {
  std::string path;  // does not exist yet, or is empty
  std::string
      config;  // a directory with a config.json, which is copied with its tokenizer; or none
  std::uint64_t shard_bytes = 0;  // the most for one file, unless a tensor is larger
  std::vector<TensorSpec> specs;
  std::string prefix;  // is cut off from the names
};

struct WrittenModel {
  std::vector<std::string> files;  // names in the directory
  std::uint64_t bytes = 0;         // of the weights' files
};

// Whole under its name, or not there at all. kExists: `path` is taken; kNotFound: no config.json.
[[nodiscard]] Result<WrittenModel> write_model_directory(const Snapshot& snapshot,
                                                         const ModelDirectory& model,
                                                         Progress& progress);

}  // namespace deepfreeze
