// Reads every byte of a checkpoint and lists the parts that do not verify.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "base/hex.h"
#include "base/mapped_memory.h"
#include "base/try.h"
#include "format/state_tree.h"
#include "restore/shard_file.h"
#include "restore/snapshot.h"
#include "storage/os_error.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kVerifyChunkBytes = 64 * 1024 * 1024;  // whole blocks

// Errors that are faults of the stored bytes, including a file that can't be opened; other errors
// say nothing about the bytes.
bool is_fault(const Error& error) {
  return error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kIncomplete ||
         error.code() == ErrorCode::kMismatch || error.code() == ErrorCode::kIo;
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

// Shifts a file's own progress by the bytes that were read before it.
ReadSettings counting_from(const ReadSettings& settings, std::uint64_t base) {
  ReadSettings shifted = settings;
  if (settings.on_progress) {
    shifted.on_progress = [&settings, base](std::uint64_t bytes) {
      settings.on_progress(base + bytes);
    };
  }
  return shifted;
}

struct OpenedFiles {
  std::vector<ShardFile> files;
  std::vector<Fault> faults;  // of those that did not open
};

Result<OpenedFiles> open_files(Vfs& vfs, const Manifest& manifest, Look look) {
  OpenedFiles opened;
  for (const ManifestFile& file : manifest.files) {
    auto shard = open_shard_file(vfs, manifest, file, look);
    if (shard) {
      opened.files.push_back(std::move(*shard));
    } else if (is_fault(shard.error())) {
      opened.faults.push_back(fault_of_error(file.name, shard.error()));
    } else {
      return std::unexpected(shard.error());
    }
  }
  return opened;
}

std::optional<Fault> fault_of_kept(const ShardFile& file) {
  if (!file.kept || file.kept->crc == file.kept->wanted) return std::nullopt;
  return Fault{.file = file.name,
               .cause = fmt::format("its checksum, as the store keeps it, is {}; by the file's own "
                                    "header it should be {}",
                                    hex32(file.kept->crc), hex32(file.kept->wanted))};
}

// The file in which a rank's state tree begins.
std::string tree_file(const Manifest& manifest, std::uint32_t rank) {
  for (const ManifestFile& file : manifest.files) {
    const auto part = parse_sealed_file_name(file.name);
    if (part && part->rank == rank && part->file == 0) return file.name;
  }
  return std::string(kManifestFile);
}

std::vector<Fault> faults_of_trees(const Snapshot& snapshot) {
  std::vector<Fault> faults;
  const Manifest& manifest = snapshot.manifest();
  for (std::uint32_t rank = 0; rank < manifest.world_size; ++rank) {
    if (snapshot.tree(rank).empty()) continue;
    const Status tree = check_tree(snapshot.tree(rank));
    if (tree) continue;
    faults.push_back(
        {.file = tree_file(manifest, rank), .cause = "state tree: " + tree.error().message()});
  }
  return faults;
}

// Faults that show only in all files together: a rank that is missing, a key stored twice, the
// trees.
Result<std::vector<Fault>> verify_whole(Vfs& vfs, const Manifest& manifest,
                                        std::vector<ShardFile> files,
                                        const ReadSettings& settings) {
  const auto whole = Snapshot::of_files(vfs, manifest, std::move(files));
  if (!whole && !is_fault(whole.error())) return std::unexpected(whole.error());
  if (!whole) return std::vector{fault_of_error(std::string(kManifestFile), whole.error())};
  return settings.check_tree ? faults_of_trees(**whole) : std::vector<Fault>();
}

}  // namespace

Fault fault_of_error(std::string file, const Error& error) {
  return {.file = std::move(file), .cause = error.message(), .unread = is_refusal(error)};
}

namespace {

// Reads all of the file's data.
Result<std::optional<Fault>> read_and_verify(File& opened, const ShardFile& file,
                                             const ReadSettings& settings) {
  const std::uint64_t data_bytes = file.header.data_bytes;
  DF_TRY(const MappedMemory scratch,
         MappedMemory::allocate(std::min(data_bytes, kVerifyChunkBytes)));
  std::vector<BadBlock> bad;
  for (std::uint64_t begin = 0; begin < data_bytes; begin += kVerifyChunkBytes) {
    const Extent chunk{begin, std::min(begin + kVerifyChunkBytes, data_bytes)};
    const ReadPlan plan = chunk_plan(file, chunk, scratch.bytes(), settings);
    DF_TRY(ReadOutcome outcome, read_blocks(opened, plan));
    std::ranges::move(outcome.bad_blocks, std::back_inserter(bad));
    if (bad.size() >= kBadBlocksMax) break;
  }
  if (bad.empty()) return std::nullopt;
  return fault_of(file, bad);
}

}  // namespace

Result<std::optional<Fault>> verify_blocks(Vfs& vfs, const ShardFile& file,
                                           const ReadSettings& settings) {
  if (file.header.data_bytes == 0) return std::nullopt;
  DF_TRY(const auto opened, open_for_blocks(vfs, chunk_plan(file, {}, {}, settings)));
  const auto id = settings.readings == nullptr ? std::nullopt : opened->id();
  if (id) {
    if (const std::optional<Fault>* known = settings.readings->find(*id)) {
      if (settings.on_progress) settings.on_progress(file.header.data_bytes);
      return *known;
    }
  }
  DF_TRY(std::optional<Fault> fault, read_and_verify(*opened, file, settings));
  if (id) settings.readings->note(*id, fault);
  return fault;
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
    faults.push_back(fault_of_error(file.name, error));
  }
  return faults;
}

Result<std::vector<Fault>> verify_attempt(Vfs& vfs, const Manifest& manifest,
                                          const ReadSettings& settings) {
  DF_TRY(OpenedFiles opened, open_files(vfs, manifest, Look::kHeader));
  DF_TRY(std::vector<Fault> faults, verify_files(vfs, manifest, opened.files, settings));
  faults.insert(faults.begin(), opened.faults.begin(), opened.faults.end());
  if (!faults.empty() || settings.one_node_only) return faults;
  return verify_whole(vfs, manifest, std::move(opened.files), settings);
}

Result<HeaderCheck> verify_headers(Vfs& vfs, const Manifest& manifest, bool one_node_only) {
  DF_TRY(OpenedFiles opened, open_files(vfs, manifest, Look::kStored));
  HeaderCheck check{.faults = std::move(opened.faults)};
  for (const ShardFile& file : opened.files) {
    if (!file.kept) check.without_checksum.push_back(file.name);
    if (auto fault = fault_of_kept(file)) check.faults.push_back(*std::move(fault));
  }
  if (!check.faults.empty() || one_node_only) return check;
  DF_TRY(check.faults, verify_whole(vfs, manifest, std::move(opened.files), {}));
  return check;
}

}  // namespace deepfreeze
