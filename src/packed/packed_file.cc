// The first read takes the index. Each takes the stored bytes of up to a slab of blocks at a time,
// in whole pages, as direct access needs them. A block's stored bytes are compared with the index
// before they are decoded.
#include "packed/packed_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/mapped_memory.h"
#include "base/try.h"
#include "codec/crc32c.h"
#include "codec/pack.h"
#include "storage/read_only.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kBlocksAtOnce = kSlabBytes / kBlockBytes;

// The memory of one reading thread.
struct Scratch {
  MappedMemory stored;               // of kBlocksAtOnce blocks, and the pages around
  std::optional<Unpacker> unpacker;  // none until a packed block comes
  std::array<std::byte, kBlockBytes> block;
};

// The index, and the place of each block.
struct BlockMap {
  PackedIndex index;
  std::vector<std::uint64_t> begins;  // in the file; one more than there are blocks
  std::uint32_t stored_crc = 0;       // of the whole file, by the index
};

class PackedFile final : public ReadOnlyFile {
 public:
  PackedFile(std::unique_ptr<File> stored, std::uint64_t stored_bytes, const PackedLead& lead,
             std::string path)
      : stored_(std::move(stored)),
        stored_bytes_(stored_bytes),
        lead_(lead),
        path_(std::move(path)) {}

  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) override;
  Result<std::uint64_t> size() override { return lead_.plain_bytes(); }
  Result<std::int64_t> modified_micros() override { return stored_->modified_micros(); }
  [[nodiscard]] std::optional<std::uint32_t> kept_crc32c() const override;
  // Reads the index, in which all bytes behind the header have their place.
  Status check_whole() override {
    const auto known = map();
    return known ? Status{} : std::unexpected(known.error());
  }

 private:
  [[nodiscard]] std::string path() const override { return path_; }
  [[nodiscard]] std::unexpected<Error> at_path(const Error& error) const {
    return std::unexpected(error.within(path_));
  }
  [[nodiscard]] Result<const BlockMap*> map() const;
  [[nodiscard]] Result<BlockMap> read_map() const;
  [[nodiscard]] Status read_stored(std::uint64_t begin, std::span<std::byte> into) const;
  [[nodiscard]] Status read_data(Extent data, std::span<std::byte> into);
  [[nodiscard]] Status read_blocks(const BlockMap& map, Extent data, std::span<std::byte> into,
                                   Scratch& scratch) const;
  [[nodiscard]] Status unpack(const BlockMap& map, std::uint64_t block,
                              std::span<const std::byte> stored, std::span<std::byte> plain,
                              Scratch& scratch) const;
  [[nodiscard]] Result<std::unique_ptr<Scratch>> take_scratch();
  void give_back(std::unique_ptr<Scratch> scratch);

  const std::unique_ptr<File> stored_;
  const std::uint64_t stored_bytes_;
  const PackedLead lead_;
  const std::string path_;

  mutable std::mutex mutex_;
  // Guarded by mutex_; once it is set it does not change.
  mutable std::unique_ptr<const Result<BlockMap>> map_;
  std::vector<std::unique_ptr<Scratch>> scratch_;  // guarded by mutex_; not in use
};

// All of `into`, from any place, by whole pages.
Status PackedFile::read_stored(std::uint64_t begin, std::span<std::byte> into) const {
  const std::uint64_t page = begin / kPageBytes * kPageBytes;
  DF_TRY(const MappedMemory memory,
         MappedMemory::allocate(round_up(begin - page + into.size(), kPageBytes)));
  DF_TRY(const std::size_t count, stored_->read_at(page, memory.bytes()));
  if (count < begin - page + into.size()) {
    return at_path(Error(ErrorCode::kCorrupt, "packed file: it shrank while it was read"));
  }
  std::memcpy(into.data(), memory.bytes().data() + (begin - page), into.size());
  return {};
}

Result<BlockMap> PackedFile::read_map() const {
  if (!is_packed_size(lead_, stored_bytes_)) {
    return at_path(Error(ErrorCode::kCorrupt, fmt::format("packed file: it has {} bytes, too few "
                                                          "or too many",
                                                          stored_bytes_)));
  }
  const std::uint64_t behind_header = stored_bytes_ - kPackedLeadBytes - lead_.header_bytes;
  const std::uint64_t tail_bytes = std::min(packed_index_bytes_max(lead_), behind_header);
  DF_TRY(const MappedMemory tail, MappedMemory::allocate(tail_bytes));
  DF_TRY_VOID(read_stored(stored_bytes_ - tail_bytes, tail.bytes().first(tail_bytes)));
  auto index = decode_packed_index(lead_, stored_bytes_, tail.bytes().first(tail_bytes));
  if (!index) return at_path(index.error());
  BlockMap map{.index = *std::move(index), .begins = {}, .stored_crc = 0};
  map.begins.reserve(map.index.blocks.size() + 1);
  std::uint64_t at = kPackedLeadBytes + lead_.header_bytes;
  for (const PackedBlock& block : map.index.blocks) {
    map.begins.push_back(at);
    at += block.bytes;
  }
  map.begins.push_back(at);
  const auto index_bytes = tail.bytes().first(tail_bytes).last(stored_bytes_ - at);
  map.stored_crc = crc32c_combine(map.index.stored_crc, crc32c(index_bytes), index_bytes.size());
  return map;
}

// Damage stays; other errors may be over at the next read. Threads that come first at once each
// read the index, and keep one.
Result<const BlockMap*> PackedFile::map() const {
  const auto kept = [this]() -> Result<const BlockMap*> {
    if (!*map_) return std::unexpected(map_->error());
    return &**map_;
  };
  {
    const std::lock_guard lock(mutex_);
    if (map_ != nullptr) return kept();
  }
  auto read = read_map();
  if (!read && read.error().code() != ErrorCode::kCorrupt) return std::unexpected(read.error());
  const std::lock_guard lock(mutex_);
  if (map_ == nullptr) map_ = std::make_unique<const Result<BlockMap>>(std::move(read));
  return kept();
}

