// Data files for tests, plain and packed.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "codec/crc32c.h"
#include "format/block_crcs.h"
#include "format/header_fixture.h"
#include "packed/block_packer.h"
#include "packed/packed_stream.h"

namespace deepfreeze {

struct DataFile {
  ShardHeader header;
  std::vector<std::byte> header_bytes;
  std::vector<std::byte> data;

  [[nodiscard]] PackedLead lead() const { return {header_bytes.size(), data.size()}; }
  [[nodiscard]] std::vector<std::byte> plain() const {
    std::vector<std::byte> bytes = header_bytes;
    bytes.insert(bytes.end(), data.begin(), data.end());
    return bytes;
  }
};

// Floats that differ little in sign and exponent, with arithmetic alone: the same on all machines.
inline std::vector<std::byte> like_weights(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(4 * count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto mantissa = static_cast<std::uint32_t>(random() & 0x7fffffU);
    const auto exponent = static_cast<std::uint32_t>(118 + random() % 3);
    const std::uint32_t value = mantissa | (exponent << 23U);
    std::memcpy(bytes.data() + 4 * i, &value, 4);
  }
  return bytes;
}

struct MixedBytes {
  std::size_t weights = 0;
  std::size_t noise = 0;
  std::size_t zeros = 0;
};

// Weights, then noise, then zeros, then bytes that are mostly 0.
inline DataFile mixed_file(const MixedBytes& sizes) {
  constexpr std::uint64_t kSeed = 5;
  DataFile file{.header = {.identity = small_header().identity}, .header_bytes = {}, .data = {}};
  std::mt19937_64 random(kSeed);
  const auto add = [&](const std::string& key, DType dtype, const std::vector<std::byte>& bytes) {
    const std::uint64_t begin = file.data.size();
    file.data.insert(file.data.end(), bytes.begin(), bytes.end());
    const auto count = static_cast<std::int64_t>(bytes.size() / dtype_bytes(dtype));
    file.header.entries.push_back(
        {.spec = {.key = key, .dtype = dtype, .shape = {static_cast<std::uint64_t>(count)}},
         .extent = {begin, file.data.size()}});
  };
  add("weights", DType::kF32, like_weights(sizes.weights / 4, kSeed));
  std::vector<std::byte> noise(sizes.noise);
  std::ranges::generate(noise, [&] { return static_cast<std::byte>(random()); });
  add("noise", DType::kF32, noise);
  add("zeros", DType::kF64, std::vector<std::byte>(sizes.zeros));
  std::vector<std::byte> rare(1'001);
  std::ranges::generate(rare, [&] { return static_cast<std::byte>(random() % 20 == 0); });
  add("rare", DType::kU8, rare);
  file.header.data_bytes = file.data.size();
  for (std::size_t at = 0; at < file.data.size(); at += kBlockBytes) {
    const auto block = std::span(file.data).subspan(at);
    file.header.block_crcs.push_back(crc32c(block.first(std::min(block.size(), kBlockBytes))));
  }
  file.header_bytes = encode_header(file.header).value().bytes;
  return file;
}

// Blocks of each kind, and a part of one.
inline DataFile mixed_file(std::size_t blocks) {
  const std::size_t bytes = blocks * kBlockBytes;
  return mixed_file(MixedBytes{.weights = bytes, .noise = bytes, .zeros = bytes});
}

// As a flush writes it, a slab at a time.
inline std::vector<std::byte> packed_bytes_of(const DataFile& file) {
  PackedStream stream(file.lead());
  std::vector<std::byte> all;
  const auto put = [&](std::span<const std::byte> bytes) {
    all.insert(all.end(), bytes.begin(), bytes.end());
  };
  std::vector<std::byte> page(kPackedLeadBytes);
  put(stream.lead(page).bytes);
  put(file.header_bytes);
  stream.pass_header(crc32c(file.header_bytes));
  BlockPacker packer = BlockPacker::make(file.header).value();
  std::vector<std::byte> chunk(kPackedChunkBytes);
  for (std::uint64_t begin = 0; begin < file.data.size(); begin += kSlabBytes) {
    stream.begin_chunk(chunk);
    const auto slab = std::span(file.data).subspan(begin);
    for (std::uint64_t at = 0; at < std::min<std::uint64_t>(slab.size(), kSlabBytes);
         at += kBlockBytes) {
      const auto block = slab.subspan(at, std::min<std::uint64_t>(kBlockBytes, slab.size() - at));
      const auto stored = packer.store((begin + at) / kBlockBytes, block, crc32c(block));
      stream.add_block(stored.bytes, stored.crc);
    }
    put(stream.end_chunk().value().bytes);
  }
  const std::uint32_t plain_crc =
      crc32c_combine(crc32c(file.header_bytes), crc32c(file.data), file.data.size());
  const auto last = stream.last(plain_crc).value();
  put(last.piece.bytes);
  return all;
}

// The file with these bytes.
inline DataFile data_file_of(std::span<const std::byte> plain) {
  const std::uint64_t size = header_size(plain.first(8), plain.size()).value();
  DataFile file{.header = {}, .header_bytes = {}, .data = {}};
  file.header_bytes.assign(plain.begin(), plain.begin() + static_cast<std::ptrdiff_t>(size));
  file.data.assign(plain.begin() + static_cast<std::ptrdiff_t>(size), plain.end());
  std::uint32_t crc = 0;
  file.header = decode_header(file.header_bytes, plain.size(), crc).value();
  return file;
}

inline std::string as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace deepfreeze
