#include "restore/shard_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/hex.h"
#include "base/shortened.h"
#include "base/try.h"
#include "codec/crc32c.h"
#include "format/block_crcs.h"
#include "packed/open_part.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kTensorsNamedMax = 3;

std::unexpected<Error> corrupt(std::string message) {
  return fail(ErrorCode::kCorrupt, std::move(message));
}

Status check_identity(const Manifest& manifest, const ManifestFile& file, const Identity& found) {
  if (parse_sealed_file_name(file.name) != found.part) {
    return corrupt("its header names another rank or file");
  }
  if (found.part.world_size != manifest.world_size) {
    return corrupt(fmt::format("its header says {} ranks, the manifest {}", found.part.world_size,
                               manifest.world_size));
  }
  const Point point{found.generation, found.step, found.save_index, found.attempt_id};
  const Origin wanted = origin_of(manifest, file);
  if (Origin{found.run_id, point} == wanted) return {};
  return corrupt(fmt::format("it belongs to run {}, generation {}, step {}, save {}, attempt {}",
                             found.run_id, found.generation, found.step, found.save_index,
                             hex64(found.attempt_id)));
}

Result<std::vector<std::byte>> read_header(File& file, std::uint64_t file_bytes) {
  std::array<std::byte, 8> first{};
  DF_TRY(const std::size_t first_count, file.read_at(0, first));
  DF_TRY(const std::uint64_t header_bytes,
         header_size(std::span(first).first(first_count), file_bytes));
  std::vector<std::byte> bytes(header_bytes);  // at most kHeaderBytesMax
  DF_TRY(const std::size_t count, file.read_at(0, bytes));
  if (count != bytes.size()) return corrupt("it shrank while its header was read");
  return bytes;
}

std::uint32_t crc_of_file(std::span<const std::byte> header_bytes, const ShardHeader& header) {
  const std::uint32_t of_data = crc_of_blocks(header.block_crcs, {0, header.data_bytes});
  return crc32c_combine(crc32c(header_bytes), of_data, header.data_bytes);
}

Result<ShardFile> read_shard_file(Vfs& vfs, const Manifest& manifest, const ManifestFile& file,
                                  Look look) {
  ShardFile shard{.name = file.name, .path = attempt_path(manifest, file.name)};
  DF_TRY(const auto opened, open_part(vfs, shard.path, Access::kBuffered, file.bytes));
  DF_TRY(const std::uint64_t file_bytes, opened->size());
  if (file_bytes != file.bytes) {
    return corrupt(fmt::format("it has {} bytes, the manifest says {}", file_bytes, file.bytes));
  }
  DF_TRY(const std::vector<std::byte> bytes, read_header(*opened, file_bytes));
  std::uint32_t crc = 0;
  DF_TRY(shard.header, decode_header(bytes, file_bytes, crc));
  if (crc != file.header_crc) {
    return corrupt(fmt::format("header checksum differs from the manifest: {} here, {} there",
                               hex32(crc), hex32(file.header_crc)));
  }
  DF_TRY_VOID(check_identity(manifest, file, shard.header.identity));
  shard.header_bytes = bytes.size();
  if (look == Look::kHeader) return shard;
  DF_TRY_VOID(opened->check_whole());
  if (const auto kept = opened->kept_crc32c()) {
    shard.kept = {.crc = *kept, .wanted = crc_of_file(bytes, shard.header)};
  }
  return shard;
}

}  // namespace

std::string attempt_path(const Manifest& manifest, std::string_view file_name) {
  const AttemptName name{manifest.point.step, manifest.point.attempt_id};
  return fmt::format("{}/{}", attempt_dir_name(name), file_name);
}

Error explain_missing(Vfs& vfs, const Manifest& manifest, const Error& error) {
  if (error.code() != ErrorCode::kNotFound) return error;
  const auto record = vfs.open_read(attempt_path(manifest, kManifestFile), Access::kBuffered);
  if (!record && record.error().code() == ErrorCode::kNotFound) {
    return {ErrorCode::kGone, "removed meanwhile by another process", error.os_errno()};
  }
  return {ErrorCode::kIncomplete, "missing: " + error.message(), error.os_errno()};
}

Result<ShardFile> open_shard_file(Vfs& vfs, const Manifest& manifest, const ManifestFile& file,
                                  Look look) {
  auto shard = read_shard_file(vfs, manifest, file, look);
  if (shard) return shard;
  return std::unexpected(
      explain_missing(vfs, manifest, shard.error()).within(fmt::format("file {}", file.name)));
}

std::vector<std::string> tensors_in_block(const ShardHeader& header, std::uint64_t block) {
  const std::uint64_t begin = block * kBlockBytes;
  const std::uint64_t end = std::min(begin + kBlockBytes, header.data_bytes);
  // Entries lie in file order without gaps, so the first that reaches into the block is found
  // by bisection.
  auto entry = std::ranges::partition_point(
      header.entries, [begin](const ShardEntry& e) { return e.extent.end <= begin; });
  std::vector<std::string> keys;
  for (; entry != header.entries.end() && entry->extent.begin < end; ++entry) {
    if (entry->extent.size() > 0) keys.push_back(entry->spec.key);
  }
  return keys;
}

std::string describe_bad_blocks(const ShardHeader& header, std::span<const BadBlock> bad) {
  const BadBlock& first = bad.front();
  std::vector<std::string> keys = tensors_in_block(header, first.index);
  const std::size_t key_count = keys.size();
  keys.resize(std::min(key_count, kTensorsNamedMax));
  const std::uint64_t begin = first.index * kBlockBytes;
  std::string text = fmt::format("block {} (bytes {}..{}) of tensor{} {}", first.index, begin,
                                 std::min(begin + kBlockBytes, header.data_bytes),
                                 key_count == 1 ? "" : "s", fmt::join(keys, ", "));
  if (key_count > keys.size()) text += fmt::format(" and {} more", key_count - keys.size());
  text += ": " + first.cause;
  if (bad.size() > 1) {
    text += fmt::format(" (and {} more block{})", bad.size() - 1, bad.size() == 2 ? "" : "s");
  }
  return shortened(std::move(text));
}

}  // namespace deepfreeze
