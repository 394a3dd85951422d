// Any bytes as a packed block, as a packed file, and as stored bytes in a file whose checksums fit.
#include <algorithm>
#include <cstring>
#include <vector>

#include "codec/crc32c.h"
#include "codec/pack.h"
#include "format/packed_file.h"
#include "fuzz/fuzz_target.h"
#include "packed/open_part.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

constexpr const char* kPart = "part";
constexpr std::byte kUntouched{0x5a};
constexpr std::size_t kGuardBytes = 64;

// Into memory with guards around it.
Status check_unpack(Unpacker& unpacker, std::span<const std::byte> packed, std::size_t bytes) {
  std::vector<std::byte> memory(bytes + 2 * kGuardBytes, kUntouched);
  const Status unpacked = unpacker.unpack(packed, std::span(memory).subspan(kGuardBytes, bytes));
  const auto is_clean = [&](std::span<const std::byte> guard) {
    return std::ranges::all_of(guard, [](std::byte byte) { return byte == kUntouched; });
  };
  DF_TRY_VOID(promise(is_clean(std::span(memory).first(kGuardBytes)) &&
                          is_clean(std::span(memory).last(kGuardBytes)),
                      "it wrote outside of the block"));
  return unpacked ? Status{} : check_refusal(unpacked.error());
}

Status check_round_trip(std::span<const std::byte> plain, Packer& packer, Unpacker& unpacker) {
  plain = plain.first(std::min(plain.size(), kPackBytesMax));
  for (const std::size_t element : {1U, 2U, 4U, 8U}) {
    const auto packed = packer.pack(plain, element);
    if (packed.empty()) continue;
    std::vector<std::byte> back(plain.size());
    DF_TRY_VOID(promise(packed.size() < plain.size(), "packed, and no smaller"));
    DF_TRY_VOID(promise(unpacker.unpack(packed, back).has_value(), "packed, and not unpacked"));
    DF_TRY_VOID(promise(std::ranges::equal(back, plain), "other bytes came back"));
  }
  return {};
}

Status check_packed_file(std::span<const std::byte> file) {
  SimDisk disk;
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  DF_TRY_VOID(write_new_file(disk, kPart, text));
  const auto part = open_part(disk, kPart, Access::kBuffered);
  if (!part) return check_refusal(part.error());
  std::vector<std::byte> into(100'000);
  DF_TRY(const std::uint64_t bytes, (*part)->size());
  for (std::uint64_t at = 0; at < std::min<std::uint64_t>(bytes, 4 * into.size());
       at += into.size()) {
    const auto count = (*part)->read_at(at, into);
    if (!count) return check_refusal(count.error());
    const std::uint64_t wanted = std::min<std::uint64_t>(into.size(), bytes - at);
    if (*count < wanted) return {};  // cut inside its header
    DF_TRY_VOID(promise(*count == wanted, "a read beyond the end"));
  }
  return {};
}

void append(std::vector<std::byte>& all, std::span<const std::byte> bytes) {
  all.insert(all.end(), bytes.begin(), bytes.end());
}

// One block of `plain_bytes` bytes, stored as these.
std::vector<std::byte> file_around(std::span<const std::byte> stored, std::uint64_t plain_bytes) {
  const PackedLead lead{.header_bytes = kPageBytes, .data_bytes = plain_bytes};
  std::vector<std::byte> file = encode_packed_lead(lead);
  append(file, std::vector<std::byte>(kPageBytes));
  append(file, stored);
  const PackedIndex index{
      .blocks = {{.bytes = static_cast<std::uint32_t>(stored.size()), .crc = crc32c(stored)}},
      .plain_crc = 0,
      .stored_crc = crc32c(file)};
  append(file, encode_packed_index(lead, index));
  return file;
}

}  // namespace

Status fuzz_packed(std::string_view input) {
  static Packer packer = Packer::make().value();
  static Unpacker unpacker = Unpacker::make().value();
  const auto bytes = std::as_bytes(std::span(input));
  DF_TRY_VOID(check_packed_file(bytes));
  DF_TRY_VOID(check_round_trip(bytes, packer, unpacker));
  if (bytes.size() < 3) return {};
  const std::size_t plain_bytes = 1 + static_cast<std::size_t>(bytes[0]) +
                                  256 * static_cast<std::size_t>(bytes[1]);  // at most 64 KiB
  const auto packed = bytes.subspan(2);
  DF_TRY_VOID(check_unpack(unpacker, packed, plain_bytes));
  DF_TRY_VOID(check_unpack(unpacker, packed, plain_bytes - 1));
  return check_packed_file(file_around(packed, plain_bytes));
}

}  // namespace deepfreeze
