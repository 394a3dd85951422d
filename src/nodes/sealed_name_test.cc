#include "nodes/sealed_name.h"

#include <gtest/gtest.h>

namespace deepfreeze {
namespace {

const std::string kDirectory = "step-000000000007-00000000000000aa";
const std::string kFile = "rank-00000-of-00004-0-of-1.safetensors";

TEST(SealedName, IsASealedFileOrAManifestOfAnAttempt) {
  for (const std::string& file : {kFile, std::string("manifest.json")}) {
    const auto name = parse_sealed_path(kDirectory + "/" + file);
    ASSERT_TRUE(name) << file;
    EXPECT_EQ(name->attempt, (LinkAttempt{.step = 7, .attempt_id = 0xaa}));
    EXPECT_EQ(name->file, file);
    EXPECT_EQ(path_in_run(name->attempt, name->file), kDirectory + "/" + file);
  }
}

TEST(SealedName, IsNoOtherFile) {
  for (const std::string file :
       {"", ".", "..", "rank-00000-of-00004-0-of-1.part", "rank-00000-of-00004-0-of-1.failed",
        "rank.0123456789abcdef.tmp", "manifest.0123456789abcdef.tmp", "manifest.deleted.json",
        "manifest.json ", "Manifest.json", "deepfreeze.json", "node.json", "other.safetensors",
        "rank-00004-of-00004-0-of-1.safetensors"}) {
    EXPECT_FALSE(is_sealed_file(file)) << file;
    EXPECT_FALSE(parse_sealed_path(kDirectory + "/" + file)) << file;
  }
}

TEST(SealedName, IsOfNoOtherDirectory) {
  for (const std::string& path :
       {kFile, "/" + kFile, "other/" + kFile, "step-7-aa/" + kFile,
        "../" + kDirectory + "/" + kFile, kDirectory + "/../" + kFile, kDirectory + "//" + kFile,
        "./" + kDirectory + "/" + kFile, kDirectory + "/" + kDirectory + "/" + kFile,
        std::string("deepfreeze.json")}) {
    EXPECT_FALSE(parse_sealed_path(path)) << path;
  }
}

}  // namespace
}  // namespace deepfreeze
