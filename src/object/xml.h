// The small XML of S3: elements of an answer, and text for a request. Pure, any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "deepfreeze/result.h"

namespace deepfreeze {

// A page of a listing has a thousand keys, of a dozen elements each.
inline constexpr std::size_t kXmlBytesMax = 8U << 20U;
inline constexpr std::size_t kXmlElementsMax = 100'000;
inline constexpr std::size_t kXmlDepthMax = 16;

struct XmlElement {
  std::string name;
  std::string text;  // its own, without that of its children
  std::vector<XmlElement> children;

  // The first child of that name; null if there is none.
  [[nodiscard]] const XmlElement* child(std::string_view wanted) const;
  // The text of that child; empty if there is none.
  [[nodiscard]] std::string_view text_of(std::string_view wanted) const;
};

// kUnsupported on a machine without Expat.
[[nodiscard]] Status check_xml_library();

// The root element, by Expat. kCorrupt if the text is no XML, is beyond the bounds or has a
// document type, which could declare entities. kUnsupported on a machine without Expat.
[[nodiscard]] Result<XmlElement> parse_xml(std::string_view text);

// As the text of an element.
[[nodiscard]] std::string xml_escaped(std::string_view text);

}  // namespace deepfreeze
