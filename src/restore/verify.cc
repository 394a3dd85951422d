// Reads every byte of a checkpoint and lists what does not verify.
#include <algorithm>
#include <set>
#include <utility>

#include "base/mapped_memory.h"
#include "base/try.h"
#include "restore/shard_file.h"
#include "restore/snapshot.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kVerifyChunkBytes = 64 * 1024 * 1024;  // whole blocks

// What a reader calls a fault of the stored bytes; other errors say nothing about them.
bool is_fault(const Error& error) {
  return error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kIncomplete ||
         error.code() == ErrorCode::kMismatch;
}

// The chunk's bytes go to `scratch` and are dropped: only the checksums are wanted.
ReadPlan chunk_plan(const ShardFile& file, Extent chunk, std::span<std::byte> scratch,
                    const ReadSettings& settings) {
  ReadPlan plan{.name = file.path,
                .header_bytes = file.header_bytes,
                .data_bytes = file.header.data_bytes,
                .block_crcs = file.header.block_crcs,
                .pieces = {{chunk, scratch.first(chunk.size())}},
                .verify = true,
                .thread_count = settings.thread_count,
                .on_progress = {}};
  if (settings.on_progress) {
    plan.on_progress = [&settings, begin = chunk.begin, size = chunk.size()](std::uint64_t bytes) {
      settings.on_progress(begin + std::min(bytes, size));
    };
  }
  return plan;
}

Fault fault_of(const ShardFile& file, std::span<const BadBlock> bad) {
  Fault fault{.file = file.name, .cause = describe_bad_blocks(file.header, bad)};
  std::set<std::string> seen;
  for (const BadBlock& block : bad) {
    fault.blocks.push_back(block.index);
    for (std::string& key : tensors_in_block(file.header, block.index)) {
      if (seen.insert(key).second) fault.tensors.push_back(std::move(key));
    }
  }
  return fault;
}

// Where the checkpoint's progress stands while one of its files reports its own.
ReadSettings counting_from(const ReadSettings& settings, std::uint64_t base) {
  ReadSettings shifted = settings;
  if (settings.on_progress) {
    shifted.on_progress = [&settings, base](std::uint64_t bytes) {
      settings.on_progress(base + bytes);
    };
  }
  return shifted;
}

}  // namespace

Result<std::optional<Fault>> verify_blocks(Vfs& vfs, const ShardFile& file,
                                           const ReadSettings& settings) {
  const std::uint64_t data_bytes = file.header.data_bytes;
  if (data_bytes == 0) return std::nullopt;
  DF_TRY(const MappedMemory scratch,
         MappedMemory::allocate(std::min(data_bytes, kVerifyChunkBytes)));
  std::vector<BadBlock> bad;
  for (std::uint64_t begin = 0; begin < data_bytes; begin += kVerifyChunkBytes) {
    const Extent chunk{begin, std::min(begin + kVerifyChunkBytes, data_bytes)};
    DF_TRY(ReadOutcome outcome,
           read_blocks(vfs, chunk_plan(file, chunk, scratch.bytes(), settings)));
    std::ranges::move(outcome.bad_blocks, std::back_inserter(bad));
    if (bad.size() >= kBadBlocksMax) break;
  }
  if (bad.empty()) return std::nullopt;
  return fault_of(file, bad);
}

Result<std::vector<Fault>> verify_files(Vfs& vfs, const Manifest& manifest,
                                        std::span<const ShardFile> files,
                                        const ReadSettings& settings) {
  std::vector<Fault> faults;
  std::uint64_t done = 0;
  for (const ShardFile& file : files) {
    auto fault = verify_blocks(vfs, file, counting_from(settings, done));
    done += file.header.data_bytes;
    if (fault && *fault) faults.push_back(std::move(**fault));
    if (fault) continue;
    const Error error = explain_missing(vfs, manifest, fault.error());
    if (!is_fault(error)) return std::unexpected(error.within("file " + file.name));
    faults.push_back({.file = file.name, .cause = error.message()});
  }
  return faults;
}

Result<std::vector<Fault>> verify_attempt(Vfs& vfs, const Manifest& manifest,
                                          const ReadSettings& settings) {
  std::vector<Fault> faults;
  std::vector<ShardFile> files;
  for (const ManifestFile& file : manifest.files) {
    auto shard = open_shard_file(vfs, manifest, file);
    if (shard) {
      files.push_back(std::move(*shard));
    } else if (is_fault(shard.error())) {
      faults.push_back({.file = file.name, .cause = shard.error().message()});
    } else {
      return std::unexpected(shard.error());
    }
  }
  DF_TRY(std::vector<Fault> found, verify_files(vfs, manifest, files, settings));
  std::ranges::move(found, std::back_inserter(faults));
  if (!faults.empty()) return faults;
  // What only shows in all files together: a rank that is missing, a key stored twice.
  const auto whole = Snapshot::open(vfs, manifest);
  if (whole) return faults;
  if (!is_fault(whole.error())) return std::unexpected(whole.error());
  faults.push_back({.file = std::string(kManifestFile), .cause = whole.error().message()});
  return faults;
}

}  // namespace deepfreeze
