// Lossless packing of one block: its byte planes (all first bytes of its elements, all second ones,
// …), each as it is, as one value, or with shorter codes for frequent values (Huffman's, by
// libzstd). Weights and moments differ little in sign and exponent: these planes shrink, those of
// the mantissas are noise.
//
// A packed block, little-endian: u8 log2 of the element's bytes; for each plane u8 kind, and
//   0: the plane
//   1: u8 its only value
//   2: u16 size, a zstd frame of that size
// then the bytes that are no whole element. Nothing may follow.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "deepfreeze/result.h"

namespace deepfreeze {

inline constexpr std::size_t kPackBytesMax = 64 * 1024;

// One thread at a time.
class Packer {
 public:
  // kUnsupported without libzstd; kNoSpace.
  [[nodiscard]] static Result<Packer> make();
  Packer(Packer&& other) noexcept;
  Packer& operator=(Packer&& other) noexcept;
  ~Packer();

  // Packs up to kPackBytesMax bytes, elements of 1, 2, 4 or 8 bytes, and returns the packed bytes,
  // which lie in the packer until the next call. Empty if they would be no fewer.
  [[nodiscard]] std::span<const std::byte> pack(std::span<const std::byte> plain,
                                                std::size_t element_bytes);

 private:
  struct Impl;
  explicit Packer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// One thread at a time.
class Unpacker {
 public:
  [[nodiscard]] static Result<Unpacker> make();
  Unpacker(Unpacker&& other) noexcept;
  Unpacker& operator=(Unpacker&& other) noexcept;
  ~Unpacker();

  // Any bytes: kCorrupt if they are not the packed form of exactly as many as `plain` has, at most
  // kPackBytesMax. `plain` is undefined then.
  [[nodiscard]] Status unpack(std::span<const std::byte> packed, std::span<std::byte> plain);

 private:
  struct Impl;
  explicit Unpacker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace deepfreeze
