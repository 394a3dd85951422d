#include "storage/vfs_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/try.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kShownBytesMax = 200;

// Not isalnum: that depends on the locale.
bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

bool is_component(std::string_view part) {
  return !part.empty() && part.size() <= kNameComponentBytesMax && part != "." && part != ".." &&
         std::ranges::all_of(part, is_name_byte);
}

bool is_vfs_name(std::string_view name) {
  while (true) {
    const std::size_t slash = name.find('/');
    if (!is_component(name.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

// Refused names may hold anything, and messages end up on terminals.
std::string shown(std::string_view name) {
  std::string text(name.substr(0, kShownBytesMax));
  std::ranges::replace_if(text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

}  // namespace

Status check_vfs_name(std::string_view operation, std::string_view name) {
  if (is_vfs_name(name)) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} '{}': not a safe relative name", operation, shown(name)));
}

SplitName split_vfs_name(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  if (slash == std::string_view::npos) return {.parent = {}, .leaf = name};
  return {.parent = name.substr(0, slash), .leaf = name.substr(slash + 1)};
}

}  // namespace deepfreeze
