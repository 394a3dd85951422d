// Step 5 of the commit protocol: whether the headers of an attempt's files fit together, wherever
// they come from: read from this directory, or sent by the node that has sealed them. Pure; one
// thread.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "manifest/commit.h"
#include "manifest/replica_audit.h"

namespace deepfreeze {

[[nodiscard]] AttemptName attempt_of(const Identity& identity);

struct PartHeader {
  ShardHeader header;
  std::uint64_t file_bytes = 0;
  std::uint32_t crc = 0;
};

// The bytes of a file's header, whole, and no more. kCorrupt.
[[nodiscard]] Result<PartHeader> decode_part_header(std::span<const std::byte> bytes,
                                                    std::uint64_t file_bytes);

struct CheckedParts {
  std::vector<ManifestFile> files;
  Annotations annotations;                       // of rank 0's first part
  std::optional<std::uint64_t> non_finite = {};  // of all parts; absent if one has not counted
  std::vector<Divergence> diverged = {};
};

// The sum is absent as soon as either number is.
void add_count(std::optional<std::uint64_t>& sum, std::optional<std::uint64_t> more);

class PartsCheck {
 public:
  explicit PartsCheck(const Identity& identity) : identity_(identity) {}

  // In the order of (rank, file). kMismatch: the header is of another attempt or file, and the
  // rank's first file does not name it as its link.
  [[nodiscard]] Status add(const PartName& name, const PartHeader& part);
  // kMismatch: two parts store a key, and not disjoint boxes of it.
  [[nodiscard]] Result<CheckedParts> finish();

 private:
  [[nodiscard]] Result<std::optional<Origin>> origin_of(const PartName& name,
                                                        const PartHeader& part) const;

  const Identity identity_;        // of any part
  std::vector<LinkedFile> links_;  // of the rank whose files are being added
  CheckedParts checked_{.files = {}, .annotations = {}, .non_finite = 0};
  std::map<std::string, std::vector<TensorSpec>, std::less<>> stored_;  // by key
  ReplicaAudit audit_;
};

}  // namespace deepfreeze
