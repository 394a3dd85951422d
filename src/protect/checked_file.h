// A sealed data file, or a parity file, that is read by blocks, each of which is checked against
// the file's header first. Any thread; reading waits for the disk or the link.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/mapped_memory.h"
#include "format/shard_header.h"
#include "storage/vfs.h"

namespace deepfreeze {

class CheckedFile {
 public:
  struct Expected {
    std::optional<std::uint64_t> bytes = {};
    std::optional<std::uint32_t> header_crc = {};
  };
  // kCorrupt if the file's header does not verify, or is not the expected one.
  [[nodiscard]] static Result<CheckedFile> open(Vfs& vfs, const std::string& path,
                                                const Expected& expected);

  [[nodiscard]] const ShardHeader& header() const { return header_; }
  [[nodiscard]] std::uint32_t header_crc() const { return header_crc_; }
  [[nodiscard]] std::span<const std::byte> header_bytes() const { return header_pages_.bytes(); }

  // Data from `offset` on; bytes behind its end become zero. `offset` and the size are multiples of
  // kBlockBytes, `into` is aligned to pages. kCorrupt names the block that does not verify.
  [[nodiscard]] Status read_data(std::uint64_t offset, std::span<std::byte> into) const;

 private:
  CheckedFile() = default;
  [[nodiscard]] Status read_header(const Expected& expected);
  [[nodiscard]] Status check_blocks(std::uint64_t offset, std::span<const std::byte> bytes) const;
  [[nodiscard]] std::unexpected<Error> corrupt(std::string_view why) const;

  std::string path_;  // for messages
  std::unique_ptr<File> file_;
  MappedMemory header_pages_;
  std::uint32_t header_crc_ = 0;
  ShardHeader header_;
};

}  // namespace deepfreeze
