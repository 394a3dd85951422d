#include "storage/vfs.h"

#include <fmt/format.h>

#include "base/try.h"

namespace deepfreeze {

Result<std::int64_t> File::modified_micros() {
  return fail(ErrorCode::kUnsupported, "this file system keeps no times");
}

Status Vfs::link_file(std::string_view from, std::string_view to) {
  return fail(ErrorCode::kUnsupported, fmt::format("link {} to {}: this place has no hard links",
                                                   path_of(from), path_of(to)));
}

Status Vfs::link_open_file(const File& /*file*/, std::string_view to) {
  return fail(ErrorCode::kUnsupported,
              fmt::format("link {}: this place has no hard links", path_of(to)));
}

Result<Stamp> Vfs::stamp(std::string_view name) {
  return fail(ErrorCode::kUnsupported, path_of(name) + " has no stamp");
}

Result<std::string> read_file(Vfs& vfs, std::string_view name, std::uint64_t bytes_max) {
  DF_TRY(auto file, vfs.open_read(name, Access::kBuffered));
  DF_TRY(const std::uint64_t bytes, file->size());
  if (bytes > bytes_max) {
    return fail(ErrorCode::kCorrupt, fmt::format("read {}: {} bytes, at most {} make sense",
                                                 vfs.path_of(name), bytes, bytes_max));
  }
  std::string text(static_cast<std::size_t>(bytes), '\0');
  DF_TRY(const std::size_t count,
         file->read_at(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  text.resize(count);  // the file may have become shorter since
  return text;
}

Status write_new_file(Vfs& vfs, std::string_view name, std::string_view text) {
  DF_TRY(auto file, vfs.create(name, Access::kBuffered));
  DF_TRY_VOID(file->write_at(0, std::as_bytes(std::span(text.data(), text.size()))));
  DF_TRY_VOID(file->sync());
  return file->close();
}

}  // namespace deepfreeze
