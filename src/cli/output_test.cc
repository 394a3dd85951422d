#include "cli/output.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "cli/progress.h"

namespace deepfreeze {
namespace {

TEST(Output, BytesArePowersOfAThousandWithOneDigit) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1.0 kB");
  EXPECT_EQ(human_bytes(306'900'000), "306.9 MB");
  EXPECT_EQ(human_bytes(999'999'999), "1.0 GB");
  EXPECT_EQ(human_bytes(std::numeric_limits<std::uint64_t>::max()), "18.4 EB");
}

TEST(Output, TimesAreUtcAndAgesAreRounded) {
  EXPECT_EQ(utc_time(0), "1970-01-01 00:00:00 UTC");
  EXPECT_EQ(utc_time(1'795'251'130'000'000), "2026-11-21 08:52:10 UTC");
  constexpr std::int64_t kSecond = 1'000'000;
  EXPECT_EQ(human_age(0, 5 * kSecond), "5 s ago");
  EXPECT_EQ(human_age(0, 180 * kSecond), "3 min ago");
  EXPECT_EQ(human_age(0, 5 * 3600 * kSecond), "5 h ago");
  EXPECT_EQ(human_age(0, 72 * 3600 * kSecond), "3 days ago");
  EXPECT_EQ(human_age(kSecond, 0), "in the future");
}

TEST(Output, TableAlignsByCharactersNotBytes) {
  Table table({{"NAME"}, {"SIZE", Column::Align::kRight}});
  table.add({"größe", "7"});
  table.add({"b", "123456"});
  std::ostringstream out;
  table.print(out);
  EXPECT_EQ(out.str(), "NAME     SIZE\ngröße       7\nb      123456\n");
}

TEST(Output, NamesCanNotSteerTheTerminal) {
  EXPECT_EQ(printable("a\x1b[2Jb\n"), "a\\x1b[2Jb\\x0a");
  EXPECT_EQ(printable("größe"), "größe");
  EXPECT_EQ(printable("\xe2\x82\xac\xf0\x9f\x98\x80"), "€😀");
}

TEST(Output, JsonHasAWordForNumbersThatItLacks) {
  JsonWriter document = json_document("show");
  document.members("nan", std::nan(""), "low", -std::numeric_limits<double>::infinity(), "number",
                   1.5, "name", "bad \xff utf-8");
  std::ostringstream out;
  print_json(out, std::move(document));
  EXPECT_EQ(out.str(),
            "{\n  \"format\": 1,\n  \"command\": \"show\",\n  \"nan\": \"nan\",\n"
            "  \"low\": \"-inf\",\n  \"number\": 1.5,\n  \"name\": \"bad \ufffd utf-8\"\n}\n");
}

// A clock that the test sets.
struct Stage {
  std::ostringstream out;
  std::ostringstream err;
  Monotonic::time_point now{};
  Console console{.out = out, .err = err};
};

TEST(Progress, StaysQuietForASecondAndWipesItself) {
  Stage stage;
  stage.console.err_is_terminal = true;
  {
    Progress progress(stage.console, "verify", 1000, [&] { return stage.now; });
    stage.now += std::chrono::milliseconds(999);
    progress.update(10);
    EXPECT_EQ(stage.err.str(), "");
    stage.now += std::chrono::milliseconds(1001);
    progress.update(500);
    EXPECT_NE(stage.err.str().find("50%"), std::string::npos);
    const std::size_t drawn = stage.err.str().size();
    progress.update(600);  // too soon to draw again
    EXPECT_EQ(stage.err.str().size(), drawn);
  }
  EXPECT_TRUE(stage.err.str().ends_with("\r\033[K"));
}

TEST(Progress, IsSilentWhereNobodyLooks) {
  Stage stage;
  {
    Progress progress(stage.console, "verify", 1000, [&] { return stage.now; });
    stage.now += std::chrono::hours(1);
    progress.update(500);
  }
  EXPECT_EQ(stage.err.str(), "");
}

TEST(Printable, BytesThatAreNoUtf8AreEscaped) {
  EXPECT_EQ(printable("a\xff/\xe4z"), "a\\xff/\\xe4z");
  EXPECT_EQ(printable("\xc3"), "\\xc3") << "cut";
  EXPECT_EQ(printable("\xc0\xaf\xe0\x80\xaf"), "\\xc0\\xaf\\xe0\\x80\\xaf") << "too long";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a pair";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond the last";
  EXPECT_EQ(printable("\xc2\x85"), "\\xc2\\x85") << "a control character";
}

TEST(Readable, LongWordsLoseTheirMiddle) {
  const std::string path = "/" + std::string(250, 'p');
  EXPECT_EQ(readable(path + " is  whole"), path + " is  whole");
  const std::string text = readable("key " + std::string(100'000, 'k') + "\x1b  holds NaN");
  EXPECT_LT(text.size(), 400U);
  EXPECT_TRUE(text.starts_with("key kkk")) << text;
  EXPECT_TRUE(text.ends_with("k\\x1b  holds NaN")) << text;
}

TEST(CutTo, CountsCharactersNotBytes) {
  EXPECT_EQ(cut_to(6, "größer als"), "grö…ls");
  EXPECT_EQ(cut_to(10, "größer als"), "größer als");
}

}  // namespace
}  // namespace deepfreeze
