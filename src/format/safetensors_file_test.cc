// A whole file, as any safetensors reader opens it: layout, header, data, block checksums.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "codec/crc32c.h"
#include "format/header_fixture.h"
#include "format/layout.h"

namespace deepfreeze {
namespace {

std::vector<TensorSpec> every_kind_of_tensor() {
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 15; ++i) {
    const auto dtype = static_cast<DType>(i);
    specs.push_back(
        {.key = fmt::format("dtype.{}", dtype_name(dtype)), .dtype = dtype, .shape = {3, 5}});
  }
  specs.push_back({.key = "scalar", .dtype = DType::kF64});
  specs.push_back({.key = "empty", .dtype = DType::kF32, .shape = {0, 7}});
  specs.push_back({.key = "large", .dtype = DType::kU8, .shape = {2 * kBlockBytes + 1}});
  specs.push_back({.key = "pages", .dtype = DType::kI64, .shape = {1024}});
  specs.push_back({.key = "nasty \"\\\n\x01 é🧊", .dtype = DType::kI16, .shape = {2}});
  specs.push_back(
      {.key = "complex", .dtype = DType::kF32, .shape = {2, 2}, .logical_dtype = "complex64"});
  return specs;
}

// Every byte depends on its place; below 2, so that it is a valid BOOL too.
std::vector<std::byte> data_of(std::uint64_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i / 3 % 2);
  return data;
}

std::vector<std::uint32_t> block_crcs_of(std::span<const std::byte> data) {
  std::vector<std::uint32_t> crcs;
  for (; !data.empty(); data = data.subspan(std::min<std::size_t>(data.size(), kBlockBytes))) {
    crcs.push_back(crc32c(data.first(std::min<std::size_t>(data.size(), kBlockBytes))));
  }
  return crcs;
}

ShardHeader header_of(const std::vector<TensorSpec>& specs, const Layout& layout) {
  ShardHeader header{.identity = small_header().identity,
                     .annotations = small_header().annotations,
                     .tree = R"({"w":{"$":"tensor","k":"large"}})",
                     .data_bytes = layout.data_bytes,
                     .block_crcs = block_crcs_of(data_of(layout.data_bytes))};
  for (const std::size_t i : layout.order) header.entries.push_back({specs[i], layout.extents[i]});
  return header;
}

void append(std::string& file, std::span<const std::byte> bytes) {
  file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(SafetensorsFile, IsReadBackFromWhatWasWritten) {
  const auto specs = every_kind_of_tensor();
  const auto layout = lay_out(specs);
  ASSERT_TRUE(layout.has_value());
  const ShardHeader header = header_of(specs, *layout);
  const auto encoded = encode_header(header);
  ASSERT_TRUE(encoded.has_value()) << encoded.error().message();
  std::string written;
  append(written, encoded->bytes);
  append(written, data_of(layout->data_bytes));
  const std::string path = testing::TempDir() + "/every_kind.safetensors";
  std::ofstream(path, std::ios::binary) << written;

  const std::string read = read_file(path);
  const auto bytes = std::as_bytes(std::span(read));
  const auto header_bytes = header_size(bytes.first(8), bytes.size());
  ASSERT_EQ(header_bytes, encoded->bytes.size());
  std::uint32_t crc = 0;
  const auto decoded = decode_header(bytes.first(*header_bytes), bytes.size(), crc);
  ASSERT_TRUE(decoded.has_value()) << decoded.error().message();
  EXPECT_EQ(*decoded, header);
  EXPECT_EQ(block_crcs_of(bytes.subspan(*header_bytes)), decoded->block_crcs);
}

}  // namespace
}  // namespace deepfreeze
