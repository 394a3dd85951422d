#include "api/open_checkpoint.h"
#include "base/try.h"
#include "deepfreeze/checkpointer.h"
#include "manifest/record_file.h"
#include "object/open_object.h"
#include "tiering/fork.h"

namespace deepfreeze {

Result<CheckpointInfo> fork_checkpoint(const CheckpointInfo& info,
                                       const std::filesystem::path& run) {
  const std::string parent = std::filesystem::path(info.path).parent_path().string();
  DF_TRY(const auto from, open_vfs(parent));
  DF_TRY(const Manifest manifest, read_manifest(*from, {info.step, info.attempt_id}, ""));
  DF_TRY(const std::string to, absolute_place(run.string()));
  DF_TRY(const Forked forked, fork_attempt(*from, manifest, parent, to));
  DF_TRY(const auto infos, list_checkpoints(to));
  for (const CheckpointInfo& one : infos) {
    if (one.attempt_id == forked.manifest.point.attempt_id) return one;
  }
  return fail(ErrorCode::kGone, "fork: the new checkpoint was deleted meanwhile");
}

}  // namespace deepfreeze
