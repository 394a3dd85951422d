#include "protect/parity_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/checked_math.h"
#include "base/hex.h"
#include "base/try.h"
#include "format/members.h"
#include "protect/erasure_code.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kRecordVersion = 1;
// So that no sum of sizes overflows; kManifestFilesMax files have fewer than 2^63 bytes.
constexpr std::uint64_t kFileBytesMax = std::uint64_t{1} << 43U;

std::unexpected<Error> corrupt(std::string_view why) {
  return fail(ErrorCode::kCorrupt, fmt::format("parity record: {}", why));
}

std::string encode(const ParityRecord& record) {
  JsonWriter json;
  const auto write_file = [](JsonWriter& out, const MemberFile& file) {
    out.object("name", file.name, "bytes", whole(file.bytes), "header_bytes",
               whole(file.header_bytes), "header_crc32c", hex32(file.header_crc));
  };
  const auto write_member = [&](JsonWriter& out, const Member& member) {
    out.object("node", whole(member.node), "files", json_array(member.files, write_file));
  };
  json.object("version", kRecordVersion, "parity", whole(record.parity), "chunk_bytes",
              whole(record.chunk_bytes), "own", whole(record.own), "members",
              json_array(record.members, write_member));
  return json.text();
}

Result<MemberFile> file_of(const JsonValue& object) {
  MemberFile file;
  DF_TRY(file.name, get_string(object, "name"));
  DF_TRY(file.bytes, get_u64(object, "bytes"));
  DF_TRY(file.header_bytes, get_u64(object, "header_bytes"));
  DF_TRY(file.header_crc, get_hex32(object, "header_crc32c"));
  return file;
}

Result<Member> member_of(const JsonValue& object) {
  Member member;
  DF_TRY(member.node, get_u64(object, "node"));
  DF_TRY(const JsonArray* files, get_array(object, "files"));
  for (const JsonValue& one : *files) {
    DF_TRY(MemberFile file, file_of(one));
    member.files.push_back(std::move(file));
  }
  return member;
}

Result<ParityRecord> record_of(const JsonValue& object) {
  ParityRecord record;
  DF_TRY(const std::uint64_t version, get_u64(object, "version"));
  if (version > kRecordVersion) {
    return fail(ErrorCode::kUnsupported, "parity record: written by a newer version");
  }
  DF_TRY(record.parity, get_u64(object, "parity"));
  DF_TRY(record.chunk_bytes, get_u64(object, "chunk_bytes"));
  DF_TRY(record.own, get_u64(object, "own"));
  DF_TRY(const JsonArray* members, get_array(object, "members"));
  for (const JsonValue& one : *members) {
    DF_TRY(Member member, member_of(one));
    record.members.push_back(std::move(member));
  }
  return record;
}

// The sizes are those that every further calculation relies on.
Status check_files(const ParityRecord& record, const Manifest& manifest) {
  std::map<std::string_view, const ManifestFile*> listed;
  for (const ManifestFile& file : manifest.files) listed.emplace(file.name, &file);
  for (const Member& member : record.members) {
    for (const MemberFile& file : member.files) {
      const auto found = listed.find(file.name);
      const bool is_same = found != listed.end() && found->second->bytes == file.bytes &&
                           found->second->header_crc == file.header_crc;
      if (!is_same) return corrupt(fmt::format("{} is not the manifest's", file.name));
      const bool is_sound = file.header_bytes >= kPageBytes &&
                            file.header_bytes <= std::min(kHeaderBytesMax, file.bytes) &&
                            file.header_bytes % kPageBytes == 0 && file.bytes <= kFileBytesMax;
      if (!is_sound) return corrupt(fmt::format("the header of {} has no size", file.name));
      listed.erase(found);  // a file is one member's, once
    }
  }
  return {};
}

Status check_sizes(const ParityRecord& record, const ShardHeader& header) {
  const bool has_code = record.parity >= 1 && record.members.size() > record.parity &&
                        record.members.size() <= kPiecesMax && record.own < record.members.size();
  if (!has_code) {
    return corrupt(fmt::format("{} members, {} of them parity, can't be a group",
                               record.members.size(), record.parity));
  }
  const auto all = checked_mul(record.chunk_bytes, record.parity);
  if (record.chunk_bytes == chunk_bytes_for(record.members, record.parity) && all &&
      *all == header.data_bytes) {
    return {};
  }
  return corrupt(fmt::format("chunks of {} bytes are not those of its files", record.chunk_bytes));
}

}  // namespace

std::uint64_t stream_bytes(const Member& member) {
  std::uint64_t bytes = 0;
  for (const MemberFile& file : member.files) {
    bytes += round_up(file.header_bytes, kBlockBytes);
    bytes += round_up(file.bytes - file.header_bytes, kBlockBytes);
  }
  return bytes;
}

std::uint64_t chunk_bytes_for(const std::vector<Member>& members, std::size_t parity) {
  std::uint64_t longest = 0;
  for (const Member& member : members) longest = std::max(longest, stream_bytes(member));
  return round_up(ceil_div(longest, members.size() - parity), kBlockBytes);
}

Result<ShardHeader> parity_header(const ParityRecord& record, const Manifest& manifest,
                                  std::uint64_t nodes) {
  ShardHeader header;
  header.identity = {.run_id = manifest.run_id,
                     .attempt_id = manifest.point.attempt_id,
                     .generation = manifest.point.generation,
                     .step = manifest.point.step,
                     .save_index = manifest.point.save_index,
                     .part = {.rank = static_cast<std::uint32_t>(record.members[record.own].node),
                              .world_size = static_cast<std::uint32_t>(nodes)}};
  header.tree = encode(record);
  for (std::size_t row = 0; row < record.parity; ++row) {
    TensorSpec spec{.key = fmt::format("parity.{}", row), .dtype = DType::kU8};
    spec.shape.push_back(record.chunk_bytes);
    header.entries.push_back(
        {.spec = std::move(spec),
         .extent = {row * record.chunk_bytes, (row + 1) * record.chunk_bytes}});
  }
  header.data_bytes = record.parity * record.chunk_bytes;
  header.block_crcs.resize(block_count(header.data_bytes));
  return header;
}

Result<ParityRecord> decode_parity(const ShardHeader& header, const Manifest& manifest) {
  const Identity& identity = header.identity;
  if (identity.run_id != manifest.run_id || identity.step != manifest.point.step ||
      identity.attempt_id != manifest.point.attempt_id) {
    return corrupt("it is of another checkpoint");
  }
  DF_TRY(const JsonValue object, parse_strict(header.tree));
  DF_TRY(ParityRecord record, record_of(object));
  DF_TRY_VOID(check_files(record, manifest));
  DF_TRY_VOID(check_sizes(record, header));
  return record;
}

}  // namespace deepfreeze
