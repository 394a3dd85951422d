// Any bytes as a data file, and any text as the JSON of a header with a checksum that fits.
#include <algorithm>
#include <set>

#include "format/header_text.h"
#include "fuzz/framed.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/memory_meter.h"

namespace deepfreeze {
namespace {

__extension__ using Wide = unsigned __int128;

// Computes the size by another way than the decoder's: in numbers that don't wrap.
Wide bytes_of(const TensorSpec& spec) {
  Wide bytes = dtype_bytes(spec.dtype);
  for (const std::uint64_t size : spec.shape) {
    if (size == 0) return 0;
    bytes = std::min<Wide>(bytes * size, ~std::uint64_t{0});
  }
  return bytes;
}

Status check_entries_fill(const ShardHeader& header) {
  std::set<std::string_view> keys;
  std::uint64_t end = 0;
  for (const ShardEntry& entry : header.entries) {
    DF_TRY_VOID(promise(keys.insert(entry.spec.key).second, "a key twice"));
    DF_TRY_VOID(promise(entry.extent.begin == end, "a hole, or an overlap"));
    end = entry.extent.end;
    DF_TRY_VOID(promise(entry.extent.begin + bytes_of(entry.spec) == end, "not its shape's bytes"));
  }
  return promise(end == header.data_bytes, "data that no tensor holds");
}

// The properties that readers rely on once a header was accepted.
Status check_accepted(const ShardHeader& header, std::uint64_t data_bytes) {
  DF_TRY_VOID(promise(header.data_bytes == data_bytes, "its data is not that of the file"));
  DF_TRY_VOID(promise(header.block_crcs.size() == block_count(data_bytes), "a block without CRC"));
  DF_TRY_VOID(check_entries_fill(header));
  const PartName& part = header.identity.part;
  return promise(part.rank < part.world_size && part.file < part.file_count, "an impossible part");
}

Status check_decoding(std::span<const std::byte> bytes, std::uint64_t file_bytes) {
  std::uint32_t crc = 0;
  const MemoryMeter meter;
  const auto header = decode_header(bytes, file_bytes, crc);
  DF_TRY_VOID(meter.check(bytes.size()));
  if (!header) return check_refusal(header.error());
  DF_TRY_VOID(promise(checked_header_crc(bytes) == crc, "two checksums of one header"));
  return check_accepted(*header, file_bytes - bytes.size());
}

// As a reader takes a file: its first 8 bytes, then so much of it as these say.
Status check_file(std::span<const std::byte> file) {
  const auto size = header_size(file.first(std::min(file.size(), kLengthBytes)), file.size());
  if (!size) return check_refusal(size.error());
  DF_TRY_VOID(promise(*size <= file.size() && *size % kPageBytes == 0, "a header beyond its file"));
  return check_decoding(file.first(*size), file.size());
}

}  // namespace

Status fuzz_header(std::string_view input) {
  const auto bytes = std::as_bytes(std::span(input));
  DF_TRY_VOID(check_file(bytes));
  DF_TRY_VOID(check_decoding(bytes, bytes.size()));
  const std::vector<std::byte> framed = framed_header(input);
  const std::uint64_t file_bytes = framed.size() + data_bytes_of(input);
  for (const std::uint64_t other : {file_bytes + 1, file_bytes + kBlockBytes, file_bytes - 1}) {
    DF_TRY_VOID(check_decoding(framed, other));
  }
  return check_decoding(framed, file_bytes);
}

}  // namespace deepfreeze
