#include "packed/open_part.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/mapped_memory.h"
#include "base/try.h"
#include "format/file_reference.h"
#include "format/packed_file.h"
#include "packed/packed_file.h"
#include "storage/read_only.h"

namespace deepfreeze {
namespace {

// A plain file of which the first page has been read: readers begin there.
class PlainFile final : public ReadOnlyFile {
 public:
  PlainFile(std::unique_ptr<File> file, MappedMemory first, std::size_t first_bytes,
            std::string path)
      : file_(std::move(file)),
        first_(std::move(first)),
        first_bytes_(first_bytes),
        path_(std::move(path)) {}

  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) override {
    if (offset > first_bytes_ || into.size() > first_bytes_ - offset) {
      return file_->read_at(offset, into);
    }
    std::memcpy(into.data(), first_.bytes().data() + offset, into.size());
    return into.size();
  }
  Result<std::uint64_t> size() override { return file_->size(); }
  Result<std::int64_t> modified_micros() override { return file_->modified_micros(); }
  [[nodiscard]] std::optional<std::uint32_t> kept_crc32c() const override {
    return file_->kept_crc32c();
  }

 private:
  [[nodiscard]] std::string path() const override { return path_; }

  const std::unique_ptr<File> file_;
  const MappedMemory first_;
  const std::size_t first_bytes_;
  const std::string path_;
};

// A file whose first page has been read.
struct FirstPage {
  std::unique_ptr<File> file;
  MappedMemory memory;
  std::size_t count = 0;

  [[nodiscard]] std::span<const std::byte> bytes() const { return memory.bytes().first(count); }
};

Result<FirstPage> read_first_page(std::unique_ptr<File> file) {
  FirstPage first{.file = std::move(file), .memory = {}};
  DF_TRY(first.memory, MappedMemory::allocate(kPageBytes));
  DF_TRY(const std::size_t count, first.file->read_at(0, first.memory.bytes()));
  first.count = std::min<std::size_t>(count, kPageBytes);
  return first;
}

Result<std::unique_ptr<File>> open_first(FirstPage first, std::string path) {
  if (!has_packed_mark(first.bytes())) {
    return std::make_unique<PlainFile>(std::move(first.file), std::move(first.memory), first.count,
                                       std::move(path));
  }
  const auto lead = decode_packed_lead(first.bytes());
  if (!lead) return std::unexpected(lead.error().within(path));
  return open_packed_file(std::move(first.file), *lead, std::move(path));
}

Result<std::string> name_in(std::span<const std::byte> page, const std::string& path) {
  const auto name = decode_reference(page);
  if (!name) return std::unexpected(name.error().within(path));
  return std::string(kSharedDirectory) + "/" + *name;
}

// It is no reference itself: one leads to a file in one step.
Result<std::unique_ptr<File>> open_referred(Vfs& vfs, const std::string& name, Access access,
                                            const std::string& path) {
  auto file = vfs.open_read(name, access);
  if (!file && file.error().code() == ErrorCode::kNotFound) {
    return fail(ErrorCode::kCorrupt, path + " refers to " + name + ", which is missing");
  }
  if (!file) return std::unexpected(file.error());
  DF_TRY(FirstPage first, read_first_page(*std::move(file)));
  if (has_reference_mark(first.bytes())) {
    return fail(ErrorCode::kCorrupt, path + " refers to " + name + ", which is a reference itself");
  }
  return open_first(std::move(first), vfs.path_of(name));
}

}  // namespace

Result<std::unique_ptr<File>> open_part(Vfs& vfs, std::string_view name, Access access,
                                        std::optional<std::uint64_t> plain_bytes) {
  DF_TRY(std::unique_ptr<File> file, vfs.open_read(name, access));
  DF_TRY(const std::uint64_t bytes, file->size());
  if (bytes == plain_bytes || bytes < kPageBytes) return file;
  DF_TRY(FirstPage first, read_first_page(std::move(file)));
  std::string path = vfs.path_of(name);
  if (!has_reference_mark(first.bytes())) return open_first(std::move(first), std::move(path));
  DF_TRY(const std::string referred, name_in(first.bytes(), path));
  auto opened = open_referred(vfs, referred, access, path);
  if (opened) return opened;
  DF_TRY_VOID(vfs.open_read(name, access));  // kNotFound: both were deleted meanwhile
  return opened;
}

Result<std::optional<std::string>> referred_file(Vfs& vfs, std::string_view name) {
  DF_TRY(std::unique_ptr<File> file, vfs.open_read(name, Access::kBuffered));
  DF_TRY(const std::uint64_t bytes, file->size());
  if (bytes != kReferenceBytes) return std::nullopt;
  DF_TRY(const FirstPage first, read_first_page(std::move(file)));
  if (!has_reference_mark(first.bytes())) return std::nullopt;
  DF_TRY(std::string referred, name_in(first.bytes(), vfs.path_of(name)));
  return referred;
}

}  // namespace deepfreeze
