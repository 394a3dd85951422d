// A node's parts: waited for alone, and checked from headers that its node has sent.
#include "manifest/parts_check.h"

#include <gtest/gtest.h>

#include "base/try.h"
#include "crash/attempt_maker.h"
#include "manifest/claims.h"
#include "manifest/record_file.h"
#include "manifest/sealed_parts.h"
#include "manifest/several_ranks.h"
#include "support/code_of.h"
#include "support/sim_disk.h"

namespace deepfreeze::parts_check_test {
namespace {

constexpr AttemptName kAttempt{3, 3};
constexpr std::uint32_t kRanks = 4;

// Ranks 0 and 1 are one node, 2 and 3 another.
class PartsOfNodes : public testing::Test {
 protected:
  PartsOfNodes() : run_id_(create_or_open_run(disk_, {})->run_id) {}

  Identity identity(std::uint32_t rank) const {
    return make_identity(run_id_, {1, 3, 3, 3}, {rank, kRanks, 0, 1});
  }
  Status seal(std::uint32_t rank) {
    DF_TRY_VOID(join_attempt(disk_, kAttempt));
    return write_and_seal(disk_, identity(rank));
  }
  CommitRequest request() const { return make_request(identity(0)); }
  // A message's contents about a file: its header, and its size.
  struct Sent {
    std::string header;
    std::uint64_t file_bytes = 0;
    [[nodiscard]] std::span<const std::byte> bytes() const {
      return std::as_bytes(std::span(header));
    }
  };
  Sent sent_of(std::uint32_t rank) {
    const std::string path =
        join_name(attempt_dir_name(kAttempt), sealed_file_name(identity(rank).part));
    const std::string file = read_file(disk_, path, 1 << 20).value();
    const auto first8 = std::as_bytes(std::span(file)).first<8>();
    return {file.substr(0, header_size(first8, file.size()).value()), file.size()};
  }

  SimDisk disk_;
  std::string run_id_;
};

// A rank of two files, of which the second was written for another attempt.
class LinkedParts : public testing::Test {
 protected:
  LinkedParts() {
    first_.header.identity = of(kOwn, 0);
    first_.crc = 1;
    second_.header.identity = of(kOrigin, 1);
    second_.crc = 2;
    first_.header.links = {{.file = 1,
                            .header_crc = 2,
                            .origin = Origin{.run_id = "00000000000000aa", .point = kOrigin}}};
  }
  static Identity of(const Point& point, std::uint32_t file) {
    return make_identity("00000000000000aa", point, {0, 1, file, 2});
  }
  [[nodiscard]] Result<CheckedParts> checked() {
    PartsCheck check(of(kOwn, 0));
    DF_TRY_VOID(check.add(of(kOwn, 0).part, first_));
    DF_TRY_VOID(check.add(of(kOwn, 1).part, second_));
    return check.finish();
  }

