#include "manifest/sealed_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <tuple>

#include "base/hex.h"
#include "base/mapped_memory.h"
#include "base/polling.h"
#include "base/try.h"
#include "manifest/record_file.h"
#include "manifest/run_directory.h"
#include "packed/open_part.h"

namespace deepfreeze {
namespace {

Status read_exactly(File& file, std::string_view path, std::span<std::byte> into) {
  DF_TRY(const std::size_t count, file.read_at(0, into));
  if (count == into.size()) return {};
  return fail(ErrorCode::kCorrupt, fmt::format("read {}: it ends after {} bytes", path, count));
}

Error failure_report(Vfs& vfs, const std::string& path) {
  const auto text = read_file(vfs, path, kFailureTextBytesMax);
  return {ErrorCode::kIncomplete,
          fmt::format("{}: {}", vfs.path_of(path), text ? *text : text.error().message())};
}

std::string directory_of(const CommitRequest& request) {
  return attempt_dir_name(attempt_of(request.identity));
}

// The sealed parts of one listing, in the order of (rank, file).
Result<std::vector<PartName>> parts_among(Vfs& vfs, const CommitRequest& request,
                                          std::span<const DirEntry> entries) {
  const std::string directory = directory_of(request);
  std::vector<PartName> parts;
  for (const DirEntry& entry : entries) {
    const std::string path = join_name(directory, entry.name);
    if (entry.name.ends_with(".failed")) return std::unexpected(failure_report(vfs, path));
    const auto part = parse_sealed_file_name(entry.name);
    if (!part) continue;
    if (part->world_size != request.world_size) {
      return fail(ErrorCode::kMismatch,
                  fmt::format("{} is not of a world of {}", vfs.path_of(path), request.world_size));
    }
    parts.push_back(*part);
  }
  std::ranges::sort(parts, {}, [](const PartName& part) { return std::tie(part.rank, part.file); });
  return parts;
}

Result<std::vector<PartName>> list_undecided(Vfs& vfs, const CommitRequest& request) {
  const std::string directory = directory_of(request);
  DF_TRY(const std::vector<DirEntry> entries, vfs.list(directory));
  if (has_name(entries, kManifestFile)) {
    return fail(ErrorCode::kExists,
                vfs.path_of(join_name(directory, kManifestFile)) + " is there already");
  }
  return parts_among(vfs, request, entries);
}

using Ranks = std::span<const std::uint32_t>;

std::vector<std::uint32_t> all_ranks(std::uint32_t world_size) {
  std::vector<std::uint32_t> ranks(world_size);
  std::iota(ranks.begin(), ranks.end(), 0U);
  return ranks;
}

// The first missing rank, or missing file of a rank; empty if none is missing. `parts` is sorted
// and, like `ranks`, ascending; `next` is then the index of the first superfluous part.
std::optional<PartName> first_missing(std::span<const PartName> parts, Ranks ranks,
                                      std::uint32_t world_size, std::size_t& next) {
  next = 0;
  for (const std::uint32_t rank : ranks) {
    std::uint32_t file_count = 1;  // until its first file tells
    for (std::uint32_t file = 0; file < file_count; ++file, ++next) {
      const PartName wanted{rank, world_size, file, file_count};
      if (next == parts.size()) return wanted;
      if (file == 0) file_count = parts[next].file_count;
      if (parts[next] != PartName{rank, world_size, file, file_count}) return wanted;
    }
  }
  return std::nullopt;
}

// Reads from the device rather than the page cache, if the file system can.
Status read_back(Vfs& vfs, std::string_view path, const OwnPart& own, std::span<std::byte> into) {
  DF_TRY(const auto file, vfs.open_read(path, Access::kDirect));
  DF_TRY(const std::uint64_t file_bytes, file->size());
  if (file_bytes != own.file_bytes) {
    return fail(ErrorCode::kCorrupt, fmt::format("{}: {} bytes are there, {} were written",
                                                 vfs.path_of(path), file_bytes, own.file_bytes));
  }
  return read_exactly(*file, vfs.path_of(path), into);
}

// Compares the checksum of the header as encoded with that of the header on the disk: if they
// agree, the header need not be decoded.
Result<ManifestFile> check_own(Vfs& vfs, const std::string& directory, const PartName& name,
                               const OwnPart& own) {
  const std::string path = join_name(directory, sealed_file_name(name));
  DF_TRY(const MappedMemory header, MappedMemory::allocate(own.header_bytes));
  DF_TRY_VOID(read_back(vfs, path, own, header.bytes()));
  const auto crc = checked_header_crc(header.bytes());
  if (!crc) return std::unexpected(crc.error().within(vfs.path_of(path)));
  if (*crc != own.header_crc) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("{}: its header has the checksum {}, the one that was written {}",
                            vfs.path_of(path), hex32(*crc), hex32(own.header_crc)));
  }
  return ManifestFile{sealed_file_name(name), own.file_bytes, own.header_crc, own.origin};
}

Result<CheckedParts> check_all_own(Vfs& vfs, const CommitRequest& request,
                                   std::span<const PartName> parts) {
  const std::string directory = directory_of(request);
  CheckedParts checked{
      .files = {}, .annotations = request.own.front().annotations, .non_finite = 0};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    DF_TRY(ManifestFile file, check_own(vfs, directory, parts[i], request.own[i]));
    checked.files.push_back(std::move(file));
    add_count(checked.non_finite, request.own[i].non_finite);
  }
  return checked;
}

}  // namespace

