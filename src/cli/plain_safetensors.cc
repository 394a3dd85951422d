#include "cli/plain_safetensors.h"

#include <nlohmann/json.hpp>

#include "base/checked_math.h"
#include "base/try.h"

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

// One member of the header's object, with the comma before it.
std::string entry_text(const TensorSpec& spec, const Extent& extent) {
  constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
  const nlohmann::ordered_json entry{{"dtype", dtype_name(spec.dtype)},
                                     {"shape", spec.shape},
                                     {"data_offsets", {extent.begin, extent.end}}};
  const std::string name = nlohmann::json(spec.key).dump(-1, ' ', false, kReplace);
  return "," + name + ":" + entry.dump();
}

}  // namespace

Result<std::string> plain_safetensors_header(std::span<const TensorSpec> specs,
                                             const Layout& layout) {
  // Loaders of the transformers family refuse a file that names no framework.
  std::string text = R"({"__metadata__":{"format":"pt"})";
  for (const std::size_t index : layout.order) {
    if (specs[index].key == kMetadataKey) {
      return fail(ErrorCode::kInvalidArgument, "a tensor can't be named __metadata__");
    }
    text += entry_text(specs[index], layout.extents[index]);
  }
  text += '}';
  text.resize(round_up(kLengthBytes + text.size(), kPageBytes) - kLengthBytes, ' ');
  if (text.size() + kLengthBytes > kHeaderBytesMax) {
    return fail(ErrorCode::kInvalidArgument,
                "too many tensors for one safetensors file: choose some");
  }
  return little_endian(text.size()) + text;
}

}  // namespace deepfreeze
