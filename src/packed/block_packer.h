// Decides block by block whether to pack, and packs. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "codec/pack.h"
#include "deepfreeze/result.h"
#include "format/shard_header.h"

namespace deepfreeze {

// A block of a tensor that does not shrink by 1/16 stays plain, and so do the next ones of that
// tensor, until another one is tried.
inline constexpr std::uint64_t kTriedEvery = 32;

class BlockPacker {
 public:
  // For the file with this header. kUnsupported without libzstd.
  [[nodiscard]] static Result<BlockPacker> make(const ShardHeader& header);

  // The bytes to store for the block, valid until the next call: packed ones, which have been
  // unpacked again and compared with `plain`, or `plain` itself.
  struct Stored {
    std::span<const std::byte> bytes;
    std::uint32_t crc = 0;
  };
  [[nodiscard]] Stored store(std::uint64_t block, std::span<const std::byte> plain,
                             std::uint32_t plain_crc);

 private:
  // Consecutive bytes of the data section: a tensor.
  struct Run {
    std::uint64_t end = 0;
    std::size_t element_bytes = 1;
    std::uint64_t next_try = 0;  // a block
  };

  BlockPacker(Packer packer, Unpacker unpacker, std::vector<Run> runs)
      : packer_(std::move(packer)), unpacker_(std::move(unpacker)), runs_(std::move(runs)) {}
  [[nodiscard]] Run* run_at(std::uint64_t place);

  Packer packer_;
  Unpacker unpacker_;
  std::vector<Run> runs_;
  std::vector<std::byte> back_ = std::vector<std::byte>(kPackBytesMax);
};

}  // namespace deepfreeze
