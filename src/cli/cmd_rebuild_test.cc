// rebuild: four nodes with a rank each, of which two may be lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/fail_point.h"
#include "base/try.h"
#include "cli/test_run.h"
#include "inspect/checkup.h"
#include "protect/write_parity.h"
#include "restore/run_fixture.h"
#include "storage/posix_vfs.h"
#include "storage/vfs_name.h"
#include "support/passing_vfs.h"

namespace deepfreeze {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kNodes = 4;
constexpr std::size_t kParity = 2;

class RebuildVerbTest : public testing::Test {
 protected:
  RebuildVerbTest() {
    for (const std::uint64_t step : {1U, 2U}) {
      FixtureSave save{.step = step, .ranks = {}, .tree = R"({"lr":1})"};
      for (std::uint64_t rank = 0; rank < kNodes; ++rank) {
        // The longest fills more blocks than a slab of a copy has.
        const std::uint64_t bytes = rank == 1 ? 4'500'000 : 70'000 * (rank + 1);
        save.ranks.push_back(
            {random_tensor("w" + std::to_string(rank), DType::kU8, {bytes}, 10 * step + rank)});
      }
      saved_.push_back(run_.save(save));
    }
    for (std::size_t node = 0; node < kNodes; ++node) make_node(node);
    for (const Manifest& manifest : saved_) protect(manifest);
  }
  ~RebuildVerbTest() override { fs::remove_all(root_); }

  [[nodiscard]] fs::path node(std::size_t number) const {
    return root_ / ("node" + std::to_string(number));
  }
  [[nodiscard]] static std::string attempt(const Manifest& manifest) {
    return attempt_dir_name({manifest.point.step, manifest.point.attempt_id});
  }
  [[nodiscard]] fs::path part(std::size_t rank, const Manifest& manifest) const {
    return node(rank) / attempt(manifest) / manifest.files.at(rank).name;
  }
  [[nodiscard]] fs::path parity(std::size_t number, const Manifest& manifest) const {
    return node(number) / attempt(manifest) / parity_file_name(number, kNodes);
  }

  // `left`: the numbers of the nodes that are left.
  Answer rebuild(const std::vector<std::size_t>& left, const std::string& at = "") {
    std::vector<std::string> words = {"rebuild", whole_.string() + at};
    for (const std::size_t number : left) words.push_back(node(number).string());
    return call_json(std::move(words));
  }
  void expect_whole(const Answer& answer, std::size_t index, int calculated) {
    ASSERT_EQ(answer.code, 0) << answer.err;
    const json said = answer.json();
    EXPECT_EQ(said["step"], saved_[index].point.step);
    EXPECT_EQ(std::ranges::count_if(said["files"], [](const json& f) { return f["calculated"]; }),
              calculated);
    for (const ManifestFile& file : saved_[index].files) {
      const fs::path path = fs::path(attempt(saved_[index])) / file.name;
      EXPECT_EQ(bytes_of(whole_ / path), bytes_of(run_.path() / path)) << file.name;
    }
    EXPECT_EQ(call({"verify", "--deep", whole_.string()}).code, 0);
  }
  void expect_nothing_of(const Manifest& manifest) {
    EXPECT_FALSE(fs::exists(whole_ / attempt(manifest)));
  }
  static std::string bytes_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    EXPECT_TRUE(file) << path;
    return {std::istreambuf_iterator<char>(file), {}};
  }

  RunFixture run_;
  std::vector<Manifest> saved_;
  fs::path root_ = fs::path(run_.text() + "-nodes");
  fs::path whole_ = root_ / "whole";

