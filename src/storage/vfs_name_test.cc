#include "storage/vfs_name.h"

#include <gtest/gtest.h>

#include <string>

namespace deepfreeze {
namespace {

TEST(VfsName, AcceptsSafeComponents) {
  const std::string longest(kNameComponentBytesMax, 'x');
  for (const std::string& name : {std::string("a"), std::string(".a"), std::string("..."),
                                  std::string("step-1_2/rank.part"), std::string("a/") + longest}) {
    EXPECT_TRUE(check_vfs_name("open", name)) << name;
  }
}

TEST(VfsName, RefusesWhatCouldLeaveTheRootOrConfuse) {
  const std::string too_long(kNameComponentBytesMax + 1, 'x');
  for (const std::string& name :
       {std::string(), std::string("/"), std::string("/x"), std::string("x/"), std::string("a//b"),
        std::string("."), std::string(".."), std::string("a/../b"), std::string("a/."),
        std::string("a b"), std::string("a\n"), std::string("a\0b", 3), std::string("caf\xc3\xa9"),
        std::string("a\\b"), too_long, "a/" + too_long}) {
    const auto checked = check_vfs_name("open", name);
    ASSERT_FALSE(checked) << name;
    EXPECT_EQ(checked.error().code(), ErrorCode::kInvalidArgument) << name;
  }
}

TEST(VfsName, ARefusalShowsNoControlBytes) {
  const auto checked = check_vfs_name("open", "a\x1b[2J");
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().message(), "open 'a?[2J': not a safe relative name");
}

TEST(VfsName, SplitsAtTheLastSlash) {
  EXPECT_EQ(split_vfs_name("a/b/c").parent, "a/b");
  EXPECT_EQ(split_vfs_name("a/b/c").leaf, "c");
  EXPECT_EQ(split_vfs_name("c").parent, "");
  EXPECT_EQ(split_vfs_name("c").leaf, "c");
}

}  // namespace
}  // namespace deepfreeze
