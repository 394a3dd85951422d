#include "format/header_audit.h"

#include <array>
#include <utility>

#include "base/hex.h"
#include "base/try.h"
#include "format/header_text.h"
#include "json/json_reader.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kAuditDepthMax = 3;  // the list, a record, an offset

// ["key",[offset],first byte,bytes]
void append_record(fmt::memory_buffer& out, const AuditRecord& record) {
  append_text(out, out.size() == 0 ? "[[" : ",[");
  append_header_string(out, record.key);
  out.push_back(',');
  append_json_array(out, record.offset);
  fmt::format_to(std::back_inserter(out), ",{},{}]", record.first_byte, record.bytes);
}

std::uint64_t read_u64(JsonReader& reader) {
  const auto number = to_u64(reader.read_number());
  if (!number) reader.refuse("expected a number");
  return number.value_or(0);
}

Shape read_offset(JsonReader& reader) {
  Shape offset;
  reader.enter_array();
  while (reader.next_element()) {
    if (offset.size() == kRankMax) reader.refuse("too many dimensions");
    if (reader.ok()) offset.push_back(read_u64(reader));
  }
  return offset;
}

AuditRecord read_record(JsonReader& reader) {
  AuditRecord record;
  const auto next = [&reader] {
    if (!reader.next_element()) reader.refuse("a record of an audit is too short");
  };
  reader.enter_array();
  next();
  record.key = reader.read_string();
  next();
  record.offset = read_offset(reader);
  next();
  record.first_byte = read_u64(reader);
  next();
  record.bytes = read_u64(reader);
  if (reader.next_element()) reader.refuse("a record of an audit is too long");
  return record;
}

}  // namespace

AuditText write_audit(std::span<const AuditRecord> records) {
  AuditText written;
  fmt::memory_buffer list;
  for (const AuditRecord& record : records) {
    const std::size_t before = list.size();
    append_record(list, record);
    if (list.size() > kAuditListBytesMax || written.count == kAuditRecordsMax) {
      list.resize(before);
      break;
    }
    ++written.count;
  }
  if (written.count == 0) return {};
  list.push_back(']');
  fmt::memory_buffer member;
  append_metadata_member(member, kAuditKey, {list.data(), list.size()});
  written.member = fmt::to_string(member);
  return written;
}

// Digit by digit, for speed: a gigabyte has sixteen thousand checksums.
void append_crcs(fmt::memory_buffer& out, std::span<const std::uint32_t> crcs) {
  for (const std::uint32_t crc : crcs) {
    for (int shift = 28; shift >= 0; shift -= 4) {
      out.push_back("0123456789abcdef"[crc >> shift & 15]);
    }
  }
}

Result<std::vector<std::uint32_t>> read_crcs(std::string_view digits, std::uint64_t count,
                                             std::string_view of_what) {
  if (digits.size() % kCrcDigits != 0 || digits.size() / kCrcDigits != count) {
    return fail(ErrorCode::kCorrupt, fmt::format("header: {} digits of checksums for {} {}",
                                                 digits.size(), count, of_what));
  }
  std::vector<std::uint32_t> crcs;
  crcs.reserve(count);
  for (; !digits.empty(); digits.remove_prefix(kCrcDigits)) {
    const auto crc = parse_hex32(digits.substr(0, kCrcDigits));
    if (!crc) return fail(ErrorCode::kCorrupt, "header: a checksum is not hexadecimal digits");
    crcs.push_back(*crc);
  }
  return crcs;
}

Result<std::vector<AuditRecord>> read_audit(std::string_view text, std::string_view digits) {
  std::vector<AuditRecord> records;
  JsonReader reader(text, kAuditDepthMax);
  reader.enter_array();
  while (reader.next_element()) {
    if (records.size() == kAuditRecordsMax) reader.refuse("too many records of an audit");
    if (reader.ok()) records.push_back(read_record(reader));
  }
  DF_TRY_VOID(reader.finish());
  DF_TRY(const std::vector<std::uint32_t> crcs, read_crcs(digits, records.size(), "records"));
  for (std::size_t i = 0; i < records.size(); ++i) records[i].crc = crcs[i];
  return records;
}

}  // namespace deepfreeze