 private:
  // As a node has it: all records, and the files of its own rank.
  void make_node(std::size_t number) {
    fs::create_directories(root_);
    fs::copy(run_.path(), node(number), fs::copy_options::recursive);
    for (const Manifest& manifest : saved_) {
      for (std::size_t rank = 0; rank < kNodes; ++rank) {
        if (rank != number) {
          fs::remove(node(number) / attempt(manifest) / manifest.files.at(rank).name);
        }
      }
    }
  }
  void protect(const Manifest& manifest) {
    std::vector<std::unique_ptr<Vfs>> disks;
    std::vector<ParityMember> members;
    for (std::size_t number = 0; number < kNodes; ++number) {
      disks.push_back(must(open_posix_vfs(node(number).string())));
      members.push_back(
          {.node = number, .vfs = disks.back().get(), .files = {manifest.files.at(number)}});
    }
    RateLimit rate(0);
    const std::atomic<bool> stop{false};
    for (std::size_t own = 0; own < kNodes; ++own) {
      must(write_parity({.manifest = manifest,
                         .members = members,
                         .own = own,
                         .parity = kParity,
                         .nodes = kNodes},
                        {.rate = rate, .stop = stop}));
    }
  }
};

TEST_F(RebuildVerbTest, AnyTwoNodesMayBeLost) {
  for (std::size_t a = 0; a < kNodes; ++a) {
    for (std::size_t b = a + 1; b < kNodes; ++b) {
      SCOPED_TRACE(testing::Message() << a << ", " << b << " are left");
      expect_whole(rebuild({a, b}), 1, 2);
      fs::remove_all(whole_);
    }
  }
}

TEST_F(RebuildVerbTest, SaysWhereEachFileCameFrom) {
  const json files = rebuild({0, 1, 3}).json()["files"];
  EXPECT_EQ(files[0]["from"], part(0, saved_[1]).string());
  EXPECT_EQ(files[0]["bytes"], saved_[1].files[0].bytes);
  EXPECT_EQ(files[2]["calculated"], true);
  EXPECT_NE(std::string(files[2]["from"]).find("(from parity)"), std::string::npos);
  fs::remove_all(whole_);
  const Answer text = call({"rebuild", whole_.string(), node(0).string(), node(1).string()});
  EXPECT_TRUE(text.says("has step 2")) << text.out;
  EXPECT_TRUE(text.says("2 of 4 files calculated from parity")) << text.out;
}

TEST_F(RebuildVerbTest, ADamagedSurvivorIsOneMoreLoss) {
  flip_bit(part(1, saved_[1]), 8 * 4'300'000);
  expect_whole(rebuild({0, 1, 2}), 1, 2);
  fs::remove_all(whole_);
  flip_bit(parity(2, saved_[1]), 8 * fs::file_size(parity(2, saved_[1])) - 1);
  expect_whole(rebuild({0, 1, 2, 3}), 1, 1);
}

TEST_F(RebuildVerbTest, IfTooFewAreLeftAnOlderOneIsTaken) {
  for (std::size_t number = 0; number < kNodes; ++number) fs::remove(parity(number, saved_[1]));
  const Answer answer = rebuild({0, 3});
  expect_whole(answer, 0, 2);
  const json passed = answer.json()["passed"];
  ASSERT_EQ(passed.size(), 1U);
  EXPECT_EQ(passed[0]["step"], 2);
  EXPECT_NE(std::string(passed[0]["why"]).find("no parity covers it"), std::string::npos) << passed;
  expect_nothing_of(saved_[1]);
}

TEST_F(RebuildVerbTest, IfNoneCanBeHadItSaysWhyAndLeavesNothing) {
  const Answer answer = rebuild({2});
  EXPECT_EQ(answer.code, 3);
  EXPECT_NE(answer.err.find("no checkpoint can be made whole: no place has rank-00000-of-00004"),
            std::string::npos)
      << answer.err;
  EXPECT_NE(answer.err.find("pieces are left, 2 are needed"), std::string::npos) << answer.err;
  for (const Manifest& manifest : saved_) expect_nothing_of(manifest);
}

