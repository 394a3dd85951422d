#include "manifest/record_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/fail_point.h"
#include "base/hex.h"
#include "base/random_id.h"
#include "base/try.h"

namespace deepfreeze {
namespace {

std::string temporary_name(const NewRecord& record) {
  const std::string_view stem = record.name.substr(0, record.name.find_first_of(".-"));
  return join_name(record.directory, fmt::format("{}.{}.tmp", stem, hex64(random_id())));
}

using Rename = std::function<Status(const std::string& from, const std::string& to)>;

Status write_and_rename(Vfs& vfs, const NewRecord& record, const std::string& temporary,
                        const RecordFailPoints& points, const Rename& rename) {
  // Without the sync of its bytes, the name could come to stand for an empty file.
  DF_TRY_VOID(write_new_file(vfs, temporary, record.text));
  DF_FAIL_POINT(points.written);
  return rename(temporary, join_name(record.directory, record.name));
}

Status write_record(Vfs& vfs, const NewRecord& record, const RecordFailPoints& points,
                    const Rename& rename) {
  const std::string temporary = temporary_name(record);
  const Status placed = write_and_rename(vfs, record, temporary, points, rename);
  if (!placed) std::ignore = vfs.remove_file(temporary);  // best effort: readers ignore it
  return placed;
}

}  // namespace

std::string join_name(std::string_view directory, std::string_view name) {
  return directory.empty() ? std::string(name) : fmt::format("{}/{}", directory, name);
}

bool has_name(const std::vector<DirEntry>& entries, std::string_view name) {
  return std::ranges::find(entries, name, &DirEntry::name) != entries.end();
}

Status place_record(Vfs& vfs, const NewRecord& record, const RecordFailPoints& points,
                    const std::function<Status()>& may_place) {
  return write_record(vfs, record, points,
                      [&](const std::string& from, const std::string& to) -> Status {
                        DF_TRY_VOID(may_place());
                        return vfs.rename_no_replace(from, to);
                      });
}

Status replace_record(Vfs& vfs, const NewRecord& record, const RecordFailPoints& points,
                      const std::function<Status()>& may_replace) {
  return write_record(vfs, record, points,
                      [&](const std::string& from, const std::string& to) -> Status {
                        DF_TRY_VOID(may_replace());
                        return vfs.rename_replacing(from, to);
                      });
}

Status settle_record(Vfs& vfs, std::string_view directory, const RecordFailPoints& points) {
  DF_FAIL_POINT(points.renamed);
  DF_TRY_VOID(vfs.sync_dir(directory));
  DF_FAIL_POINT(points.synced);
  return {};
}

}  // namespace deepfreeze
