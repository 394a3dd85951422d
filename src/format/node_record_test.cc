#include "format/node_record.h"

#include <gtest/gtest.h>

#include "format/records.h"

namespace deepfreeze {
namespace {

const NodeRecord kNode{.node = 0x9f2c41d07a3be856, .host = "host7 \"é\""};

TEST(NodeRecord, IsReadAsItWasWritten) {
  EXPECT_EQ(decode_node(encode_node(kNode)), kNode);
  EXPECT_EQ(decode_node(encode_node({})), NodeRecord{});
}

TEST(NodeRecord, RefusesEveryFlippedBitAndEveryCut) {
  const std::string good = encode_node(kNode);
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string text = good;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_FALSE(decode_node(text)) << bit;
  }
  for (std::size_t size = 0; size < good.size(); ++size) {
    ASSERT_FALSE(decode_node(good.substr(0, size))) << size;
  }
}

TEST(NodeRecord, IsNoOtherRecord) {
  EXPECT_FALSE(decode_run(encode_node(kNode)));
  EXPECT_FALSE(decode_node(encode_run({.run_id = "0123456789abcdef"})));
}

}  // namespace
}  // namespace deepfreeze
