// The tags that people give to checkpoints, in records beside the manifest, which is never
// rewritten. They keep a checkpoint from being collected (decision 0032). Stateless; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "manifest/run_directory.h"

namespace deepfreeze {

// Reads the record that counts among the names of the attempt's directory. Nothing if there is
// none. It never fails: GivenTags::fault says why the tags are not known.
[[nodiscard]] std::optional<GivenTags> read_given_tags(Vfs& vfs, const AttemptName& name,
                                                       const std::vector<DirEntry>& entries);

// The tags of a checkpoint: those of the save, and over them those that were given later.
[[nodiscard]] Tags tags_of(const AttemptState& attempt);
// Whether it has given tags, or nobody knows them.
[[nodiscard]] bool is_tagged(const AttemptState& attempt);
// Whether the directory of an attempt has any record of tags, empty ones included.
[[nodiscard]] bool has_tag_record(const std::vector<DirEntry>& entries);

struct TagChange {
  Tags set;
  std::vector<std::string> remove;
};

// Changes the given tags of a committed checkpoint; durable on return, together with those that
// other processes give meanwhile. kNotFound: the checkpoint was deleted, or has no such tag to
// remove. kCorrupt: its present tags are not known, or their record has the highest number of all.
// kInvalidArgument: tags that check_tags() refuses, or that fit in no record.
[[nodiscard]] Result<GivenTags> change_tags(Vfs& vfs, const Manifest& manifest,
                                            const TagChange& change);
inline constexpr int kTagTriesMax = 100;

}  // namespace deepfreeze
