#include "packed/open_part.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/mapped_memory.h"
#include "base/try.h"
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

}  // namespace

Result<std::unique_ptr<File>> open_part(Vfs& vfs, std::string_view name, Access access,
                                        std::optional<std::uint64_t> plain_bytes) {
  DF_TRY(std::unique_ptr<File> file, vfs.open_read(name, access));
  DF_TRY(const std::uint64_t bytes, file->size());
  if (bytes == plain_bytes || bytes < kPackedLeadBytes) return file;
  DF_TRY(MappedMemory first, MappedMemory::allocate(kPackedLeadBytes));
  DF_TRY(const std::size_t count, file->read_at(0, first.bytes()));
  const auto page = first.bytes().first(std::min<std::size_t>(count, kPackedLeadBytes));
  std::string path = vfs.path_of(name);
  if (!has_packed_mark(page)) {
    return std::make_unique<PlainFile>(std::move(file), std::move(first), page.size(),
                                       std::move(path));
  }
  const auto lead = decode_packed_lead(page);
  if (!lead) return std::unexpected(lead.error().within(path));
  return open_packed_file(std::move(file), *lead, std::move(path));
}

}  // namespace deepfreeze
