#include "format/state_tree.h"

#include <fmt/format.h>

#include <utility>

#include "base/hex.h"
#include "base/try.h"
#include "base/utf8.h"
#include "codec/crc32c.h"
#include "format/tree_memo.h"
#include "format/tree_walker.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kShownBytesMax = 200;    // of a string
constexpr std::size_t kShownHexBytesMax = 32;  // of bytes

template <class... Arguments>
Status walk(std::string_view tree, Arguments&&... arguments) {
  if (tree.size() > kTreeBytesMax) {
    return fail(ErrorCode::kCorrupt, fmt::format("state tree: {} bytes are too many", tree.size()));
  }
  const Status walked = TreeWalker(tree, std::forward<Arguments>(arguments)...).walk();
  if (!walked) return std::unexpected(walked.error().within("state tree"));
  return {};
}

std::string crc_text(std::string_view text) {
  return hex32(crc32c(std::as_bytes(std::span(text))));
}

}  // namespace

Status check_tree(std::string_view tree) { return walk(tree, nullptr, nullptr); }

Status check_tree(std::string_view tree, TreeMemo& memo) {
  memo.begin(tree);
  DF_TRY_VOID(walk(tree, memo));
  memo.end();
  return {};
}

Result<std::vector<TreeLeaf>> walk_tree(std::string_view tree, std::vector<TreeObject>* objects) {
  std::vector<TreeLeaf> leaves;
  DF_TRY_VOID(walk(tree, &leaves, objects));
  return leaves;
}

void append_component(std::string& path, std::string_view component) {
  if (!path.empty()) path.push_back('.');
  bool part_is_empty = true;
  for (const char c : component) {
    if (c == '.' && part_is_empty) path.push_back('%');
    part_is_empty = c == '.';
    if (c == '%') {
      path.append("%25");
    } else if (c == '~') {
      path.append("%7E");
    } else {
      path.push_back(c);
    }
  }
  if (part_is_empty) path.push_back('%');
}

std::string shorten(std::string_view text) {
  if (text.size() <= kShownBytesMax) return std::string(text);
  std::string_view shown;
  while (shown.size() < kShownBytesMax / 2) {
    const std::string_view rest = text.substr(shown.size());
    shown = text.substr(0, shown.size() + std::max<std::size_t>(1, utf8_sequence_bytes(rest)));
  }
  return fmt::format("{}... ({} bytes, crc32c {})", shown, text.size(), crc_text(text));
}

std::string describe_bytes(std::string_view bytes) {
  if (bytes.size() > kShownHexBytesMax) {
    return fmt::format("{} bytes, crc32c {}", bytes.size(), crc_text(bytes));
  }
  std::string text = "0x";
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

}  // namespace deepfreeze
