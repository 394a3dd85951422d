#include "format/tree_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/try.h"
#include "base/utf8.h"
#include "format/header_text.h"
#include "format/state_tree.h"

namespace deepfreeze {
namespace {

bool is_continuation(char c) {
  constexpr unsigned kContinuation = 0x80;
  constexpr unsigned kContinuationMask = 0xc0;
  return (static_cast<unsigned char>(c) & kContinuationMask) == kContinuation;
}

// The longest beginning of `text` within `bytes_max` that ends between two characters.
std::string_view chunk_of(std::string_view text, std::uint64_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  std::size_t end = bytes_max;
  while (end > 1 && is_continuation(text[end])) --end;
  return text.substr(0, end);
}

constexpr std::size_t kCompareBytes = 1024;  // at a time: memcmp() is much faster than a loop

// Whole characters, if `other` is UTF-8: a character that is cut goes on there.
std::size_t equal_bytes_of_begin(std::string_view one, std::string_view other) {
  const std::size_t bytes = std::min(one.size(), other.size());
  std::size_t at = 0;
  while (bytes - at >= kCompareBytes &&
         std::memcmp(one.data() + at, other.data() + at, kCompareBytes) == 0) {
    at += kCompareBytes;
  }
  while (at < bytes && one[at] == other[at]) ++at;
  while (at > 0 && at < other.size() && is_continuation(other[at])) --at;
  return at;
}

std::size_t equal_bytes_of_end(std::string_view one, std::string_view other) {
  const std::size_t bytes = std::min(one.size(), other.size());
  const auto end_of = [](std::string_view text, std::size_t count) {
    return text.data() + (text.size() - count);
  };
  std::size_t count = 0;
  while (bytes - count >= kCompareBytes &&
         std::memcmp(end_of(one, count + kCompareBytes), end_of(other, count + kCompareBytes),
                     kCompareBytes) == 0) {
    count += kCompareBytes;
  }
  while (count < bytes && *end_of(one, count + 1) == *end_of(other, count + 1)) ++count;
  while (count > 0 && is_continuation(*end_of(one, count))) --count;
  return count;
}

// The length of the text in a header's string. Counted in bytes, of which compilers take many at a
// time.
std::size_t escaped_bytes(std::string_view text) {
  constexpr std::size_t kMoreForControl = 5;  // \u00xx
  constexpr std::size_t kCountMax = 255;
  std::size_t bytes = text.size();
  for (; !text.empty(); text.remove_prefix(std::min(text.size(), kCountMax))) {
    std::uint8_t quoted = 0;
    std::uint8_t controls = 0;
    for (const char c : text.substr(0, kCountMax)) {
      quoted = static_cast<std::uint8_t>(quoted + (c == '"' || c == '\\' ? 1 : 0));
      controls = static_cast<std::uint8_t>(controls + (static_cast<std::uint8_t>(c) < ' ' ? 1 : 0));
    }
    bytes += quoted + controls * kMoreForControl;
  }
  return bytes;
}

std::string member_of(std::string_view text) {
  fmt::memory_buffer out;
  append_metadata_member(out, kTreeKey, text);
  return fmt::to_string(out);
}

Status check(std::string_view tree, std::string_view unknown) {
  if (tree.size() > kTreeBytesMax) return refuse_header("the state tree is too large");
  if (!is_utf8(unknown)) return refuse_header("the state tree is not UTF-8");
  return {};
}

}  // namespace

Result<TreeText> write_tree(std::string tree, std::uint64_t bytes_max) {
  DF_TRY_VOID(check(tree, tree));
  TreeText text;
  for (std::string_view rest = tree; !rest.empty();) {
    const std::string_view chunk = chunk_of(rest, bytes_max);
    text.members.push_back(member_of(chunk));
    rest.remove_prefix(chunk.size());
  }
  text.tree = std::move(tree);
  return text;
}

Result<TreeText> rewrite_tree(std::string tree, const TreeText& last, std::uint64_t bytes_max) {
  if (last.members.size() != 1 || tree.empty() || tree.size() > bytes_max) {
    return write_tree(std::move(tree), bytes_max);
  }
  static const std::size_t kKeyBytes = member_of({}).size() - 1;  // up to the string's first byte
  const std::string_view text = tree;
  const std::size_t head = equal_bytes_of_begin(text, last.tree);
  const std::string_view rest = text.substr(head);
  const std::size_t tail = equal_bytes_of_end(rest, last.tree);  // they may overlap in the last one
  const std::string_view middle = rest.substr(0, rest.size() - tail);
  DF_TRY_VOID(check(tree, middle));

  const std::string_view known = last.members.front();
  const std::size_t kept_begin = kKeyBytes + escaped_bytes(text.substr(0, head));
  const std::size_t kept_end = escaped_bytes(text.substr(text.size() - tail)) + 1;
  fmt::memory_buffer escaped;
  append_header_string(escaped, middle);
  std::string member;
  member.reserve(kept_begin + escaped.size() + kept_end);
  member.append(known.substr(0, kept_begin));
  member.append(escaped.data() + 1, escaped.size() - 2);
  member.append(known.substr(known.size() - kept_end));
  TreeText result{.tree = {}, .members = {std::move(member)}};
  result.tree = std::move(tree);
  return result;
}

}  // namespace deepfreeze
