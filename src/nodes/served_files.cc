#include "nodes/served_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/checked_math.h"
#include "base/try.h"
#include "format/layout.h"
#include "nodes/sealed_name.h"

namespace deepfreeze {
namespace {

std::unexpected<Error> refused(std::string why) {
  return fail(ErrorCode::kInvalidArgument, std::move(why));
}

// Names, sizes and offsets are a peer's, so they can be anything.
Status check_request(const LinkRead& read) {
  if (!is_sealed_file(read.file)) return refused(fmt::format("{} is no sealed file", read.file));
  if (read.size <= kRangeBytesMax) return {};
  return refused(fmt::format("{} bytes are more than {}", read.size, kRangeBytesMax));
}

}  // namespace

LinkMessage ServedFiles::answer(const LinkRead& read, Monotonic::time_point now) {
  auto bytes = read_range(read, now);
  if (bytes) return *std::move(bytes);
  return LinkError{.number = read.number, .error = bytes.error()};
}

Result<LinkBytes> ServedFiles::read_range(const LinkRead& read, Monotonic::time_point now) {
  DF_TRY_VOID(check_request(read));
  DF_TRY(File* const file, open(read, now));
  LinkBytes answer{.number = read.number};
  DF_TRY(answer.file_bytes, file->size());
  if (read.offset > answer.file_bytes || read.size > answer.file_bytes - read.offset) {
    return refused(fmt::format("{} bytes at {} reach beyond the end: {} has {}", read.size,
                               read.offset, read.file, answer.file_bytes));
  }
  DF_TRY(const auto bytes, read_pages(*file, read));
  if (bytes.size() < read.size) {
    return fail(ErrorCode::kIo, fmt::format("{} was cut while it was read", read.file));
  }
  answer.bytes.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return answer;
}

// Past the page cache, which is the training's: these files are read once, and were written past
// it.
Result<std::span<const std::byte>> ServedFiles::read_pages(File& file, const LinkRead& read) {
  if (pages_.bytes().empty()) {
    DF_TRY(pages_, MappedMemory::allocate(kRangeBytesMax + 2 * kPageBytes));
  }
  const std::uint64_t before = read.offset % kPageBytes;
  const auto into = pages_.bytes().first(round_up(before + read.size, kPageBytes));
  DF_TRY(const std::size_t count, file.read_at(read.offset - before, into));
  return into.first(std::min<std::size_t>(count, before + read.size))
      .subspan(std::min<std::size_t>(count, before));
}

Result<File*> ServedFiles::open(const LinkRead& read, Monotonic::time_point now) {
  const std::string path = path_in_run(read.attempt, read.file);
  const auto known = files_.find(path);
  if (known != files_.end() && read.size > 0) {
    known->second.used_at = now;
    return known->second.file.get();
  }
  DF_TRY(auto file, open_in_run(path));
  if (known == files_.end() && files_.size() >= kServedFilesMax) {
    files_.erase(
        std::ranges::min_element(files_, {}, [](const auto& one) { return one.second.used_at; }));
  }
  Open& open = files_[path];
  open = {.file = std::move(file), .used_at = now};
  return open.file.get();
}

// The directory may have been made anew since it was opened.
Result<std::unique_ptr<File>> ServedFiles::open_in_run(const std::string& path) {
  auto file = run_->open_read(path, Access::kDirect);
  if (file || file.error().code() != ErrorCode::kNotFound) return file;
  DF_TRY(const bool is_in_place, run_->is_in_place());
  if (is_in_place) return file;
  DF_TRY_VOID(run_->reopen());
  return run_->open_read(path, Access::kDirect);
}

void ServedFiles::close_idle(Monotonic::time_point now) {
  std::erase_if(files_, [now, this](const auto& one) { return now - one.second.used_at >= idle_; });
}

}  // namespace deepfreeze
