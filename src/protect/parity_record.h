// The description of a group's bytes in each of its parity files. A parity file is a data file
// (format/shard_header.h) whose tree is this record and whose tensors "parity.0", "parity.1", ...
// are the member's parity pieces, of chunk_bytes each; its part is the number of the node and that
// of all nodes. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/records.h"
#include "format/shard_header.h"

namespace deepfreeze {

// One sealed file of a member.
struct MemberFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t header_bytes = 0;
  std::uint32_t header_crc = 0;
  bool operator==(const MemberFile&) const = default;
};

// A member's bytes are its files' in this order, each file's header first, then its data, both
// padded with zeros to a multiple of kBlockBytes: so a block of the stream is one of the file.
struct Member {
  std::uint64_t node = 0;  // its number in the job
  std::vector<MemberFile> files;
  bool operator==(const Member&) const = default;
};

struct ParityRecord {
  std::size_t parity = 1;         // that many members may be lost
  std::uint64_t chunk_bytes = 0;  // a multiple of kBlockBytes
  std::size_t own = 0;            // the member that has this parity file
  std::vector<Member> members;
  bool operator==(const ParityRecord&) const = default;
};

[[nodiscard]] std::uint64_t stream_bytes(const Member& member);
// The least that holds each member's bytes in as many chunks as a stripe has data pieces.
[[nodiscard]] std::uint64_t chunk_bytes_for(const std::vector<Member>& members, std::size_t parity);

// `nodes`: of the job. Without block checksums.
[[nodiscard]] Result<ShardHeader> parity_header(const ParityRecord& record,
                                                const Manifest& manifest, std::uint64_t nodes);
// kCorrupt: the header is not that of a parity file of this checkpoint, or the record lists a file
// that the manifest does not list alike.
[[nodiscard]] Result<ParityRecord> decode_parity(const ShardHeader& header,
                                                 const Manifest& manifest);

}  // namespace deepfreeze
