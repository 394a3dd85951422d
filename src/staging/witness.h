// Proves that a source did not change between save() and its copy: checksums of a few of its cache
// lines are taken before and compared with the copy. Sees every kind of writer that touches one of
// these lines, or an item too small to hold one; docs/guarantees.md says what it can miss.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "arena/capture_item.h"
#include "codec/crc32c.h"
#include "deepfreeze/result.h"

namespace deepfreeze {

inline constexpr std::uint64_t kWitnessLines = 16;  // of each tensor, one in each 16th of it
inline constexpr std::uint64_t kLineBytes = kCrcLineBytes;

struct WitnessSettings {
  std::uint64_t seed = 0;         // which lines: another choice at every save
  std::uint64_t block_bytes = 0;  // pieces are cut at its multiples
  bool every_byte = false;        // DEEPFREEZE_PARANOID: sees every writer, reads all sources
};

// record() of one item and matches() of its pieces must not run at once; items are independent.
class Witness {
 public:
  Witness(std::size_t item_count, WitnessSettings settings);

  // Reads the lines, or all, of these of the items as they are now.
  void record(std::span<const CaptureItem> items, std::span<const std::size_t> members);
  // Records every byte of an item that only `read` can read; `read` hands the bytes on to `take`.
  using Take = std::function<void(std::span<const std::byte> bytes)>;
  using Read = std::function<Status(std::span<const std::byte> source, const Take& take)>;
  [[nodiscard]] Status record(std::size_t index, const CaptureItem& item, const Read& read);

  // Whether `copied`, the bytes of a piece, equal the record; true for an item without a record.
  [[nodiscard]] bool matches(const CaptureItem& item, const CapturePiece& piece,
                             std::span<const std::byte> copied) const;

  // Whether the item's source still equals the record.
  [[nodiscard]] bool unchanged(std::size_t index, const CaptureItem& item) const;

 private:
  struct Record {
    std::array<std::uint32_t, kWitnessLines> lines{};
    std::vector<std::uint32_t> pieces;  // one sum per block, instead of lines, if every byte counts
    bool recorded = false;
  };
  // The lines of an item, in the order of its parts. They are on their way to the cache.
  struct Lines {
    std::array<const std::byte*, kWitnessLines> at{};
    std::size_t count = 0;  // 0: every byte counts
  };
  [[nodiscard]] Lines find_lines(std::size_t index, const CaptureItem& item) const;
  [[nodiscard]] bool every_byte_counts(const CaptureItem& item) const;
  [[nodiscard]] std::uint64_t piece_bytes(const CaptureItem& item, std::uint64_t at) const;
  [[nodiscard]] std::vector<std::uint32_t> piece_sums(const CaptureItem& item) const;
  [[nodiscard]] bool lines_match(const CaptureItem& item, const CapturePiece& piece,
                                 std::span<const std::byte> copied) const;
  [[nodiscard]] std::uint64_t line(std::size_t index, const CaptureItem& item,
                                   std::uint64_t k) const;

  const WitnessSettings settings_;
  std::vector<Record> records_;
};

}  // namespace deepfreeze
