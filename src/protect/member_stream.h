// The bytes of one member of a group, in the order of its record: all its files, each block
// checked. Any thread; reading waits for disks or links.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "protect/checked_file.h"
#include "protect/parity_record.h"

namespace deepfreeze {

class MemberStream {
 public:
  // A file that can't be opened does not count as an error until its bytes are wanted.
  MemberStream(Vfs& vfs, const std::string& directory, Member member);

  [[nodiscard]] const Member& member() const { return member_; }
  // `offset` and the size are multiples of kBlockBytes, `into` is aligned to pages. Bytes behind
  // the end of the stream are zero. Any error: these bytes can't be had.
  [[nodiscard]] Status read(std::uint64_t offset, std::span<std::byte> into) const;

 private:
  [[nodiscard]] Status read_file(std::size_t index, std::uint64_t offset,
                                 std::span<std::byte> into) const;

  const Member member_;
  std::vector<Result<CheckedFile>> files_;
};

// The record's entry for a file that is there, for an encoder that has only the manifest.
[[nodiscard]] Result<MemberFile> describe_file(Vfs& vfs, const std::string& directory,
                                               const ManifestFile& file);

}  // namespace deepfreeze
