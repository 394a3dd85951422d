// The steps of one file; the fail points stand behind them.
//
//  1  Make its directory unless it is there.
//  2  Write the temporary file, cut it to its exact size, sync it.
//  3  Rename it, without replacing unless it is a replacement.
//
// settle() then syncs the directory.
#include "storage/vfs_tier_store.h"

#include <fmt/format.h>

#include <cstring>

#include "base/checked_math.h"
#include "base/fail_point.h"
#include "base/hex.h"
#include "base/mapped_memory.h"
#include "base/random_id.h"
#include "base/try.h"
#include "storage/vfs_name.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kPage = 4096;
// Below it a direct write costs more than the page cache does.
constexpr std::uint64_t kDirectBytesMin = 1 << 20;

class VfsUpload final : public Upload {
 public:
  struct Names {
    std::string final;
    std::string temporary;
  };
  VfsUpload(Vfs& vfs, Names names, std::uint64_t bytes, IfTaken if_taken,
            std::unique_ptr<File> file)
      : vfs_(vfs),
        names_(std::move(names)),
        bytes_(bytes),
        if_taken_(if_taken),
        file_(std::move(file)) {}
  VfsUpload(const VfsUpload&) = delete;
  VfsUpload& operator=(const VfsUpload&) = delete;
  // Best effort: readers ignore the file.
  ~VfsUpload() override {
    if (!is_placed_) std::ignore = vfs_.remove_file(names_.temporary);
  }

  Status append(std::span<const std::byte> bytes, std::optional<std::uint32_t> crc32c) override;
  void end_here() override { bytes_ = written_; }
  Status finish() override;

 private:
  [[nodiscard]] Status write_odd_end(std::span<const std::byte> bytes);

  Vfs& vfs_;
  const Names names_;
  std::uint64_t bytes_;
  const IfTaken if_taken_;
  std::unique_ptr<File> file_;
  std::uint64_t written_ = 0;
  bool is_placed_ = false;
};

Status VfsUpload::append(std::span<const std::byte> bytes,
                         std::optional<std::uint32_t> /*crc32c*/) {
  if (written_ % kPage != 0 || bytes.size() > bytes_ - written_) {
    return fail(ErrorCode::kInternal, fmt::format("write {}: {} bytes after {} of {}", names_.final,
                                                  bytes.size(), written_, bytes_));
  }
  DF_FAIL_POINT("tier.append");
  const bool is_direct = file_->access() == Access::kDirect;
  const std::size_t odd_bytes = is_direct ? bytes.size() % kPage : 0;
  const auto even = bytes.first(bytes.size() - odd_bytes);
  DF_TRY_VOID(file_->write_at(written_, even));
  if (even.size() >= kDirectBytesMin) DF_TRY_VOID(file_->flush_range(written_, even.size()));
  written_ += even.size();
  return odd_bytes == 0 ? Status{} : write_odd_end(bytes.last(odd_bytes));
}

// Direct access moves whole pages; finish() cuts the rest off again.
Status VfsUpload::write_odd_end(std::span<const std::byte> bytes) {
  DF_TRY(const MappedMemory page, MappedMemory::allocate(kPage));
  std::memcpy(page.bytes().data(), bytes.data(), bytes.size());
  DF_TRY_VOID(file_->write_at(written_, page.bytes()));
  written_ += bytes.size();
  return {};
}

Status VfsUpload::finish() {
  if (written_ != bytes_) {
    return fail(ErrorCode::kInternal,
                fmt::format("write {}: {} bytes came, of {}", names_.final, written_, bytes_));
  }
  DF_TRY_VOID(file_->truncate(bytes_));
  DF_TRY_VOID(file_->sync());
  DF_TRY_VOID(file_->close());
  DF_FAIL_POINT("tier.written");
  DF_TRY_VOID(if_taken_ == IfTaken::kRefuse
                  ? vfs_.rename_no_replace(names_.temporary, names_.final)
                  : vfs_.rename_replacing(names_.temporary, names_.final));
  is_placed_ = true;
  DF_FAIL_POINT("tier.renamed");
  return {};
}

Status make_directory(Vfs& vfs, std::string_view directory) {
  if (directory.empty()) return {};
  const Status made = vfs.make_dir(directory);
  if (!made && made.error().code() == ErrorCode::kExists) return {};
  return made;
}

}  // namespace

Result<std::unique_ptr<Upload>> VfsTierStore::begin(std::string_view name, std::uint64_t bytes,
                                                    IfTaken if_taken) {
  const SplitName split = split_vfs_name(name);
  DF_TRY_VOID(make_directory(vfs_, split.parent));
  const std::string_view stem = split.leaf.substr(0, split.leaf.find_first_of(".-"));
  const std::string_view slash = split.parent.empty() ? "" : "/";
  VfsUpload::Names names = {
      .final = std::string(name),
      .temporary = fmt::format("{}{}{}.{}.tmp", split.parent, slash, stem, hex64(random_id()))};
  const Access access = bytes < kDirectBytesMin ? Access::kBuffered : Access::kDirect;
  DF_TRY(std::unique_ptr<File> file, vfs_.create(names.temporary, access));
  File& opened = *file;
  auto upload =
      std::make_unique<VfsUpload>(vfs_, std::move(names), bytes, if_taken, std::move(file));
  DF_TRY_VOID(opened.preallocate(round_up(bytes, kPage)));  // a failure removes the file again
  DF_FAIL_POINT("tier.created");
  return upload;
}

// Somebody may have copied `from` here, and its data may be in the page cache alone.
Status VfsTierStore::link(std::string_view from, std::string_view to) {
  DF_TRY(const std::unique_ptr<File> source, vfs_.open_read(from, Access::kBuffered));
  DF_TRY_VOID(source->sync());
  DF_TRY_VOID(make_directory(vfs_, split_vfs_name(to).parent));
  DF_TRY_VOID(vfs_.link_file(from, to));
  DF_FAIL_POINT("tier.linked");
  return {};
}

Status VfsTierStore::settle(std::string_view directory) {
  DF_TRY_VOID(vfs_.sync_dir(directory));
  DF_FAIL_POINT("tier.settled");
  return {};
}

}  // namespace deepfreeze