  static constexpr Point kOwn{1, 9, 9, 9};
  static constexpr Point kOrigin{1, 8, 8, 8};
  PartHeader first_{.header = {}, .file_bytes = 4096};
  PartHeader second_{.header = {}, .file_bytes = 4096};
};

TEST_F(LinkedParts, AreListedWithTheirOrigin) {
  const auto parts = checked();
  ASSERT_TRUE(parts.has_value()) << parts.error().message();
  EXPECT_EQ(parts->files[0].origin, std::nullopt);
  EXPECT_EQ(parts->files[1].origin, first_.header.links[0].origin);
}

TEST_F(LinkedParts, NeedTheWordOfTheFirstFile) {
  first_.header.links.clear();
  EXPECT_EQ(code_of(checked()), ErrorCode::kMismatch);
}

TEST_F(LinkedParts, AreThoseThatTheFirstFileNames) {
  second_.crc = 3;
  EXPECT_EQ(code_of(checked()), ErrorCode::kMismatch) << "another header";
  second_.crc = 2;
  second_.header.identity = of({1, 7, 7, 7}, 1);
  EXPECT_EQ(code_of(checked()), ErrorCode::kMismatch) << "another attempt";
  second_.header.identity = of(kOwn, 1);
  EXPECT_EQ(code_of(checked()), ErrorCode::kMismatch) << "written for this one after all";
  second_.header.identity = of(kOrigin, 1);
  EXPECT_TRUE(checked().has_value());
}

TEST_F(LinkedParts, NeverAreTheFirstFile) {
  first_.header.links = {{.file = 0,
                          .header_crc = 1,
                          .origin = Origin{.run_id = "00000000000000aa", .point = kOrigin}}};
  first_.header.identity = of(kOrigin, 0);
  second_.header.identity = of(kOwn, 1);
  EXPECT_EQ(code_of(checked()), ErrorCode::kMismatch);
}

TEST_F(PartsOfNodes, AreWaitedForAlone) {
  const std::array<std::uint32_t, 2> second = {2, 3};
  ASSERT_TRUE(seal(2));
  EXPECT_EQ(code_of(wait_for_parts(disk_, request(), second)), ErrorCode::kIncomplete);
  ASSERT_TRUE(seal(3));
  const auto parts = wait_for_parts(disk_, request(), second);
  ASSERT_TRUE(parts) << parts.error().message();
  ASSERT_EQ(parts->size(), 2U);
  EXPECT_EQ((*parts)[0], identity(2).part);
  EXPECT_EQ((*parts)[1], identity(3).part);
  EXPECT_EQ(code_of(wait_for_parts(disk_, request())), ErrorCode::kIncomplete);
  ASSERT_TRUE(seal(0));  // another node's, fetched meanwhile
  EXPECT_EQ(wait_for_parts(disk_, request(), second).value(), *parts);
}

TEST_F(PartsOfNodes, AreNotWaitedForIfOneFailed) {
  ASSERT_TRUE(seal(2));
  ASSERT_TRUE(seal(3));
  report_failed_part(disk_, kAttempt, identity(3).part, Error(ErrorCode::kNoSpace, "full"));
  const std::array<std::uint32_t, 2> second = {2, 3};
  const auto parts = wait_for_parts(disk_, request(), second);
  ASSERT_EQ(code_of(parts), ErrorCode::kIncomplete);
  EXPECT_TRUE(parts.error().message().contains("full"));
}

TEST_F(PartsOfNodes, AreCheckedFromMessagesAsFromFiles) {
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) ASSERT_TRUE(seal(rank));
  PartsCheck check(identity(0));
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    const Sent sent = sent_of(rank);
    const auto part = decode_part_header(sent.bytes(), sent.file_bytes);
    ASSERT_TRUE(part) << part.error().message();
    ASSERT_TRUE(check.add(identity(rank).part, *part));
  }
  const auto checked = check.finish();
  ASSERT_TRUE(checked) << checked.error().message();
  const auto read = check_parts(disk_, request(), present_parts(disk_, request()).value());
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(encode_manifest(committed_manifest(request(), *checked)),
            encode_manifest(committed_manifest(request(), *read)));
}

TEST_F(PartsOfNodes, OfAnotherAttemptOrRankAreRefused) {
  ASSERT_TRUE(seal(1));
  const Sent sent = sent_of(1);
  const PartHeader part = decode_part_header(sent.bytes(), sent.file_bytes).value();
  Identity other = identity(0);
  ++other.generation;
  EXPECT_EQ(code_of(PartsCheck(other).add(identity(1).part, part)), ErrorCode::kMismatch);
  EXPECT_EQ(code_of(PartsCheck(identity(0)).add(identity(2).part, part)), ErrorCode::kMismatch);
  EXPECT_TRUE(PartsCheck(identity(0)).add(identity(1).part, part));
}

TEST_F(PartsOfNodes, ThatAreCutOrOfAnotherSizeAreCorrupt) {
  ASSERT_TRUE(seal(1));
  const Sent sent = sent_of(1);
  EXPECT_EQ(code_of(decode_part_header(sent.bytes().first(64), sent.file_bytes)),
            ErrorCode::kCorrupt);
  EXPECT_EQ(code_of(decode_part_header(sent.bytes(), sent.file_bytes + 1)), ErrorCode::kCorrupt);
  EXPECT_EQ(code_of(decode_part_header({}, sent.file_bytes)), ErrorCode::kCorrupt);
}

TEST_F(PartsOfNodes, WithOneKeyTwiceAreRefused) {
  ASSERT_TRUE(seal(1));
  const Sent sent = sent_of(1);
  PartHeader part = decode_part_header(sent.bytes(), sent.file_bytes).value();
  PartsCheck check(identity(0));
  ASSERT_TRUE(check.add(identity(1).part, part));
  part.header.identity = identity(2);
  ASSERT_TRUE(check.add(identity(2).part, part));
  EXPECT_EQ(code_of(check.finish()), ErrorCode::kMismatch);
}

}  // namespace
}  // namespace deepfreeze::parts_check_test
