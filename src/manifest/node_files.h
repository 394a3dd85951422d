// The files of a checkpoint that lie in the near directory of one node (decision 0026). The other
// nodes have the other files. Stateless; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "manifest/run_directory.h"

namespace deepfreeze {

// Whether other nodes may have files of the checkpoint: the directory is a node's, and the claim of
// the checkpoint's generation names the one that decides. Pure.
[[nodiscard]] bool is_of_several_nodes(const RunListing& listing, const Manifest& manifest);

// The files of those ranks that have one here. No record tells which ranks are this node's, so all
// files of a rank that has none here count as another node's.
[[nodiscard]] std::vector<ManifestFile> files_of_node(const Manifest& manifest,
                                                      const std::vector<DirEntry>& entries);

struct NodeFiles {
  Manifest manifest;          // lists this node's files alone
  std::size_t here = 0;       // number of them that are there
  std::size_t elsewhere = 0;  // files of other nodes
};
// "8 of 32 files here"
[[nodiscard]] std::string files_here(const NodeFiles& own, const Manifest& manifest);

// kNotFound: the attempt has disappeared.
[[nodiscard]] Result<NodeFiles> list_node_files(Vfs& vfs, const Manifest& manifest);

}  // namespace deepfreeze
