#include "object/s3_text.h"

#include <gtest/gtest.h>

#include <array>

namespace deepfreeze {
namespace {

// The check value of CRC-32C, and the output of `base64` for its bytes.
TEST(S3Text, ChecksumsAreBase64OfTheHighestByteFirst) {
  EXPECT_EQ(checksum_text(0xe3069283), "4waSgw==");
  EXPECT_EQ(checksum_text(0), "AAAAAA==");
  EXPECT_EQ(checksum_text(0xffffffff), "/////w==");
  for (const std::uint32_t crc : {0U, 1U, 0x80000000U, 0xe3069283U, 0xffffffffU}) {
    EXPECT_EQ(parse_checksum(checksum_text(crc)), crc);
  }
}

TEST(S3Text, OtherChecksumsAreNotTaken) {
  for (const char* text :
       {"", "4waSgw", "4waSgw==-3", "4waSgw=", "4waSg===", "4waSg!==", "4waSgwAA"}) {
    EXPECT_FALSE(parse_checksum(text)) << text;
  }
}

TEST(S3Text, ReadsTimes) {
  const auto when = std::chrono::sys_days(std::chrono::year(2026) / 11 / 27) +
                    std::chrono::hours(22) + std::chrono::minutes(51) + std::chrono::seconds(33);
  EXPECT_EQ(parse_http_date("Fri, 27 Nov 2026 22:51:33 GMT"), when);
}

TEST(S3Text, OtherTextsAreNoTimes) {
  for (const char* text : {"", "Fri,", "Fri, 27 Nov 2026 22:51:33", "Fri, 27 Foo 2026 22:51:33 GMT",
                           "Fri, 31 Feb 2026 22:51:33 GMT", "Fri, 27 Nov 2026 24:51:33 GMT",
                           "2026-11-27T22:51:33Z", "Fri, 27 Nov 20"}) {
    EXPECT_FALSE(parse_http_date(text)) << text;
  }
}

TEST(S3Text, ReadsRanges) {
  const auto range = parse_content_range("bytes 10-99/1234");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->begin, 10U);
  EXPECT_EQ(range->end, 100U);
  EXPECT_EQ(range->total, 1234U);
  for (const char* text : {"", "bytes", "bytes */1234", "bytes 9-1/20", "bytes 0-20/20",
                           "bytes 0-9/*", "items 0-9/20", "bytes -9/20", "bytes 0/2-9"}) {
    EXPECT_FALSE(parse_content_range(text)) << text;
  }
}

TEST(S3Text, DecodesKeys) {
  EXPECT_EQ(url_decoded("a%2Fb+c%20%c3%A4"), "a/b c \xc3\xa4");
  for (const char* text : {"%", "%2", "a%zz", "%2g"}) EXPECT_FALSE(url_decoded(text)) << text;
}

}  // namespace
}  // namespace deepfreeze
