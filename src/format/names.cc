#include "format/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/hex.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kNameBytesMax = 128;
constexpr std::string_view kSealedSuffix = ".safetensors";

// Cuts a name into its parts, from the front. Accepts leading zeros: the callers format the parsed
// parts again and compare them with the text.
class NameCutter {
 public:
  explicit NameCutter(std::string_view text) : rest_(text) {}

  NameCutter& literal(std::string_view text) {
    good_ = good_ && rest_.starts_with(text);
    if (good_) rest_.remove_prefix(text.size());
    return *this;
  }

  template <class T>
  NameCutter& decimal(T& value) {
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    good_ = good_ && error == std::errc{};
    if (good_) rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return *this;
  }

  NameCutter& hex(std::uint64_t& value) {
    const auto parsed = parse_hex64(rest_.substr(0, 16));
    good_ = good_ && parsed;
    if (good_) {
      value = *parsed;
      rest_.remove_prefix(16);
    }
    return *this;
  }

  [[nodiscard]] bool done() const { return good_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool good_ = true;
};

std::string part_stem(const PartName& name) {
  return fmt::format("rank-{:05}-of-{:05}-{}-of-{}", name.rank, name.world_size, name.file,
                     name.file_count);
}

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

}  // namespace

std::string attempt_dir_name(const AttemptName& name) {
  return fmt::format("step-{:012}-{:016x}", name.step, name.attempt_id);
}

std::optional<AttemptName> parse_attempt_dir_name(std::string_view text) {
  AttemptName name;
  NameCutter cutter(text);
  cutter.literal("step-").decimal(name.step).literal("-").hex(name.attempt_id);
  if (!cutter.done() || attempt_dir_name(name) != text) return std::nullopt;
  return name;
}

std::string sealed_file_name(const PartName& name) { return part_stem(name).append(kSealedSuffix); }
std::string part_file_name(const PartName& name) { return part_stem(name) + ".part"; }
std::string failed_file_name(const PartName& name) { return part_stem(name) + ".failed"; }

std::optional<PartName> parse_sealed_file_name(std::string_view text) {
  PartName name;
  NameCutter cutter(text);
  cutter.literal("rank-").decimal(name.rank).literal("-of-").decimal(name.world_size);
  cutter.literal("-").decimal(name.file).literal("-of-").decimal(name.file_count);
  if (!cutter.literal(kSealedSuffix).done() || sealed_file_name(name) != text) return std::nullopt;
  if (name.rank >= name.world_size || name.file >= name.file_count) return std::nullopt;
  return name;
}

std::string parity_file_name(std::uint64_t node, std::uint64_t nodes) {
  return fmt::format("parity-{:05}-of-{:05}{}", node, nodes, kSealedSuffix);
}

std::optional<std::uint64_t> parity_file_node(std::string_view text) {
  std::uint64_t node = 0;
  std::uint64_t nodes = 0;
  NameCutter cutter(text);
  cutter.literal("parity-").decimal(node).literal("-of-").decimal(nodes).literal(kSealedSuffix);
  const bool is_name = cutter.done() && parity_file_name(node, nodes) == text && node < nodes;
  return is_name ? std::optional(node) : std::nullopt;
}

bool is_parity_file_name(std::string_view text) { return parity_file_node(text).has_value(); }

std::string unfinished_parity_name(std::uint64_t nonce) {
  return fmt::format("parity.{}.tmp", hex64(nonce));
}

bool is_unfinished_parity_name(std::string_view text) {
  return text.starts_with("parity.") && text.ends_with(".tmp");
}

std::string generation_file_name(std::uint64_t generation) {
  return fmt::format("generation-{:08}.json", generation);
}

std::optional<std::uint64_t> parse_generation_file_name(std::string_view text) {
  std::uint64_t generation = 0;
  NameCutter cutter(text);
  cutter.literal("generation-").decimal(generation).literal(".json");
  if (!cutter.done() || generation_file_name(generation) != text) return std::nullopt;
  return generation;
}

std::string void_claim_name(std::uint64_t generation, std::uint64_t nonce) {
  return fmt::format("generation-{:08}.void-{}.json", generation, hex64(nonce));
}

bool is_safe_name(std::string_view text) {
  if (text.empty() || text.size() > kNameBytesMax) return false;
  return text != "." && text != ".." && std::ranges::all_of(text, is_name_byte);
}

}  // namespace deepfreeze
