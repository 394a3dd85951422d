#include "base/shortened.h"

#include <gtest/gtest.h>

#include "deepfreeze/result.h"

namespace deepfreeze {
namespace {

TEST(Shortened, WhatIsShortStaysAsItIs) {
  const std::string text = "open /data/run:  no such\tfile " + std::string(200, 'x');
  EXPECT_EQ(shortened(text), text);
  const std::string longer = text + " " + text + "\n";
  EXPECT_EQ(shortened(longer), longer);
  EXPECT_EQ(shortened(""), "");
}

TEST(Shortened, ALongNameKeepsItsEnds) {
  const std::string text = "tensor a" + std::string(100'000, 'x') + "z: its size is wrong";
  const std::string shown = shortened(text);
  EXPECT_LT(shown.size(), 400U);
  EXPECT_TRUE(shown.starts_with("tensor axxx")) << shown;
  EXPECT_TRUE(shown.ends_with("xxxz: its size is wrong")) << shown;
  EXPECT_TRUE(shown.contains("...(99803 bytes left out)...")) << shown;
}

TEST(Shortened, ALongNameWithSpacesIsCutAsAWhole) {
  std::string text = "tensor";
  while (text.size() < 100'000) text += " word";
  EXPECT_LE(shortened(text).size(), kTextBytesMax);
}

TEST(Shortened, NoCharacterIsCut) {
  for (std::size_t shift = 0; shift < 3; ++shift) {
    std::string text(shift, 'x');
    while (text.size() < 1000) text += "\xe2\x82\xac";  // the euro sign
    const std::string shown = shortened(text);
    const std::size_t cut = shown.find("...(");
    EXPECT_EQ((cut - shift) % 3, 0U) << shown;
    EXPECT_EQ(shown.at(shown.find(")...") + 4), '\xe2') << shown;
  }
}

TEST(Shortened, EveryErrorIs) {
  const Error error(ErrorCode::kMismatch, std::string(100'000, 'k'));
  EXPECT_LT(error.message().size(), 400U);
  EXPECT_LT(error.within(std::string(100'000, 'c')).message().size(), 800U);
}

}  // namespace
}  // namespace deepfreeze
