// The tags of the state tree and the members that each requires. docs/format.md describes them.
// Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace deepfreeze {

// The kind of content that a member of a tagged object has.
enum class Content : std::uint8_t {
  kText,     // a string
  kDecimal,  // a whole number of any size, as a string
  kSpecial,  // "nan", "inf" or "-inf"
  kFactory,  // the name of a defaultdict's factory
  kBase64,
  kKey,     // of an entry of the data section
  kWholes,  // an array of whole numbers
  kFloat,   // a float's node
  kNode,
  kNodes,  // an array of nodes
  kPairs,  // an array of [node, node]
};

struct TagMember {
  std::string_view name;
  Content content = Content::kText;
};

struct Tag {
  std::string_view name;
  std::array<TagMember, 2> members;  // all required; the second's name may be empty
};

// Null for an unknown tag.
[[nodiscard]] const Tag* find_tag(std::string_view name);

// Whether a string says what `content` demands of it.
[[nodiscard]] bool text_fits(Content content, std::string_view text);

}  // namespace deepfreeze
