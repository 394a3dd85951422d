// The header of one data file: a strictly valid safetensors header that also carries the
// checksums, the state tree and the identity of its attempt. docs/format.md describes it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "deepfreeze/options.h"
#include "deepfreeze/tensor.h"
#include "format/layout.h"
#include "format/names.h"
#include "format/point.h"
#include "tensor/value_range.h"

namespace deepfreeze {

// The attempt that a file belongs to. Equal in all files of one attempt except for `part`.
struct Identity {
  std::string run_id;  // 16 hex digits
  std::uint64_t attempt_id = 0;
  std::uint64_t generation = 0;
  std::uint64_t step = 0;
  std::uint64_t save_index = 0;  // n: counts the saves of a run, from 1
  PartName part;
  bool operator==(const Identity&) const = default;
};

// The manifest's data in rank 0's first file, with which any process could write the manifest.
struct Annotations {
  std::int64_t wall_micros = 0;
  std::map<std::string, double> metrics;  // finite or not: stored exactly
  std::map<std::string, std::string> tags;
  std::map<std::string, std::string> environment;  // library versions, thread count
  std::optional<ParentPoint> parent;
  // Metrics by their bits: a NaN is equal to itself.
  bool operator==(const Annotations& other) const;
};

struct ShardEntry {
  TensorSpec spec;
  Extent extent;  // within the data section
  bool operator==(const ShardEntry&) const = default;
};

// This rank's checksum of some bytes of which other ranks should have equal copies.
struct AuditRecord {
  std::string key;
  Shape offset;                  // of the rank's box, in the whole tensor
  std::uint64_t first_byte = 0;  // within that box
  std::uint64_t bytes = 0;
  std::uint32_t crc = 0;
  bool operator==(const AuditRecord&) const = default;
};

// In a rank's first file: one of its further files that may be another attempt's, by a hard link.
struct LinkedFile {
  std::uint32_t file = 0;        // its number among the rank's files
  std::uint32_t header_crc = 0;  // 0 without an origin
  std::optional<Origin> origin;  // empty: it was written for this attempt
  bool operator==(const LinkedFile&) const = default;
};

struct ShardHeader {
  Identity identity;
  Annotations annotations;
  std::string tree;  // the state tree's JSON text, or this file's piece of it; may be empty
  std::vector<ShardEntry> entries;  // in file order
  std::uint64_t data_bytes = 0;
  std::vector<std::uint32_t> block_crcs;  // block_count(data_bytes) of them
  // The range of each floating-point entry, in file order; absent if ranges were not requested.
  std::optional<std::vector<ValueRange>> ranges;
  std::vector<AuditRecord> audit;  // in a rank's first file
  std::vector<LinkedFile> links;   // the same
  bool operator==(const ShardHeader&) const = default;
};

[[nodiscard]] std::uint64_t non_finite_values(std::span<const ValueRange> ranges);
// The number of NaN and infinite values in all tensors; absent if there are no ranges.
[[nodiscard]] std::optional<std::uint64_t> non_finite_values(const ShardHeader& header);

struct EncodedHeader {
  std::vector<std::byte> bytes;  // 8 + N, a multiple of kPageBytes
  std::uint32_t crc = 0;
};

// The size of the encoding depends on neither checksums nor their values, so it can be asked
// before the data is captured. kInvalidArgument above kHeaderBytesMax.
[[nodiscard]] Result<EncodedHeader> encode_header(const ShardHeader& header);

// The checksum of a whole header, as decode_header() returns it; nothing else is checked. kCorrupt
// if it is not the one that the header carries.
[[nodiscard]] Result<std::uint32_t> checked_header_crc(std::span<const std::byte> header);

// The number of bytes of the whole header (8 + N), from a file's first 8 bytes.
// kCorrupt unless it is a multiple of kPageBytes within kHeaderBytesMax and `file_bytes`.
[[nodiscard]] Result<std::uint64_t> header_size(std::span<const std::byte> first8,
                                                std::uint64_t file_bytes);

// `bytes` is the whole header. Its CRC is checked before anything is parsed; entries must be
// sorted, gap-free and fill the data section exactly. kCorrupt names the cause.
// kUnsupported for a newer format version. `crc` receives the header's own checksum.
[[nodiscard]] Result<ShardHeader> decode_header(std::span<const std::byte> bytes,
                                                std::uint64_t file_bytes, std::uint32_t& crc);

}  // namespace deepfreeze
