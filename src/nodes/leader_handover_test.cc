#include "nodes/leader_handover.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/try.h"
#include "support/code_of.h"
#include "support/locked_memory.h"

namespace deepfreeze {
namespace {

LeftLeader left_of(const TlsIdentity& other) {
  LeftLeader left{.run_id = "run", .rank = 2, .nodes = {{0, 1}, {2, 3}}};
  left.peers.push_back({.rank = 0,
                        .key = other.public_key(),
                        .addresses = {LinkAddress::parse("127.0.0.1:5000").value(),
                                      LinkAddress::parse("[::1]:6000").value()},
                        .is_dialed = true});
  return left;
}

std::string bytes_of(const SharedMemory& memory) {
  return {reinterpret_cast<const char*>(memory.bytes().data()), memory.bytes().size()};
}

class LeaderHandoverTest : public testing::Test {
 protected:
  [[nodiscard]] Result<LeaderHandover> take() const {
    return LeaderHandover::take(UniqueFd(::dup(made_.secret())), UniqueFd(::dup(made_.facts())));
  }
  // Facts with these bytes at their end, or without so many of them.
  [[nodiscard]] Result<LeftLeader> read(std::string facts) const {
    DF_TRY(SharedMemory memory, SharedMemory::allocate(facts.size()));
    std::ranges::copy(std::as_bytes(std::span(facts)), memory.bytes().begin());
    DF_TRY(const LeaderHandover taken,
           LeaderHandover::take(UniqueFd(::dup(made_.secret())), UniqueFd(::dup(memory.fd()))));
    return taken.read();
  }
  [[nodiscard]] static Result<LeftLeader> read_nodes(
      std::vector<std::vector<std::uint32_t>> nodes) {
    DF_TRY(const TlsIdentity other, TlsIdentity::make());
    LeftLeader left = left_of(other);
    left.nodes = std::move(nodes);
    DF_TRY(const LeaderHandover made, LeaderHandover::make(left, other));
    return made.read();
  }
  [[nodiscard]] std::string facts() const {
    return bytes_of(SharedMemory::map(UniqueFd(::dup(made_.facts()))).value());
  }
  [[nodiscard]] std::string secret() const {
    return bytes_of(SharedMemory::map(UniqueFd(::dup(made_.secret()))).value());
  }

  const TlsIdentity own_ = TlsIdentity::make().value();
  const TlsIdentity other_ = TlsIdentity::make().value();
  const LeaderHandover made_ = LeaderHandover::make(left_of(other_), own_).value();
};

TEST_F(LeaderHandoverTest, AnotherProcessGetsAllOfIt) {
  auto taken = take();
  ASSERT_TRUE(taken) << taken.error().message();
  const auto left = taken->read();
  ASSERT_TRUE(left) << left.error().message();
  EXPECT_EQ(left->run_id, "run");
  EXPECT_EQ(left->rank, 2U);
  EXPECT_EQ(left->nodes, (std::vector<std::vector<std::uint32_t>>{{0, 1}, {2, 3}}));
  ASSERT_EQ(left->peers.size(), 1U);
  const LinkPeer& peer = left->peers.front();
  EXPECT_EQ(peer.rank, 0U);
  EXPECT_EQ(peer.key, other_.public_key());
  EXPECT_TRUE(peer.is_dialed);
  ASSERT_EQ(peer.addresses.size(), 2U);
  EXPECT_EQ(peer.addresses.front().text(), "127.0.0.1:5000");
  const auto identity = taken->take_identity();
  ASSERT_TRUE(identity) << identity.error().message();
  EXPECT_EQ(identity->public_key(), own_.public_key());
}

TEST_F(LeaderHandoverTest, TheKeyLiesInItsPageAloneUntilItIsTaken) {
  const std::string key = own_.private_key().value();
  EXPECT_FALSE(facts().contains(key));
  EXPECT_TRUE(secret().contains(key));
  auto taken = take();
  ASSERT_TRUE(taken && taken->take_identity());
  EXPECT_EQ(secret().find_first_not_of('\0'), std::string::npos);
  EXPECT_EQ(code_of(taken->take_identity()), ErrorCode::kInvalidArgument);
}

TEST_F(LeaderHandoverTest, BothProcessesLockThePageOfTheKey) {
  if (!locks_memory()) GTEST_SKIP() << "LEFT OUT: mlock() locks nothing: ASan, or RLIMIT_MEMLOCK";
  const std::uint64_t before = locked_memory();
  const auto made = LeaderHandover::make(left_of(other_), own_);
  ASSERT_TRUE(made);
  EXPECT_EQ(locked_memory(), before + 4);
  const auto taken = take();
  ASSERT_TRUE(taken);
  EXPECT_EQ(locked_memory(), before + 8);
}

TEST_F(LeaderHandoverTest, OtherMemoryIsRefused) {
  const std::string whole = facts();
  ASSERT_TRUE(read(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(read(whole.substr(0, size))) << size;
  }
  EXPECT_EQ(code_of(read(whole + "x")), ErrorCode::kCorrupt);
  const auto swapped =
      LeaderHandover::take(UniqueFd(::dup(made_.facts())), UniqueFd(::dup(made_.secret())));
  EXPECT_EQ(code_of(swapped), ErrorCode::kCorrupt);
  EXPECT_EQ(code_of(LeaderHandover::take(UniqueFd(::dup(STDIN_FILENO)), UniqueFd())),
            ErrorCode::kInvalidArgument);
}

TEST_F(LeaderHandoverTest, AKeyThatIsLongerThanItsPageIsRefused) {
  const SharedMemory secret = SharedMemory::allocate(4096).value();
  const std::uint16_t bytes = 4095;
  std::memcpy(secret.bytes().data(), &bytes, sizeof(bytes));
  auto taken = LeaderHandover::take(UniqueFd(::dup(secret.fd())), UniqueFd(::dup(made_.facts())));
  ASSERT_TRUE(taken);
  EXPECT_EQ(code_of(taken->take_identity()), ErrorCode::kCorrupt);
}

TEST_F(LeaderHandoverTest, NodesHaveEachRankOnceAndThisOneLeads) {
  using Nodes = std::vector<std::vector<std::uint32_t>>;
  EXPECT_TRUE(read_nodes({{0, 1}, {2, 3}}));
  for (const Nodes& nodes : {Nodes{}, Nodes{{0, 1}, {2, 4}}, Nodes{{0, 1}, {1, 2}},
                             Nodes{{0, 1}, {2}, {}}, Nodes{{0, 2}, {1}}}) {
    EXPECT_EQ(code_of(read_nodes(nodes)), ErrorCode::kCorrupt);
  }
}

}  // namespace
}  // namespace deepfreeze
