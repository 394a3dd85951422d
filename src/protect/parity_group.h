// A group of nodes whose files protect each other, opened for calculating the bytes of any of them.
// Immutable; any thread. Reading waits for disks or links.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "protect/checked_file.h"
#include "protect/erasure_code.h"
#include "protect/member_stream.h"
#include "protect/parity_layout.h"
#include "protect/parity_record.h"

namespace deepfreeze {

class ParityGroup {
 public:
  // The key is the member; one that is missing is lost.
  using ParityFiles = std::map<std::size_t, CheckedFile>;
  // `record`: that of any of the parity files. `unread`: why a parity file could not be read that
  // may be good, and may be one of this group.
  [[nodiscard]] static Result<std::unique_ptr<ParityGroup>> open(
      Vfs& pieces, const std::string& directory, const ParityRecord& record, ParityFiles parity,
      const std::optional<Error>& unread);
  ParityGroup(Vfs& pieces, const std::string& directory, const ParityRecord& record,
              ErasureCode code, ParityFiles parity, const std::optional<Error>& unread);

  [[nodiscard]] const Member& member(std::size_t index) const { return streams_[index]->member(); }
  [[nodiscard]] std::size_t size() const { return streams_.size(); }

  // The bytes of a member's stream, from those of all others. `offset` and the size are multiples
  // of kBlockBytes. kIncomplete: too few pieces are left; the code of a piece that may be good
  // (may_have_good_copy()) counts more.
  [[nodiscard]] Status calculate(std::size_t member, std::uint64_t offset,
                                 std::span<std::byte> into) const;

 private:
  [[nodiscard]] Status calculate_piece(std::size_t member, std::size_t chunk, std::uint64_t offset,
                                       std::span<std::byte> into) const;
  [[nodiscard]] Status read_piece(std::size_t stripe, std::size_t piece, std::uint64_t offset,
                                  std::span<std::byte> into) const;

  const ParityLayout layout_;
  const std::uint64_t chunk_bytes_;
  const ErasureCode code_;
  std::vector<std::unique_ptr<MemberStream>> streams_;
  const ParityFiles parity_;
  const std::optional<Error> unread_;
};

}  // namespace deepfreeze
