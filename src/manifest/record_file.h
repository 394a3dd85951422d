// How a small sealed record (run file, claim, manifest) gets its name: written whole and synced
// as <stem>.<nonce>.tmp, renamed without replacing, its directory synced. Readers ignore *.tmp.
// Stateless; any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/vfs.h"

namespace deepfreeze {

struct NewRecord {
  std::string_view directory;  // "" is the run's root
  std::string_view name;
  std::string_view text;
};

// The fail points behind each durable step.
struct RecordFailPoints {
  std::string_view written;
  std::string_view renamed;
  std::string_view synced;
};

// Writes the record up to the rename. kExists if the name is taken. On an error the temporary file
// is removed as far as the disk allows. `may_place` is called last, when only the rename remains.
[[nodiscard]] Status place_record(
    Vfs& vfs, const NewRecord& record, const RecordFailPoints& points,
    const std::function<Status()>& may_place = [] { return Status{}; });

// Writes the record over a file that has the name and must not count any more.
[[nodiscard]] Status replace_record(Vfs& vfs, const NewRecord& record,
                                    const RecordFailPoints& points,
                                    const std::function<Status()>& may_replace);

// From the rename to the sync of the directory: only then is the record durable.
[[nodiscard]] Status settle_record(Vfs& vfs, std::string_view directory,
                                   const RecordFailPoints& points);

// "directory/name", or the name alone in the root.
[[nodiscard]] std::string join_name(std::string_view directory, std::string_view name);
[[nodiscard]] bool has_name(const std::vector<DirEntry>& entries, std::string_view name);

}  // namespace deepfreeze
