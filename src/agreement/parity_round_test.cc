#include "agreement/parity_round.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <filesystem>
#include <map>
#include <mutex>

#include "base/log.h"
#include "storage/posix_vfs.h"
#include "support/code_of.h"
#include "support/scoped_dir.h"
#include "support/thread_ranks.h"

namespace deepfreeze {
namespace {

using OwnGroup = Result<std::optional<OwnParityGroup>>;

// One rank for each node, with these options; every rank's group.
std::map<std::uint32_t, OwnGroup> agree_all(const std::vector<std::optional<Parity>>& options) {
  const ScopedDir root;
  std::map<std::uint32_t, OwnGroup> groups;
  std::mutex mutex;
  ThreadRanks(static_cast<std::uint32_t>(options.size()))
      .run([&](std::uint32_t rank, const std::shared_ptr<RankGroup>& group) {
        const auto path = root.path() / std::to_string(rank);
        std::filesystem::create_directory(path);
        const auto vfs = open_posix_vfs(path).value();
        const auto map = NodeMap::find(group.get(), *vfs, "host" + std::to_string(rank)).value();
        auto found = agree_on_parity(*group, map, options[rank]);
        const std::lock_guard lock(mutex);
        groups.emplace(rank, std::move(found));
      });
  return groups;
}

Parity in_domain(std::string domain) {
  return {.data = 1, .parity = 1, .domain = std::move(domain)};
}

TEST(ParityRound, WithoutParityThereIsNoGroup) {
  for (const auto& [rank, group] : agree_all({{}, {}, {}})) {
    ASSERT_TRUE(group);
    EXPECT_FALSE(*group);
  }
}

TEST(ParityRound, EachRankHasItsGroup) {
  std::map<std::vector<std::size_t>, std::size_t> ranks_of;
  for (const auto& [rank, group] :
       agree_all(std::vector<std::optional<Parity>>(4, Parity{.data = 1, .parity = 1}))) {
    ASSERT_TRUE(group && *group);
    EXPECT_NE(std::ranges::find((*group)->members, rank), (*group)->members.end());
    ++ranks_of[(*group)->members];
  }
  EXPECT_EQ(ranks_of.size(), 2U);
}

TEST(ParityRound, DomainsArePutIntoDifferentGroups) {
  const auto groups = agree_all({in_domain("x"), in_domain("x"), in_domain("y"), in_domain("y")});
  for (const auto& [rank, group] : groups) {
    ASSERT_TRUE(group && *group && (*group)->members.size() == 2);
    EXPECT_TRUE((*group)->members.front() < 2 && (*group)->members.back() >= 2);
  }
}

TEST(ParityRound, ACrowdedGroupIsWarnedOfOnce) {
  std::mutex mutex;
  std::vector<std::string> warnings;
  set_log_sink([&](std::string_view text) {
    const std::lock_guard lock(mutex);
    warnings.emplace_back(text);
  });
  (void)agree_all({in_domain("x"), in_domain("x"), in_domain("x"), in_domain("y")});
  set_log_sink({});
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("several nodes of x"), std::string::npos) << warnings[0];
}

TEST(ParityRound, DifferencesAreEveryRanksError) {
  for (const auto& [rank, group] :
       agree_all({Parity{.data = 2, .parity = 1}, Parity{.data = 1, .parity = 1}, std::nullopt})) {
    EXPECT_EQ(code_of(group), ErrorCode::kMismatch);
    EXPECT_NE(group.error().message().find("2 data and 1 parity"), std::string::npos);
  }
  for (const auto& [rank, group] :
       agree_all(std::vector<std::optional<Parity>>(2, Parity{.data = 6, .parity = 2}))) {
    EXPECT_EQ(code_of(group), ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace deepfreeze
