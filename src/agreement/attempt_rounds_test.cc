#include "agreement/attempt_rounds.h"

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "agreement/node_fixture.h"
#include "storage/os_error.h"
#include "support/code_of.h"
#include "support/passing_vfs.h"

namespace deepfreeze::attempt_rounds_test {
namespace {

constexpr AttemptName kOne{.step = 1, .attempt_id = 11};
constexpr AttemptName kTwo{.step = 2, .attempt_id = 22};

class AttemptRounds : public node_test::NodesTest {};

TEST_F(AttemptRounds, AllRanksHearOfAllNodesAttempts) {
  run({"a", "b", "b"}, [](const Rank& rank) {
    const std::vector<AttemptName> own[] = {{kOne}, {kOne, kTwo}, {}};  // the third is no leader
    const auto all = share_attempts(rank.group, rank.nodes, own[rank.group.rank()]);
    ASSERT_TRUE(all);
    EXPECT_EQ(*all, (std::vector<std::vector<AttemptName>>{{kOne}, {kOne, kTwo}}));
  });
}

TEST_F(AttemptRounds, ADirectoryThatCannotBeListedIsEveryRanksError) {
  run({"a", "b", "a"}, [](const Rank& rank) {
    Result<std::vector<AttemptName>> own;
    if (rank.group.rank() == 1) own = std::unexpected(Error(ErrorCode::kIo, "no disk"));
    const auto all = share_attempts(rank.group, rank.nodes, own);
    ASSERT_EQ(code_of(all), ErrorCode::kIo);
    EXPECT_TRUE(all.error().message().contains("rank 1: no disk")) << all.error().message();
  });
}

TEST_F(AttemptRounds, EachSealedFileHasItsPlaces) {
  const auto file = [](std::uint32_t rank) {
    return sealed_file_name({.rank = rank, .world_size = 3, .file = 0, .file_count = 1});
  };
  for (const auto& [place, rank] : {std::pair{"a", 0U}, {"b", 1U}, {"b", 2U}, {"c", 1U}}) {
    const auto directory = path_of(place) / attempt_dir_name(kOne);
    std::filesystem::create_directory(directory);
    std::ofstream(directory / file(rank)) << "x";
    std::ofstream(directory / kManifestFile) << "m";
    std::ofstream(directory / part_file_name({.rank = 0, .world_size = 3})) << "not sealed";
  }
  run({"a", "b", "b", "c", "d"}, [&](const Rank& rank) {
    const auto places = share_files(rank.group, rank.nodes, rank.vfs, kOne);
    ASSERT_TRUE(places);
    const FilePlaces wanted = {
        {file(0), {0}}, {file(1), {1, 3}}, {file(2), {1}}, {"manifest.json", {0, 1, 3}}};
    EXPECT_EQ(*places, wanted);
  });
}

// Its files may be whole: an older checkpoint must not be taken in their place.
TEST_F(AttemptRounds, ANodeThatMayNotListTheFilesIsEveryRanksError) {
  class OwnDisk final : public PassingVfs {
   public:
    OwnDisk(Vfs& disk, int os_errno) : PassingVfs(disk), os_errno_(os_errno) {}
    Result<std::vector<DirEntry>> list(std::string_view name) override {
      return os_fail("list", name, os_errno_);
    }

   private:
    const int os_errno_;
  };
  run({"a", "b", "b"}, [](const Rank& rank) {
    for (const auto& [os_errno, is_open] : {std::pair{EMFILE, true}, {EIO, false}}) {
      OwnDisk refusing(rank.vfs, os_errno);
      Vfs& vfs = rank.group.rank() == 1 ? static_cast<Vfs&>(refusing) : rank.vfs;
      const auto places = share_files(rank.group, rank.nodes, vfs, kOne);
      EXPECT_EQ(places.has_value(), !is_open) << os_errno;
    }
  });
}

}  // namespace
}  // namespace deepfreeze::attempt_rounds_test
