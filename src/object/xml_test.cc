#include "object/xml.h"

#include <gtest/gtest.h>

#include "support/code_of.h"

namespace deepfreeze {
namespace {

TEST(Xml, GivesTheTextsOfNamedElements) {
  const auto root = parse_xml(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n  <Error xmlns='http://s3'><Code>Slow&amp;"
      "Down</Code><Inner><Key>a</Key><Key>b&lt;&#228;</Key></Inner><Empty/></Error>");
  ASSERT_TRUE(root) << root.error().message();
  EXPECT_EQ(root->name, "Error");
  EXPECT_EQ(root->text_of("Code"), "Slow&Down");
  EXPECT_EQ(root->text_of("Empty"), "");
  EXPECT_EQ(root->text_of("None"), "");
  EXPECT_EQ(root->child("None"), nullptr);
  const XmlElement* inner = root->child("Inner");
  ASSERT_NE(inner, nullptr);
  ASSERT_EQ(inner->children.size(), 2U);
  EXPECT_EQ(inner->text_of("Key"), "a");
  EXPECT_EQ(inner->children[1].text, "b<\xc3\xa4");
}

// As a Complete that takes long.
TEST(Xml, SpaceBeforeTheRootIsNoError) { EXPECT_TRUE(parse_xml("   \n\n  <a>1</a>\n")); }

TEST(Xml, RefusesTextThatIsNone) {
  for (const char* text :
       {"", " ", "no", "<a>", "<a></b>", "<a/><b/>", "<a>\xff</a>", "<a>&b;</a>"}) {
    EXPECT_EQ(code_of(parse_xml(text)), ErrorCode::kCorrupt) << text;
  }
}

TEST(Xml, RefusesDocumentTypesAndWithThemEntities) {
  for (const char* type : {"<!DOCTYPE a>", "<!DOCTYPE a [<!ENTITY b 'bbbb'>]>",
                           "<!DOCTYPE a SYSTEM 'file:///etc/passwd'>"}) {
    const auto root = parse_xml(std::string(type) + "<a>1</a>");
    EXPECT_EQ(code_of(root), ErrorCode::kCorrupt) << type;
    if (root) continue;
    EXPECT_NE(root.error().message().find("document type"), std::string::npos) << type;
  }
}

std::string nested(std::size_t depth) {
  std::string text;
  for (std::size_t i = 0; i < depth; ++i) text += "<a>";
  for (std::size_t i = 0; i < depth; ++i) text += "</a>";
  return text;
}

std::string flat(std::size_t elements) {
  std::string text = "<a>";
  for (std::size_t i = 1; i < elements; ++i) text += "<b/>";
  return text + "</a>";
}

TEST(Xml, HasBounds) {
  EXPECT_TRUE(parse_xml(nested(kXmlDepthMax)));
  EXPECT_EQ(code_of(parse_xml(nested(kXmlDepthMax + 1))), ErrorCode::kCorrupt);
  EXPECT_TRUE(parse_xml(flat(kXmlElementsMax)));
  EXPECT_EQ(code_of(parse_xml(flat(kXmlElementsMax + 1))), ErrorCode::kCorrupt);
  const std::string text(kXmlBytesMax - 7, 'x');
  EXPECT_TRUE(parse_xml("<a>" + text + "</a>"));
  EXPECT_EQ(code_of(parse_xml("<a>" + text + "x</a>")), ErrorCode::kCorrupt);
}

TEST(Xml, EscapedTextIsReadBackAsItWas) {
  const std::string text = "\"a\" <b> & 'c'";
  const auto root = parse_xml("<a>" + xml_escaped(text) + "</a>");
  ASSERT_TRUE(root);
  EXPECT_EQ(root->text, text);
}

}  // namespace
}  // namespace deepfreeze
