#include "protect/checked_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked_math.h"
#include "base/try.h"
#include "codec/crc32c.h"
#include "format/layout.h"

namespace deepfreeze {

std::unexpected<Error> CheckedFile::corrupt(std::string_view why) const {
  return fail(ErrorCode::kCorrupt, fmt::format("read {}: {}", path_, why));
}

Result<CheckedFile> CheckedFile::open(Vfs& vfs, const std::string& path, const Expected& expected) {
  CheckedFile file;
  file.path_ = vfs.path_of(path);
  DF_TRY(file.file_, vfs.open_read(path, Access::kDirect));
  DF_TRY_VOID(file.read_header(expected));
  return file;
}

// Its first page tells its size.
Status CheckedFile::read_header(const Expected& expected) {
  DF_TRY(const std::uint64_t bytes, file_->size());
  if (bytes != expected.bytes.value_or(bytes)) {
    return corrupt(fmt::format("it has {} bytes, not {}", bytes, *expected.bytes));
  }
  DF_TRY(const MappedMemory first, MappedMemory::allocate(kPageBytes));
  DF_TRY(std::size_t count, file_->read_at(0, first.bytes()));
  const auto size = header_size(first.bytes().first(std::min<std::size_t>(count, 8)), bytes);
  if (!size) return corrupt(size.error().message());
  DF_TRY(header_pages_, MappedMemory::allocate(*size));  // kHeaderBytesMax at most
  DF_TRY(count, file_->read_at(0, header_pages_.bytes()));
  if (count != *size) return corrupt("it ends inside its header");
  auto header = decode_header(header_pages_.bytes(), bytes, header_crc_);
  if (!header) return std::unexpected(header.error().within("read " + path_));
  header_ = *std::move(header);
  if (header_crc_ == expected.header_crc.value_or(header_crc_)) return {};
  return corrupt("its header is not the manifest's");
}

// Whole pages, as direct access requires.
Status CheckedFile::read_data(std::uint64_t offset, std::span<std::byte> into) const {
  if (offset % kBlockBytes != 0 || into.size() % kBlockBytes != 0) {
    return fail(ErrorCode::kInternal, fmt::format("read {}: not by whole blocks", path_));
  }
  const std::uint64_t left = header_.data_bytes - std::min(offset, header_.data_bytes);
  const std::uint64_t wanted = std::min<std::uint64_t>(left, into.size());
  if (wanted > 0) {
    const auto pages = into.first(round_up(wanted, kPageBytes));
    DF_TRY(const std::size_t count, file_->read_at(header_pages_.bytes().size() + offset, pages));
    if (count < wanted) return corrupt(fmt::format("its data ends after {} bytes", offset + count));
    DF_TRY_VOID(check_blocks(offset, into.first(wanted)));
  }
  std::ranges::fill(into.subspan(wanted), std::byte{});
  return {};
}

Status CheckedFile::check_blocks(std::uint64_t offset, std::span<const std::byte> bytes) const {
  for (std::uint64_t at = 0; at < bytes.size(); at += kBlockBytes) {
    const std::uint64_t block = (offset + at) / kBlockBytes;
    const auto one = bytes.subspan(at, std::min<std::uint64_t>(kBlockBytes, bytes.size() - at));
    if (crc32c(one) == header_.block_crcs[block]) continue;
    return corrupt(fmt::format("block {} does not verify", block));
  }
  return {};
}

}  // namespace deepfreeze
