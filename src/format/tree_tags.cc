#include "format/tree_tags.h"

#include <algorithm>

#include "deepfreeze/tensor.h"
#include "format/base64.h"

namespace deepfreeze {
namespace {

using enum Content;

constexpr Tag kTags[] = {
    {"int", {{{"v", kDecimal}}}},
    {"float", {{{"v", kSpecial}}}},
    {"bytes", {{{"v", kBase64}}}},
    {"tuple", {{{"v", kNodes}}}},
    {"set", {{{"v", kNodes}}}},
    {"frozenset", {{{"v", kNodes}}}},
    {"dict", {{{"v", kPairs}}}},
    {"odict", {{{"v", kPairs}}}},
    {"counter", {{{"v", kPairs}}}},
    {"defaultdict", {{{"v", kPairs}, {"f", kFactory}}}},
    {"complex", {{{"re", kFloat}, {"im", kFloat}}}},
    {"np", {{{"d", kText}, {"v", kBase64}}}},
    {"size", {{{"v", kWholes}}}},
    {"dtype", {{{"v", kText}}}},
    {"device", {{{"v", kText}}}},
    {"tensor", {{{"k", kKey}}}},
    {"array", {{{"k", kKey}}}},
    {"blob", {{{"k", kKey}}}},
    {"object", {{{"t", kText}, {"v", kNode}}}},
    {"ext", {{{"t", kText}, {"v", kNode}}}},
};

constexpr std::string_view kSpecials[] = {"nan", "inf", "-inf"};
constexpr std::string_view kFactories[] = {"int", "list", "dict", "float", "set", "str", "none"};

bool is_decimal(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

const Tag* find_tag(std::string_view name) {
  const auto* found = std::ranges::find(kTags, name, &Tag::name);
  return found == std::end(kTags) ? nullptr : found;
}

bool text_fits(Content content, std::string_view text) {
  switch (content) {
    case kDecimal:
      return is_decimal(text);
    case kSpecial:
      return std::ranges::find(kSpecials, text) != std::end(kSpecials);
    case kFactory:
      return std::ranges::find(kFactories, text) != std::end(kFactories);
    case kBase64:
      return decode_base64(text).has_value();
    case kKey:
      return !text.empty() && text.size() <= kKeyBytesMax;
    default:
      return true;
  }
}

}  // namespace deepfreeze
