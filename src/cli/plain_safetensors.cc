#include "cli/plain_safetensors.h"

#include <array>

#include "base/checked_math.h"
#include "base/try.h"
#include "json/json_writer.h"

namespace deepfreeze {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::size_t kLengthBytes = 8;

std::string little_endian(std::uint64_t value) {
  std::string bytes;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    bytes += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
  }
  return bytes;
}

}  // namespace

Result<std::string> plain_safetensors_header(std::span<const TensorSpec> specs,
                                             const Layout& layout) {
  // Loaders of the transformers family refuse a file that names no framework.
  JsonWriter json;
  json.begin_object();
  json.members(kMetadataKey, json_object("format", "pt"));
  for (const std::size_t index : layout.order) {
    if (specs[index].key == kMetadataKey) {
      return fail(ErrorCode::kInvalidArgument, "a tensor can't be named __metadata__");
    }
    const Extent& extent = layout.extents[index];
    json.members(specs[index].key,
                 json_object("dtype", dtype_name(specs[index].dtype), "shape", specs[index].shape,
                             "data_offsets", std::array{extent.begin, extent.end}));
  }
  json.end_object();
  std::string text = json.text();
  text.resize(round_up(kLengthBytes + text.size(), kPageBytes) - kLengthBytes, ' ');
  if (text.size() + kLengthBytes > kHeaderBytesMax) {
    return fail(ErrorCode::kInvalidArgument,
                "too many tensors for one safetensors file: choose some");
  }
  return little_endian(text.size()) + text;
}

}  // namespace deepfreeze
