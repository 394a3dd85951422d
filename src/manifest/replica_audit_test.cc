#include "manifest/replica_audit.h"

#include <gtest/gtest.h>

#include "format/records.h"

namespace deepfreeze {
namespace {

AuditRecord record(std::string key, std::uint32_t crc, std::uint64_t first_byte = 0) {
  return {.key = std::move(key), .offset = {0}, .first_byte = first_byte, .bytes = 64, .crc = crc};
}

TEST(ReplicaAudit, FindsNothingWhereAllAreEqual) {
  ReplicaAudit audit;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    audit.add(rank, std::vector{record("w", 7), record("w", 8, 64)});
  }
  EXPECT_TRUE(audit.divergences().empty());
}

TEST(ReplicaAudit, NamesTheOneThatMostDontAgreeWith) {
  ReplicaAudit audit;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    audit.add(rank, std::vector{record("b", 5), record("w", rank == 2 ? 6U : 7U)});
  }
  EXPECT_EQ(audit.divergences(), (std::vector<Divergence>{{"w", {2}}}));
}

TEST(ReplicaAudit, NamesAllWhereThereAreNoMost) {
  ReplicaAudit two;
  for (std::uint32_t rank = 0; rank < 2; ++rank) two.add(rank, std::vector{record("w", rank)});
  EXPECT_EQ(two.divergences(), (std::vector<Divergence>{{"w", {0, 1}}}));
  ReplicaAudit four;
  for (std::uint32_t rank = 0; rank < 4; ++rank) four.add(rank, std::vector{record("w", rank % 2)});
  EXPECT_EQ(four.divergences(), (std::vector<Divergence>{{"w", {0, 1, 2, 3}}}));
}

TEST(ReplicaAudit, JoinsThePlacesOfATensor) {
  ReplicaAudit audit;
  for (std::uint32_t rank = 0; rank < 5; ++rank) {
    audit.add(rank, std::vector{record("w", rank == 4 ? 1 : 0), record("w", rank == 1 ? 1 : 0, 64),
                                record("a", rank == 3 ? 1 : 0)});
  }
  EXPECT_EQ(audit.divergences(), (std::vector<Divergence>{{"a", {3}}, {"w", {1, 4}}}));
}

// Bytes that only one rank has checked are compared with nothing; nor are boxes at different
// places.
TEST(ReplicaAudit, ComparesTheSameBytesOnly) {
  ReplicaAudit audit;
  AuditRecord lower = record("w", 1);
  lower.offset = {8};
  audit.add(0, std::vector{record("w", 2), record("x", 3)});
  audit.add(1, std::vector{lower, record("x", 4, 64)});
  EXPECT_TRUE(audit.divergences().empty());
}

TEST(ReplicaAudit, NamesNoMoreThanAManifestHolds) {
  ReplicaAudit audit;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    for (int i = 0; i < 200; ++i) audit.add(rank, std::vector{record(std::to_string(i), rank)});
  }
  EXPECT_EQ(audit.divergences().size(), kDivergencesMax);
}

}  // namespace
}  // namespace deepfreeze
