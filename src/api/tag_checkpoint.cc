#include "base/try.h"
#include "deepfreeze/checkpointer.h"
#include "manifest/given_tags.h"
#include "manifest/record_file.h"
#include "object/open_object.h"

namespace deepfreeze {

Result<CheckpointInfo> tag_checkpoint(const CheckpointInfo& info,
                                      const std::map<std::string, std::string>& set,
                                      const std::vector<std::string>& remove) {
  DF_TRY_VOID(check_tags(set));
  DF_TRY(const auto vfs, open_vfs(std::filesystem::path(info.path).parent_path().string()));
  DF_TRY(const Manifest manifest, read_manifest(*vfs, {info.step, info.attempt_id}, ""));
  DF_TRY(GivenTags given, change_tags(*vfs, manifest, {.set = set, .remove = remove}));
  CheckpointInfo tagged = info;
  tagged.tags = tags_of({.name = {info.step, info.attempt_id},
                         .manifest = manifest,
                         .fault = {},
                         .given = std::move(given)});
  return tagged;
}

}  // namespace deepfreeze