// The checksum that the place keeps is that of the packed file. If that is right, so is the plain
// file's; else it stands for itself, and is not the plain file's.
std::optional<std::uint32_t> PackedFile::kept_crc32c() const {
  const auto kept = stored_->kept_crc32c();
  if (!kept) return std::nullopt;
  const auto known = map();
  if (!known) return kept;
  const std::uint32_t plain = (*known)->index.plain_crc;
  if (*kept == (*known)->stored_crc) return plain;
  return *kept == plain ? ~plain : *kept;
}

Result<std::unique_ptr<Scratch>> PackedFile::take_scratch() {
  {
    const std::lock_guard lock(mutex_);
    if (!scratch_.empty()) {
      auto scratch = std::move(scratch_.back());
      scratch_.pop_back();
      return scratch;
    }
  }
  auto scratch = std::make_unique<Scratch>();
  DF_TRY(scratch->stored, MappedMemory::allocate(kSlabBytes + 2 * kPageBytes));
  return scratch;
}

void PackedFile::give_back(std::unique_ptr<Scratch> scratch) {
  const std::lock_guard lock(mutex_);
  scratch_.push_back(std::move(scratch));
}

Status PackedFile::unpack(const BlockMap& map, std::uint64_t block,
                          std::span<const std::byte> stored, std::span<std::byte> plain,
                          Scratch& scratch) const {
  const auto bad = [&](std::string_view why) {
    return at_path(Error(ErrorCode::kCorrupt, fmt::format("packed block {}: {}", block, why)));
  };
  if (crc32c(stored) != map.index.blocks[block].crc) return bad("its stored bytes do not verify");
  if (stored.size() == plain.size()) {
    std::memcpy(plain.data(), stored.data(), stored.size());
    return {};
  }
  if (!scratch.unpacker) {
    auto made = Unpacker::make();
    if (!made) return at_path(made.error());
    scratch.unpacker = *std::move(made);
  }
  const Status unpacked = scratch.unpacker->unpack(stored, plain);
  return unpacked ? unpacked : bad(unpacked.error().message());
}

// `data` touches at most kBlocksAtOnce blocks.
Status PackedFile::read_blocks(const BlockMap& map, Extent data, std::span<std::byte> into,
                               Scratch& scratch) const {
  const std::uint64_t first = data.begin / kBlockBytes;
  const std::uint64_t last = (data.end - 1) / kBlockBytes;
  const std::uint64_t page = map.begins[first] / kPageBytes * kPageBytes;
  const std::uint64_t wanted = map.begins[last + 1] - page;
  const auto memory = scratch.stored.bytes().first(round_up(wanted, kPageBytes));
  DF_TRY(const std::size_t count, stored_->read_at(page, memory));
  if (count < wanted) {
    return at_path(Error(ErrorCode::kCorrupt, "packed file: it shrank while it was read"));
  }
  for (std::uint64_t block = first; block <= last; ++block) {
    const auto stored = memory.subspan(map.begins[block] - page, map.index.blocks[block].bytes);
    const std::uint64_t begin = block * kBlockBytes;
    const Extent whole{begin, begin + plain_block_bytes(lead_, block)};
    const Extent part{std::max(whole.begin, data.begin), std::min(whole.end, data.end)};
    const auto target = into.subspan(part.begin - data.begin, part.size());
    if (part == whole) {
      DF_TRY_VOID(unpack(map, block, stored, target, scratch));
      continue;
    }
    const auto plain = std::span(scratch.block).first(whole.size());
    DF_TRY_VOID(unpack(map, block, stored, plain, scratch));
    std::memcpy(target.data(), plain.data() + (part.begin - begin), part.size());
  }
  return {};
}

Status PackedFile::read_data(Extent data, std::span<std::byte> into) {
  DF_TRY(const BlockMap* const known, map());
  DF_TRY(auto scratch, take_scratch());
  Status read;
  for (std::uint64_t at = data.begin; at < data.end && read;) {
    const std::uint64_t end = std::min((at / kBlockBytes + kBlocksAtOnce) * kBlockBytes, data.end);
    read = read_blocks(*known, {at, end}, into.subspan(at - data.begin, end - at), *scratch);
    at = end;
  }
  give_back(std::move(scratch));
  return read;
}

Result<std::size_t> PackedFile::read_at(std::uint64_t offset, std::span<std::byte> into) {
  const std::uint64_t plain_bytes = lead_.plain_bytes();
  if (offset >= plain_bytes) return 0;
  into = into.first(std::min<std::uint64_t>(into.size(), plain_bytes - offset));
  std::size_t done = 0;
  if (offset < lead_.header_bytes) {
    const auto header =
        into.first(std::min<std::uint64_t>(into.size(), lead_.header_bytes - offset));
    DF_TRY(done, stored_->read_at(kPackedLeadBytes + offset, header));
    if (done < header.size()) return done;
  }
  if (done == into.size()) return done;
  const std::uint64_t begin = offset + done - lead_.header_bytes;
  const auto rest = into.subspan(done);
  DF_TRY_VOID(read_data({begin, begin + rest.size()}, rest));
  return into.size();
}

}  // namespace

Result<std::unique_ptr<File>> open_packed_file(std::unique_ptr<File> stored, const PackedLead& lead,
                                               std::string path) {
  DF_TRY(const std::uint64_t stored_bytes, stored->size());
  return std::make_unique<PackedFile>(std::move(stored), stored_bytes, lead, std::move(path));
}

}  // namespace deepfreeze
