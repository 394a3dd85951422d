// One sealed data file of a checkpoint, its header verified. Immutable; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/records.h"
#include "format/shard_header.h"
#include "pipeline/block_reader.h"
#include "restore/snapshot.h"
#include "storage/vfs.h"

namespace deepfreeze {

struct ShardFile {
  std::string name;  // without its directory
  std::string path;  // relative to the run
  std::uint64_t header_bytes = 0;
  ShardHeader header = {};
  // If the place keeps a checksum of the whole file: that one, and the one that the file must have
  // by its header and its blocks' checksums.
  struct Kept {
    std::uint32_t crc = 0;
    std::uint32_t wanted = 0;
  };
  std::optional<Kept> kept = {};
};

// kHeader: the header. kStored: the form in which the file is stored, too, without its data, and
// the checksum that the place keeps of it: ShardFile::kept.
enum class Look : std::uint8_t { kHeader, kStored };

// Reads and verifies the header of `file` against the manifest: size, header CRC, identity.
// kCorrupt, kIncomplete (the file is missing), kNotFound (the whole checkpoint is gone).
[[nodiscard]] Result<ShardFile> open_shard_file(Vfs& vfs, const Manifest& manifest,
                                                const ManifestFile& file,
                                                Look look = Look::kHeader);

// Explains why a file of this checkpoint is missing: kIncomplete while its manifest still exists,
// kNotFound once it was removed. Other errors pass through.
[[nodiscard]] Error explain_missing(Vfs& vfs, const Manifest& manifest, const Error& error);

[[nodiscard]] std::string attempt_path(const Manifest& manifest, std::string_view file_name);

// Reads every block of the file; empty if all verify. `on_progress` counts this file's bytes.
[[nodiscard]] Result<std::optional<Fault>> verify_blocks(Vfs& vfs, const ShardFile& file,
                                                         const ReadSettings& settings);

// Verifies the blocks of all files; a file that vanished is a fault while its manifest exists.
[[nodiscard]] Result<std::vector<Fault>> verify_files(Vfs& vfs, const Manifest& manifest,
                                                      std::span<const ShardFile> files,
                                                      const ReadSettings& settings);

// Keys of the tensors that have a byte in `block`, in file order.
[[nodiscard]] std::vector<std::string> tensors_in_block(const ShardHeader& header,
                                                        std::uint64_t block);

// "block 12 (bytes 786432..851968) of tensors x, y: <cause> (and 3 more blocks)". Bytes count
// from the start of the data section. `bad` is not empty.
[[nodiscard]] std::string describe_bad_blocks(const ShardHeader& header,
                                              std::span<const BadBlock> bad);

}  // namespace deepfreeze
