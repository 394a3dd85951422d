#include "manifest/name_kind.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "format/names.h"

namespace deepfreeze {
namespace {

NameKind in_run(std::string name) { return kind_in_run({.name = std::move(name)}); }
NameKind in_attempt(std::string name) { return kind_in_attempt({.name = std::move(name)}); }

const std::string kNonce = "0123456789abcdef";
const std::string kPartName = "rank-00000-of-00001-0-of-1";

// Whatever is taken for a temporary file is deleted one day.
TEST(NameKind, OfRecordsBeforeTheyHaveTheirNames) {
  for (const char* stem : {"deepfreeze.", "generation.", "scrub.", "node.", ".deepfreeze-index."}) {
    EXPECT_EQ(in_run(stem + kNonce + ".tmp"), NameKind::kTemporary) << stem;
    for (const char* ending : {".sav", ".tmp~", ".tm", "", "xtmp"}) {
      EXPECT_EQ(in_run(stem + kNonce + ending), NameKind::kForeign) << stem << ending;
    }
    EXPECT_EQ(in_run(stem + kNonce.substr(1) + ".tmp"), NameKind::kForeign) << stem;
    EXPECT_EQ(in_run(stem + std::string("tmp")), NameKind::kForeign) << stem;
  }
  EXPECT_EQ(in_run("otherwise." + kNonce + ".tmp"), NameKind::kForeign);
  EXPECT_EQ(in_run("generatiom." + kNonce + ".tmp"), NameKind::kForeign);
  EXPECT_EQ(in_attempt("manifest." + kNonce + ".tmp"), NameKind::kTemporary);
  EXPECT_EQ(in_attempt("rank." + kNonce + ".tmp"), NameKind::kTemporary);
  EXPECT_EQ(in_attempt("manifest." + kNonce + ".sav"), NameKind::kForeign);
  EXPECT_EQ(in_attempt("manifesto" + kNonce + ".tmp"), NameKind::kForeign);
}

TEST(NameKind, OfANodesMarker) {
  EXPECT_EQ(in_run("node.json"), NameKind::kNodeMarker);
  EXPECT_EQ(in_run("node.jsox"), NameKind::kForeign);
  EXPECT_EQ(in_attempt("node.json"), NameKind::kForeign);
}

// It must not take its number: the record that holds has the claim's name.
TEST(NameKind, OfAClaimThatLost) {
  const std::string claim = "generation-00000005";
  EXPECT_EQ(in_run(claim + ".void-" + kNonce + ".json"), NameKind::kVoidClaim);
  EXPECT_EQ(in_run(claim + ".json"), NameKind::kClaim);
  EXPECT_EQ(parse_generation_file_name(claim + ".void-" + kNonce + ".json"), std::nullopt);
  for (const char* ending : {"", ".void-.json", ".void-0123456789abcdef.jsox", ".void+", ".void"}) {
    EXPECT_EQ(in_run(claim + ending), NameKind::kForeign) << ending;
  }
  EXPECT_EQ(in_run("generation-5.void-" + kNonce + ".json"), NameKind::kForeign);
  EXPECT_EQ(in_attempt(claim + ".void-" + kNonce + ".json"), NameKind::kForeign);
}

TEST(NameKind, OfRecordsThatWereKept) {
  EXPECT_EQ(in_run("deepfreeze.bad-" + kNonce + ".json"), NameKind::kKeptRunRecord);
  EXPECT_EQ(in_run("deepfreeze.bad-" + kNonce + ".jsox"), NameKind::kForeign);
  EXPECT_EQ(in_attempt("manifest.bad-" + kNonce + ".json"), NameKind::kKeptManifest);
  EXPECT_EQ(in_attempt("manifest.bad+" + kNonce + ".json"), NameKind::kForeign);
}

TEST(NameKind, OfPartsByHowTheyEnd) {
  ASSERT_EQ(in_attempt(kPartName + ".safetensors"), NameKind::kSealedPart);
  EXPECT_EQ(in_attempt(kPartName + ".part"), NameKind::kPart);
  EXPECT_EQ(in_attempt(kPartName + ".failed"), NameKind::kFailedPart);
  for (const char* ending : {".tart", ".failes", ".safetensor", "", "."}) {
    EXPECT_EQ(in_attempt(kPartName + ending), NameKind::kForeign) << ending;
  }
}

TEST(NameKind, ADirectoryIsNoRecord) {
  EXPECT_EQ(kind_in_run({.name = std::string(kRunFile), .is_directory = true}), NameKind::kForeign);
  EXPECT_EQ(kind_in_attempt({.name = std::string(kManifestFile), .is_directory = true}),
            NameKind::kForeign);
}

}  // namespace
}  // namespace deepfreeze
