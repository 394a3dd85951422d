#include "nodes/letter_box.h"

#include <chrono>
#include <thread>

#include "link/link_fixture.h"
#include "support/code_of.h"

namespace deepfreeze::letter_box_test {
namespace {

using link_test::kLong;
using std::chrono::milliseconds;

class LetterBoxTest : public link_test::LinkTest {
 protected:
  LetterBoxTest() : endpoint_(node_.start({})) {}

  link_test::Node node_{0};
  std::unique_ptr<Endpoint> endpoint_;
};

TEST_F(LetterBoxTest, GivesLettersInTheirOrder) {
  LetterBox box(*endpoint_);
  box.take(3, LinkAsk{{1, 2}});
  box.note({.rank = 4});
  const Letter first = box.take(kLong).value();
  EXPECT_EQ(first.rank, 3U);
  EXPECT_EQ(std::get<LinkAsk>(*first.message).attempt, (LinkAttempt{1, 2}));
  const Letter second = box.take(kLong).value();
  EXPECT_EQ(second.rank, 4U);
  EXPECT_FALSE(second.message) << "letters of that rank may have been lost";
  EXPECT_EQ(code_of(box.take(milliseconds(0))), ErrorCode::kTimeout);
}

TEST_F(LetterBoxTest, WakesWhoWaits) {
  LetterBox box(*endpoint_);
  std::jthread later([&] { box.take(3, LinkAsk{}); });
  EXPECT_TRUE(box.take(kLong));
  std::jthread end([&] { box.end(); });
  EXPECT_EQ(code_of(box.take(kLong)), ErrorCode::kCancelled);
}

TEST_F(LetterBoxTest, GivesWhatHasComeBeforeTheEnd) {
  LetterBox box(*endpoint_);
  box.take(3, LinkAsk{});
  box.end();
  EXPECT_TRUE(box.take(kLong));
  EXPECT_EQ(code_of(box.take(kLong)), ErrorCode::kCancelled);
}

TEST_F(LetterBoxTest, DropsWhatIsBeyondItsBound) {
  LetterBox box(*endpoint_, 1 << 20);
  const auto part = [](std::uint64_t step, std::size_t bytes) {
    return LinkPart{
        .attempt = {step, 0}, .file = "f", .bytes = 1, .header = std::string(bytes, 'h')};
  };
  box.take(1, part(1, 600'000));
  box.take(1, part(2, 600'000));
  box.take(1, LinkDecided{.attempt = {3, 0}, .manifest = std::string(600'000, 'm')});
  box.take(1, LinkSealed{.attempt = {4, 0}, .files = {3'000, {"f", 1}}});
  box.take(1, part(5, 300'000));
  EXPECT_EQ(std::get<LinkPart>(*box.take(kLong)->message).attempt.step, 1U);
  EXPECT_EQ(std::get<LinkPart>(*box.take(kLong)->message).attempt.step, 5U);
  EXPECT_EQ(code_of(box.take(milliseconds(0))), ErrorCode::kTimeout);
  box.take(1, part(6, 600'000));
  EXPECT_TRUE(box.take(kLong)) << "there is room again";
}

TEST_F(LetterBoxTest, SendsOverTheEndpoint) {
  LetterBox box(*endpoint_);
  EXPECT_EQ(code_of(box.send(1, LinkAsk{})), ErrorCode::kInvalidArgument) << "no such peer";
}

}  // namespace
}  // namespace deepfreeze::letter_box_test
