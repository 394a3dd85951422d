#include "base/secret.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

namespace deepfreeze {
namespace {

// The bytes of a Secret that has ended, short texts included: they lie in the object itself.
class SecretTest : public testing::Test {
 protected:
  [[nodiscard]] bool holds(std::string_view text) const {
    return std::ranges::search(memory_, text).begin() != memory_.end();
  }
  alignas(Secret) std::array<char, sizeof(Secret)> memory_{};
};

TEST_F(SecretTest, AShortOneIsClearedWhereItLay) {
  auto* secret = std::construct_at(reinterpret_cast<Secret*>(memory_.data()), "open sesame");
  EXPECT_TRUE(holds("open sesame"));
  std::destroy_at(secret);
  EXPECT_FALSE(holds("sesame"));
}

TEST_F(SecretTest, AMoveLeavesNothingBehind) {
  auto* from = std::construct_at(reinterpret_cast<Secret*>(memory_.data()), "open sesame");
  const Secret to = std::move(*from);
  EXPECT_EQ(to, "open sesame");
  EXPECT_FALSE(holds("sesame"));
  std::destroy_at(from);
}

TEST_F(SecretTest, AStringThatIsMovedInIsCleared) {
  auto* text = std::construct_at(reinterpret_cast<std::string*>(memory_.data()), "open sesame");
  const Secret secret = std::move(*text);
  EXPECT_EQ(secret.text(), "open sesame");
  EXPECT_FALSE(holds("sesame"));
  std::destroy_at(text);
}

TEST(Secret, WipeClearsAllThatTheTextEverHeld) {
  std::string text(100, 's');
  const char* bytes = text.data();
  text.resize(3);
  wipe(text);
  EXPECT_TRUE(text.empty());
  EXPECT_EQ(std::count(bytes, bytes + 100, 's'), 0);  // its capacity is still there
}

TEST(Secret, AssignmentReplacesALongOneByAShortOne) {
  Secret secret = std::string(100, 's');
  const char* bytes = secret.text().data();
  secret = "short";
  EXPECT_EQ(secret, "short");
  ASSERT_EQ(secret.text().data(), bytes);  // so nothing of the long one may lie behind it
  EXPECT_EQ(std::count(bytes + 5, bytes + 100, 's'), 0);
  Secret copy = secret;
  copy = std::string(50, 'c');
  EXPECT_EQ(secret, "short");
  EXPECT_FALSE(secret == copy);
  EXPECT_TRUE(Secret().empty());
}

}  // namespace
}  // namespace deepfreeze
