#include "format/header_text.h"

#include <fmt/format.h>

#include <utility>

#include "base/try.h"
#include "codec/crc32c.h"
#include "tensor/tensor_table.h"

namespace deepfreeze {
namespace {

Status check_entry(const ShardEntry& entry, std::uint64_t begin) {
  DF_TRY_VOID(check_spec(entry.spec));
  const std::uint64_t bytes = *spec_bytes(entry.spec);  // check_spec() has asked for it
  if (entry.extent.begin != begin) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("tensor \"{}\" begins at {}, but {} is next in the data section",
                            entry.spec.key, entry.extent.begin, begin));
  }
  if (entry.extent.end >= begin && entry.extent.size() == bytes) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("tensor \"{}\" lies from {} to {}, but its shape has {} bytes",
                          entry.spec.key, begin, entry.extent.end, bytes));
}

}  // namespace

std::uint32_t header_crc(std::span<const std::byte> header) {
  const std::uint32_t before = crc32c(header.first(kCrcOffset));
  const std::uint32_t zeros = crc32c_extend(before, std::as_bytes(std::span(kCrcZeros)));
  return crc32c_extend(zeros, header.subspan(kCrcOffset + kCrcDigits));
}

Status check_entries(std::span<const ShardEntry> entries, std::uint64_t data_bytes) {
  std::uint64_t end = 0;
  for (const ShardEntry& entry : entries) {
    DF_TRY_VOID(check_entry(entry, end));
    end = entry.extent.end;
  }
  if (end == data_bytes) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("the tensors end at {} of {} bytes of data", end, data_bytes));
}

std::unexpected<Error> refuse_header(std::string cause) {
  return fail(ErrorCode::kInvalidArgument, "header: " + std::move(cause));
}

void append_metadata_member(fmt::memory_buffer& out, std::string_view key, std::string_view value) {
  append_text(out, ",\"");
  append_text(out, key);
  append_text(out, "\":");
  append_header_string(out, value);
}

}  // namespace deepfreeze
