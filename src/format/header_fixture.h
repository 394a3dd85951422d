// Headers for tests: good ones, and any text with a checksum that fits.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/hex.h"
#include "format/header_text.h"
#include "format/shard_header.h"

namespace deepfreeze {

inline ShardEntry entry(std::string key, Shape shape, std::uint64_t begin, std::uint64_t end) {
  return {.spec = {.key = std::move(key), .dtype = DType::kF32, .shape = std::move(shape)},
          .extent = {.begin = begin, .end = end}};
}

// Two tensors, one of them a part of a whole that stands for complex numbers.
inline ShardHeader small_header() {
  ShardHeader header{.identity = {.run_id = "0123456789abcdef",
                                  .attempt_id = 0x9f2c41d07a3be856,
                                  .generation = 2,
                                  .step = 100,
                                  .save_index = 7,
                                  .part = {.rank = 1, .world_size = 4, .file = 0, .file_count = 1}},
                     .annotations = {.wall_micros = 1'700'000'000'000'000,
                                     .metrics = {{"loss", 0.1}},
                                     .tags = {{"why", "a \"quoted\" reason\n"}},
                                     .environment = {{"torch", "2.13.0"}},
                                     .parent = ParentPoint{.run = "../base", .step = 50}},
                     .tree = R"({"model":{"weight":{"$":"tensor","k":"model.weight"}},"epoch":3})",
                     .entries = {entry("model.weight", {6, 2}, 0, 48), entry("scale", {}, 48, 52)},
                     .data_bytes = 52,
                     .block_crcs = {0xdeadbeef}};
  TensorSpec& spec = header.entries[0].spec;
  spec.logical_dtype = "complex64";
  spec.box = Box{.offset = {8, 0}, .extent = {6, 2}};
  spec.global_shape = {14, 2};
  return header;
}

// `json` begins with the prefix and any eight digits; padding, length and checksum are put right.
inline std::vector<std::byte> sealed_header(std::string json) {
  while ((kLengthBytes + json.size()) % kPageBytes != 0) json.push_back(' ');
  std::vector<std::byte> bytes(kLengthBytes + json.size());
  const std::uint64_t length = json.size();
  std::memcpy(bytes.data(), &length, kLengthBytes);
  std::memcpy(bytes.data() + kLengthBytes, json.data(), json.size());
  std::memcpy(bytes.data() + kCrcOffset, hex32(header_crc(bytes)).data(), kCrcDigits);
  return bytes;
}

// The JSON of an encoded header, without its padding.
inline std::string json_of(const std::vector<std::byte>& bytes) {
  std::string json(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
                   bytes.size() - kLengthBytes);
  json.erase(json.find_last_not_of(' ') + 1);
  return json;
}

// `text` with `from`, which it must contain, replaced by `to`.
inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  return text.replace(text.find(from), from.size(), to);
}

}  // namespace deepfreeze