Result<HeaderBytes> read_header_bytes(Vfs& vfs, std::string_view path) {
  DF_TRY(const auto file, open_part(vfs, path, Access::kBuffered));
  HeaderBytes header;
  DF_TRY(header.file_bytes, file->size());
  std::array<std::byte, 8> first8{};
  DF_TRY_VOID(read_exactly(*file, vfs.path_of(path), first8));
  const auto header_bytes = header_size(first8, header.file_bytes);
  if (!header_bytes) return std::unexpected(header_bytes.error().within(vfs.path_of(path)));
  header.bytes.resize(*header_bytes);  // within kHeaderBytesMax and the file
  DF_TRY_VOID(read_exactly(*file, vfs.path_of(path), header.bytes));
  return header;
}

Result<PartHeader> read_part_header(Vfs& vfs, std::string_view path) {
  DF_TRY(const HeaderBytes header, read_header_bytes(vfs, path));
  auto part = decode_part_header(header.bytes, header.file_bytes);
  if (!part) return std::unexpected(part.error().within(vfs.path_of(path)));
  return part;
}

std::optional<Identity> find_identity(Vfs& vfs, const AttemptName& name) {
  const std::string directory = attempt_dir_name(name);
  const auto entries = vfs.list(directory);
  if (!entries) return std::nullopt;
  for (const DirEntry& entry : *entries) {
    if (!entry.name.ends_with(".safetensors") && !entry.name.ends_with(".part")) continue;
    const auto part = read_part_header(vfs, join_name(directory, entry.name));
    if (part && attempt_of(part->header.identity) == name) return part->header.identity;
  }
  return std::nullopt;
}

std::string attempt_progress(Vfs& vfs, const AttemptName& name) {
  const std::string directory = attempt_dir_name(name);
  std::string progress;
  const auto entries = vfs.list(directory);
  if (!entries) return progress;
  for (const DirEntry& entry : *entries) {
    progress += entry.name;
    if (!entry.name.ends_with(".part")) continue;
    const auto file = vfs.open_read(join_name(directory, entry.name), Access::kBuffered);
    const auto changed = file ? (*file)->modified_micros() : Result<std::int64_t>(0);
    progress += fmt::format(" {} ", changed.value_or(0));
  }
  return progress;
}

std::optional<Error> reported_failure(Vfs& vfs, const AttemptName& name) {
  const std::string directory = attempt_dir_name(name);
  const auto entries = vfs.list(directory);
  if (!entries) return std::nullopt;
  for (const DirEntry& entry : *entries) {
    if (entry.name.ends_with(".failed")) {
      return failure_report(vfs, join_name(directory, entry.name));
    }
  }
  return std::nullopt;
}

Status check_complete(std::span<const PartName> parts, Ranks ranks, std::uint32_t world_size) {
  std::size_t known = 0;
  const auto missing = first_missing(parts, ranks, world_size, known);
  if (missing) return fail(ErrorCode::kIncomplete, sealed_file_name(*missing) + " is missing");
  if (known == parts.size()) return {};
  return fail(ErrorCode::kMismatch, sealed_file_name(parts[known]) + " is one file too many");
}

Result<std::vector<PartName>> wait_for_parts(Vfs& vfs, const CommitRequest& request) {
  return wait_for_parts(vfs, request, all_ranks(request.world_size));
}

Result<std::vector<PartName>> wait_for_parts(Vfs& vfs, const CommitRequest& request, Ranks ranks) {
  Polling polling(request.deadline);
  while (true) {
    DF_TRY(std::vector<PartName> parts, list_undecided(vfs, request));
    std::erase_if(parts, [ranks](const PartName& part) {
      return !std::ranges::binary_search(ranks, part.rank);
    });
    const Status complete = check_complete(parts, ranks, request.world_size);
    if (complete) return parts;
    if (complete.error().code() != ErrorCode::kIncomplete) {
      return std::unexpected(complete.error());
    }
    if (polling.again()) continue;
    return fail(ErrorCode::kIncomplete, fmt::format("{} after {} ms", complete.error().message(),
                                                    request.deadline.count()));
  }
}

Result<std::vector<PartName>> present_parts(Vfs& vfs, const CommitRequest& request) {
  DF_TRY(const std::vector<DirEntry> entries, vfs.list(directory_of(request)));
  DF_TRY(std::vector<PartName> parts, parts_among(vfs, request, entries));
  DF_TRY_VOID(check_complete(parts, all_ranks(request.world_size), request.world_size));
  return parts;
}

Result<CheckedParts> check_parts(Vfs& vfs, const CommitRequest& request,
                                 std::span<const PartName> parts) {
  if (!parts.empty() && request.own.size() == parts.size()) {
    return check_all_own(vfs, request, parts);
  }
  const std::string directory = directory_of(request);
  PartsCheck check(request.identity);
  for (const PartName& name : parts) {
    const std::string path = join_name(directory, sealed_file_name(name));
    DF_TRY(const PartHeader part, read_part_header(vfs, path));
    const Status added = check.add(name, part);
    if (!added) return std::unexpected(added.error().within("check " + vfs.path_of(path)));
  }
  auto checked = check.finish();
  if (checked) return checked;
  return std::unexpected(checked.error().within("check " + vfs.path_of(directory)));
}

}  // namespace deepfreeze
