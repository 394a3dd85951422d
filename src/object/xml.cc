#include "object/xml.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/try.h"
#include "object/expat_library.h"

namespace deepfreeze {
namespace {

class XmlReader {
 public:
  explicit XmlReader(const expat::Library& library)
      : library_(library), parser_(library.make_parser(nullptr), library.free_parser) {}

  [[nodiscard]] Result<XmlElement> read(std::string_view text);

 private:
  [[nodiscard]] static XmlReader& of(void* user) { return *static_cast<XmlReader*>(user); }
  void start(const char* name);
  void end();
  void refuse(std::string_view why) {
    refusal_ = why;
    std::ignore = library_.stop(parser_.get(), 0);
  }

  const expat::Library& library_;
  const std::unique_ptr<expat::Parser, void (*)(expat::Parser*)> parser_;
  XmlElement root_;
  std::vector<XmlElement> open_;  // each is a child of the one before it
  std::size_t elements_ = 0;
  std::string refusal_;
};

void XmlReader::start(const char* name) {
  if (open_.size() == kXmlDepthMax) return refuse("its elements are nested too deep");
  if (++elements_ > kXmlElementsMax) return refuse("it has too many elements");
  open_.push_back({.name = name, .text = {}, .children = {}});
}

void XmlReader::end() {
  XmlElement closed = std::move(open_.back());
  open_.pop_back();
  (open_.empty() ? root_ : open_.back().children.emplace_back()) = std::move(closed);
}

Result<XmlElement> XmlReader::read(std::string_view text) {
  if (parser_ == nullptr) return fail(ErrorCode::kIo, "read XML: no memory");
  expat::Parser* const parser = parser_.get();
  library_.set_user(parser, this);
  library_.set_elements(
      parser,
      [](void* user, const char* name, const char** /*attributes*/) { of(user).start(name); },
      [](void* user, const char* /*name*/) { of(user).end(); });
  library_.set_character_data(parser, [](void* user, const char* data, int bytes) {
    of(user).open_.back().text.append(data, static_cast<std::size_t>(bytes));
  });
  library_.set_doctype(parser, [](void* user, const char*, const char*, const char*, int) {
    of(user).refuse("it has a document type");
  });
  if (library_.parse(parser, text.data(), static_cast<int>(text.size()), 1) == expat::kOk) {
    return std::move(root_);
  }
  if (refusal_.empty()) refusal_ = library_.error_text(library_.error(parser));
  return fail(ErrorCode::kCorrupt, fmt::format("the answer is no XML of S3: {}", refusal_));
}

}  // namespace

const XmlElement* XmlElement::child(std::string_view wanted) const {
  const auto found = std::ranges::find(children, wanted, &XmlElement::name);
  return found == children.end() ? nullptr : &*found;
}

std::string_view XmlElement::text_of(std::string_view wanted) const {
  const XmlElement* found = child(wanted);
  return found == nullptr ? std::string_view() : found->text;
}

Status check_xml_library() {
  DF_TRY_VOID(expat::library());
  return {};
}

Result<XmlElement> parse_xml(std::string_view text) {
  DF_TRY(const expat::Library* library, expat::library());
  if (text.size() > kXmlBytesMax) {
    return fail(ErrorCode::kCorrupt, fmt::format("the answer has {} bytes of XML", text.size()));
  }
  return XmlReader(*library).read(text);
}

std::string xml_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

}  // namespace deepfreeze