TEST_F(RebuildVerbTest, AStepThatWasNamedIsTheOnlyOne) {
  expect_whole(rebuild({0, 3}, "@1"), 0, 2);
  expect_nothing_of(saved_[1]);
  fs::remove_all(whole_);
  for (std::size_t number = 0; number < kNodes; ++number) fs::remove(parity(number, saved_[1]));
  EXPECT_EQ(rebuild({0, 3}, "@2").code, 3);
  EXPECT_EQ(rebuild({0, 3}, "@7").code, 3);
  for (const Manifest& manifest : saved_) expect_nothing_of(manifest);
}

// It was stopped: files without a manifest. They are not copied again.
TEST_F(RebuildVerbTest, OneThatWasStoppedGoesOn) {
  ASSERT_EQ(rebuild({0, 1, 2, 3}).code, 0);
  const fs::path attempt_dir = whole_ / attempt(saved_[1]);
  fs::remove(attempt_dir / kManifestFile);
  fs::remove(attempt_dir / saved_[1].files[2].name);
  const Answer answer = rebuild({0, 1});
  expect_whole(answer, 1, 1);
  EXPECT_EQ(answer.json()["files"][0]["from"], "");
}

TEST_F(RebuildVerbTest, ADamagedFileThatIsThereIsReplaced) {
  ASSERT_EQ(rebuild({0, 1}).code, 0);
  flip_bit(whole_ / attempt(saved_[1]) / saved_[1].files[3].name, 100);  // of its header
  expect_whole(rebuild({0, 1}), 1, 1);
}

TEST_F(RebuildVerbTest, ADamagedBlockThatIsThereIsReplaced) {
  ASSERT_EQ(rebuild({0, 1}).code, 0);
  const fs::path file = whole_ / attempt(saved_[1]) / saved_[1].files[3].name;
  flip_bit(file, 8 * fs::file_size(file) - 1);
  expect_whole(rebuild({0, 1}), 1, 1);
}

// They may be the last copy: nobody knows where they came from.
TEST_F(RebuildVerbTest, FilesThatWereThereBeforeStayIfTheRestCanNotBeHad) {
  ASSERT_EQ(rebuild({0, 1}).code, 0);
  const fs::path there = whole_ / attempt(saved_[1]);
  fs::remove(there / kManifestFile);
  for (const std::size_t rank : {0U, 2U, 3U}) fs::remove(there / saved_[1].files[rank].name);
  EXPECT_EQ(rebuild({0}, "@2").code, 3);
  EXPECT_TRUE(fs::exists(there / saved_[1].files[1].name));
  EXPECT_FALSE(fs::exists(there / saved_[1].files[0].name)) << "this one was brought";
}

// The good file stays in place of the damaged one: it may belong to a checkpoint that counts.
TEST_F(RebuildVerbTest, AFileThatTookThePlaceOfADamagedOneStays) {
  ASSERT_EQ(rebuild({0, 1}).code, 0);
  const fs::path there = whole_ / attempt(saved_[1]);
  flip_bit(there / saved_[1].files[0].name, 100);
  fs::remove(there / saved_[1].files[3].name);
  EXPECT_EQ(rebuild({0}, "@2").code, 3);
  EXPECT_EQ(bytes_of(there / saved_[1].files[0].name), bytes_of(part(0, saved_[1])));
}

// A node that was cut off has heard neither of the claim nor of the commit.
TEST_F(RebuildVerbTest, RecordsComeFromAnyPlaceThatHasThem) {
  fs::remove(node(0) / generation_file_name(1));
  fs::remove(node(0) / attempt(saved_[1]) / kManifestFile);
  expect_whole(rebuild({0, 1}), 1, 2);
  EXPECT_TRUE(fs::exists(whole_ / generation_file_name(1)));
}

TEST_F(RebuildVerbTest, TheFileOfAFartherTierIsTakenBeforeParity) {
  const std::string far = root_ / "far";
  ASSERT_EQ(call({"flush", run_.text(), far}).code, 0);
  const Answer answer = call_json({"rebuild", whole_.string(), node(0).string(), far});
  expect_whole(answer, 1, 0);
}

