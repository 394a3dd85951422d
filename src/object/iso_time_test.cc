#include "object/iso_time.h"

#include <gtest/gtest.h>

#include "object/keys_fixture.h"

namespace deepfreeze {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

TEST(IsoTime, ReadsTimes) {
  EXPECT_EQ(parse_iso_time("2026-01-01T00:00:07Z"), time_at(seconds(7)));
  EXPECT_EQ(parse_iso_time("2026-01-01 03:02:01z"), time_at(hours(3) + minutes(2) + seconds(1)));
  EXPECT_EQ(parse_iso_time("2026-01-01T00:00:07.123456+00:00"), time_at(seconds(7)));
  EXPECT_EQ(parse_iso_time("2026-01-01T02:30:00+02:30"), time_at(seconds(0)));
  EXPECT_EQ(parse_iso_time("2026-01-01T02:30:00-0030"), time_at(hours(3)));
  const auto never = parse_iso_time("9999-12-31T23:59:59Z");
  ASSERT_TRUE(never);
  EXPECT_EQ(*never, std::chrono::sys_days(std::chrono::year(2200) / 12 / 31));
  EXPECT_EQ(parse_iso_time("0001-01-01T00:00:00Z"), std::chrono::system_clock::time_point{});
}

TEST(IsoTime, OtherTextsAreNoTimes) {
  for (const std::string_view text : {"",
                                      "Z",
                                      "2026",
                                      "2026-01-01",
                                      "2026-01-01T00:00:00",
                                      "2026-13-01T00:00:00Z",
                                      "2026-02-29T00:00:00Z",
                                      "2026-01-01T24:00:00Z",
                                      "2026-01-01T00:60:00Z",
                                      "2026-01-01T00:00:61Z",
                                      "2026-01-01X00:00:00Z",
                                      "2026/01/01T00:00:00Z",
                                      "2026-01-01T00:00:00ZZ",
                                      "2026-01-01T00:00:00+24:00",
                                      "2026-01-01T00:00:00+00:60",
                                      "2026-01-01T00:00:00+00",
                                      "2026-01-0",
                                      "2026-01-01T00:00:0",
                                      "2026-01-01T00:00:00+0",
                                      "2026-01-01T00:00:00+00:00Z",
                                      "26-01-01T00:00:00Z",
                                      "2026-1-01T00:00:00Z",
                                      "+026-01-01T00:00:00Z"}) {
    EXPECT_FALSE(parse_iso_time(text)) << text;
  }
}

}  // namespace
}  // namespace deepfreeze
