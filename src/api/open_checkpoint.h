// Committed checkpoints as the public interface shows them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "api/tiers.h"
#include "deepfreeze/checkpointer.h"
#include "manifest/run_directory.h"
#include "restore/snapshot.h"
#include "storage/os_error.h"

namespace deepfreeze {

inline constexpr std::size_t kReadThreads = 4;  // reads in flight; two already saturate most disks

// All committed checkpoints that were not deleted, newest first, including faulty ones.
[[nodiscard]] std::vector<CheckpointInfo> describe_all(Vfs& vfs, const RunListing& listing);
// The same for a run on several tiers.
[[nodiscard]] std::vector<CheckpointInfo> describe_tiers(const TieredListing& found, Vfs& near,
                                                         std::span<Vfs* const> far);
// The files of a checkpoint on other nodes.
struct CheckpointFiles {
  std::unique_ptr<Vfs> others;
  // Makes the files that are calculated from parity; empty: no node has parity.
  std::function<std::unique_ptr<Vfs>(const Manifest&)> rebuild;
};
// As open_checkpoint(), with files that count as nearer than the tiers. `near` is this node's
// directory: it may have files and not know the outcome. `keeper` holds the objects that they
// borrow.
[[nodiscard]] Result<OpenCheckpoint> open_on_nodes(const CheckpointInfo& info,
                                                   const std::string& near, CheckpointFiles files,
                                                   std::shared_ptr<const void> keeper);
[[nodiscard]] Point point_of(const CheckpointInfo& info);

// True for errors that make a restore fall back: the checkpoint is at fault, not the request, nor
// this process's permissions.
[[nodiscard]] inline bool is_fault(const Error& error) {
  return error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kIncomplete ||
         (error.code() == ErrorCode::kIo && !is_refusal(error));
}

}  // namespace deepfreeze
