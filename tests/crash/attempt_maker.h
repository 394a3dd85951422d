// Small attempts for tests: steps 1 to 6 of the commit protocol on any Vfs, in one thread and
// always by the same sequence of operations.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/hex.h"
#include "base/try.h"
#include "codec/crc32c.h"
#include "manifest/commit.h"
#include "manifest/record_file.h"
#include "manifest/sealed_parts.h"
#include "packed/open_part.h"

namespace deepfreeze {

inline Identity make_identity(const std::string& run_id, const Point& point, PartName part = {}) {
  return {.run_id = run_id,
          .attempt_id = point.attempt_id,
          .generation = point.generation,
          .step = point.step,
          .save_index = point.save_index,
          .part = part};
}

inline AttemptName name_of(const Identity& identity) {
  return {identity.step, identity.attempt_id};
}

// Bytes that no other attempt or part has, so that a mixture shows.
inline std::vector<std::byte> make_data(const Identity& identity, std::size_t size) {
  std::vector<std::byte> data(size);
  std::uint64_t state =
      identity.attempt_id * 2654435761U + 100 * identity.part.file + identity.part.rank + 1;
  for (std::byte& byte : data) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<std::byte>(state >> 56);
  }
  return data;
}

inline std::vector<std::uint32_t> block_crcs(std::span<const std::byte> data) {
  std::vector<std::uint32_t> crcs;
  for (std::size_t begin = 0; begin < data.size(); begin += kBlockBytes) {
    const auto size = std::min<std::size_t>(kBlockBytes, data.size() - begin);
    crcs.push_back(crc32c(data.subspan(begin, size)));
  }
  return crcs;
}

inline constexpr std::size_t kTestDataBytes = 1500;  // three sectors: writes can tear

inline double make_loss(std::uint64_t step) { return 1.0 / static_cast<double>(step + 1); }

// One tensor whose key is its part's own, so that no two parts store the same.
inline ShardHeader make_header(const Identity& identity, std::span<const std::byte> data) {
  ShardHeader header;
  header.identity = identity;
  header.annotations.wall_micros = 1'700'000'000'000'000;
  header.annotations.metrics["loss"] = make_loss(identity.step);
  TensorSpec spec;
  spec.key = fmt::format("weights_{}_{}", identity.part.rank, identity.part.file);
  spec.shape = {data.size()};
  header.entries.push_back({.spec = spec, .extent = {0, data.size()}});
  header.data_bytes = data.size();
  header.block_crcs = block_crcs(data);
  return header;
}

// Steps 2 and 3, as the engine's part writer takes them.
using WritePart = Status (*)(Vfs& vfs, const std::string& path, const ShardHeader& header,
                             std::span<const std::byte> data);
inline Status write_part(Vfs& vfs, const std::string& path, const ShardHeader& header,
                         std::span<const std::byte> data) {
  DF_TRY(const EncodedHeader encoded, encode_header(header));
  DF_TRY(const auto file, vfs.create(path, Access::kBuffered));
  DF_TRY_VOID(file->write_at(encoded.bytes.size(), data));
  DF_TRY_VOID(file->truncate(encoded.bytes.size() + data.size()));
  DF_TRY_VOID(file->sync());
  DF_TRY_VOID(file->write_at(0, encoded.bytes));
  DF_TRY_VOID(file->sync());
  return file->close();
}

// Steps 2 to 4.
inline Status write_and_seal(Vfs& vfs, const Identity& identity, WritePart write = write_part) {
  const std::vector<std::byte> data = make_data(identity, kTestDataBytes);
  const std::string path =
      join_name(attempt_dir_name(name_of(identity)), part_file_name(identity.part));
  DF_TRY_VOID(write(vfs, path, make_header(identity, data), data));
  return seal_parts(vfs, name_of(identity), std::span(&identity.part, 1));
}

inline CommitRequest make_request(const Identity& identity) {
  return {.identity = identity,
          .world_size = identity.part.world_size,
          .deadline = std::chrono::milliseconds(0)};
}

// Steps 1 to 6 of one rank.
inline Result<Manifest> save_attempt(Vfs& vfs, const Identity& identity,
                                     WritePart write = write_part) {
  DF_TRY_VOID(begin_attempt(vfs, name_of(identity)));
  DF_TRY_VOID(write_and_seal(vfs, identity, write));
  return commit_attempt(vfs, make_request(identity));
}

// A file's header, if it verifies, implies its data.
inline Status verify_part(Vfs& vfs, const std::string& path) {
  DF_TRY(const PartHeader part, read_part_header(vfs, path));
  DF_TRY(const auto file, open_part(vfs, path, Access::kBuffered));
  std::vector<std::byte> data(part.header.data_bytes);
  const std::uint64_t begin = part.file_bytes - part.header.data_bytes;
  DF_TRY(const std::size_t count, file->read_at(begin, data));
  if (count == data.size() && block_crcs(data) == part.header.block_crcs) return {};
  return fail(ErrorCode::kCorrupt, path + ": the header verifies and the data does not");
}

// Every file that a manifest lists, against the manifest.
inline Status verify_attempt(Vfs& vfs, const Manifest& manifest) {
  const std::string directory = attempt_dir_name({manifest.point.step, manifest.point.attempt_id});
  for (const ManifestFile& file : manifest.files) {
    const std::string path = join_name(directory, file.name);
    DF_TRY(const PartHeader part, read_part_header(vfs, path));
    if (part.crc != file.header_crc || part.file_bytes != file.bytes) {
      return fail(ErrorCode::kCorrupt, path + ": the manifest is of another file");
    }
    DF_TRY_VOID(verify_part(vfs, path));
  }
  return {};
}

}  // namespace deepfreeze