// It lists files that are gone when they are opened.
class Forgetful final : public PassingVfs {
 public:
  Forgetful(Vfs& disk, ErrorCode code) : PassingVfs(disk), code_(code) {}
  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override {
    if (is_parity_file_name(split_vfs_name(name).leaf)) return fail(code_, "it is not there");
    return PassingVfs::open_read(name, access);
  }

 private:
  const ErrorCode code_;
};

TEST_F(RebuildVerbTest, ParityThatIsRemovedMeanwhileIsNoFault) {
  fs::copy_file(parity(0, saved_[1]),
                run_.path() / attempt(saved_[1]) / parity_file_name(0, kNodes));
  for (const auto& [code, wanted] : {std::pair{ErrorCode::kNotFound, Verdict::kGood},
                                     {ErrorCode::kGone, Verdict::kGood},
                                     {ErrorCode::kCorrupt, Verdict::kFault}}) {
    Forgetful vfs(run_.vfs(), code);
    Findings findings;
    const auto attempts = must(read_run(vfs)).attempts;
    EXPECT_EQ(must(check_attempt(vfs, attempts.back(), {}, unwatched, findings)), wanted);
  }
}

// Nothing of the copies is to blame, and no older step is taken.
TEST_F(RebuildVerbTest, AnErrorOfTheDestinationIsToldAsSuch) {
  ASSERT_EQ(rebuild({0, 1, 2, 3}, "@1").code, 0);  // all records are there
  for (const char* fault : {"tier.append=error:EIO", "tier.append=error:ENOSPC"}) {
    ASSERT_TRUE(fail_points::arm(fault));
    const Answer answer = rebuild({0, 1, 2, 3});
    fail_points::disarm();
    EXPECT_EQ(answer.code, 3) << fault;
    EXPECT_NE(answer.err.find("fail point tier.append"), std::string::npos) << answer.err;
    EXPECT_EQ(answer.err.find("no place has"), std::string::npos) << answer.err;
  }
}

// Nobody else reads it until a node is lost.
TEST_F(RebuildVerbTest, VerifyAndScrubReadParity) {
  const fs::path file = run_.path() / attempt(saved_[1]) / parity_file_name(0, kNodes);
  fs::copy_file(parity(0, saved_[1]), file);
  const std::vector<std::string> verify = {"verify", run_.text()};
  EXPECT_EQ(call(verify).code, 0) << call(verify).out;
  flip_bit(file, 8 * fs::file_size(file) - 1);
  const Answer found = call(verify);
  EXPECT_EQ(found.code, 1);
  EXPECT_TRUE(found.says(parity_file_name(0, kNodes))) << found.out;
  EXPECT_TRUE(found.says("does not verify")) << found.out;
  EXPECT_EQ(call({"verify", "--deep", run_.text()}).code, 1);
  EXPECT_EQ(call({"scrub", run_.text()}).code, 1);
  fs::copy_file(parity(0, saved_[0]), file, fs::copy_options::overwrite_existing);
  EXPECT_EQ(call(verify).code, 1) << "it is another checkpoint's";
}

TEST_F(RebuildVerbTest, RefusesWhatCanNotBeMeant) {
  const Answer same = call({"rebuild", node(0).string(), node(1).string(), node(0).string() + "/"});
  EXPECT_EQ(same.code, 2);
  EXPECT_NE(same.err.find("name a new directory as RUN"), std::string::npos) << same.err;
  RunFixture other;
  const Answer mixed = call({"rebuild", whole_.string(), node(0).string(), other.text()});
  EXPECT_EQ(mixed.code, 3);
  EXPECT_NE(mixed.err.find("hold different runs"), std::string::npos) << mixed.err;
  const Answer taken = call({"rebuild", other.text(), node(0).string(), node(1).string()});
  EXPECT_EQ(taken.code, 3);
  const Answer nowhere = call({"rebuild", whole_.string(), root_ / "nowhere"});
  EXPECT_EQ(nowhere.code, 3);
}

}  // namespace
}  // namespace deepfreeze
