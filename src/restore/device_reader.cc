#include "restore/device_reader.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/checked_math.h"
#include "base/mapped_memory.h"
#include "base/try.h"
#include "format/layout.h"
#include "object/open_object.h"

namespace deepfreeze {

class DeviceFile final : public File {
 public:
  DeviceFile(DeviceReader& reader, std::unique_ptr<File> file, std::string path)
      : reader_(reader), file_(std::move(file)), path_(std::move(path)) {}
  DeviceFile(const DeviceFile&) = delete;
  DeviceFile& operator=(const DeviceFile&) = delete;
  ~DeviceFile() override { drop_own_pages(); }

  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) override;

  Status write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    return file_->write_at(offset, bytes);
  }
  Status preallocate(std::uint64_t bytes) override { return file_->preallocate(bytes); }
  Status truncate(std::uint64_t bytes) override { return file_->truncate(bytes); }
  Result<std::uint64_t> size() override { return file_->size(); }
  Result<std::int64_t> modified_micros() override { return file_->modified_micros(); }
  [[nodiscard]] std::optional<FileId> id() override { return file_->id(); }
  Status sync() override { return file_->sync(); }
  Status close() override {
    drop_own_pages();
    return file_->close();
  }
  [[nodiscard]] Access access() const override { return file_->access(); }

 private:
  void drop_own_pages();
  [[nodiscard]] Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> into);
  [[nodiscard]] Result<std::size_t> read_pages(std::uint64_t offset, std::span<std::byte> into);

  DeviceReader& reader_;
  const std::unique_ptr<File> file_;
  const std::string path_;
};

namespace {

bool is_aligned(std::uint64_t offset, std::span<const std::byte> into) {
  return (offset | reinterpret_cast<std::uintptr_t>(into.data()) | into.size()) % kPageBytes == 0;
}

// Pages that another process has cached need not equal the bytes on the device.
Status drop_pages(Vfs& vfs, std::string_view name) {
  DF_TRY(const auto file, vfs.open_read(name, Access::kBuffered));
  DF_TRY(const std::uint64_t bytes, file->size());
  return file->flush_range(0, bytes);
}

}  // namespace

// Reading through the page cache displaced other programs' pages; drops them again. Best effort.
void DeviceFile::drop_own_pages() {
  if (file_->access() != Access::kBuffered) return;
  const auto bytes = file_->size();
  if (bytes) std::ignore = file_->flush_range(0, *bytes);
}

Result<std::size_t> DeviceFile::read_at(std::uint64_t offset, std::span<std::byte> into) {
  const bool as_it_is = file_->access() == Access::kBuffered || is_aligned(offset, into);
  return as_it_is ? read(offset, into) : read_pages(offset, into);
}

Result<std::size_t> DeviceFile::read(std::uint64_t offset, std::span<std::byte> into) {
  reader_.limit_.take(into.size());
  auto count = file_->read_at(offset, into);
  // It may have turned buffered only now.
  if (file_->access() == Access::kBuffered) reader_.note_cached(path_);
  return count;
}

// Direct reads take whole pages, into whole pages.
Result<std::size_t> DeviceFile::read_pages(std::uint64_t offset, std::span<std::byte> into) {
  const std::uint64_t skipped = offset % kPageBytes;
  DF_TRY(const MappedMemory pages,
         MappedMemory::allocate(round_up(skipped + into.size(), kPageBytes)));
  DF_TRY(const std::size_t count, read(offset - skipped, pages.bytes()));
  if (count <= skipped) return 0;
  const std::size_t wanted = std::min<std::size_t>(count - skipped, into.size());
  std::memcpy(into.data(), pages.bytes().data() + skipped, wanted);
  return wanted;
}

Result<std::unique_ptr<File>> DeviceReader::open_read(std::string_view name, Access /*access*/) {
  DF_TRY_VOID(drop_pages(*below_, name));
  DF_TRY(auto file, below_->open_read(name, Access::kDirect));
  return std::make_unique<DeviceFile>(*this, std::move(file), below_->path_of(name));
}

std::string DeviceReader::read_through_cache() const {
  const std::lock_guard lock(mutex_);
  return read_through_cache_;
}

void DeviceReader::note_cached(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (read_through_cache_.empty()) read_through_cache_ = path;
}

Result<std::unique_ptr<DeviceReader>> open_device(const std::string& path, RateLimit& limit) {
  DF_TRY(auto below, open_vfs(path));
  return std::make_unique<DeviceReader>(std::move(below), limit);
}

Result<OpenedDevice> open_run_on_device(const std::string& path, RateLimit& limit) {
  DF_TRY(auto reader, open_device(path, limit));
  DeviceReader* const borrowed = reader.get();
  DF_TRY(RunListing listing, read_run(*reader));
  OpenedRun run{.path = path, .vfs = std::move(reader), .listing = std::move(listing)};
  return OpenedDevice{.run = std::move(run), .reader = borrowed};
}

}  // namespace deepfreeze
