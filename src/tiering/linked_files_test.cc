// Files that checkpoints share, on tiers with hard links.
#include "base/fail_point.h"
#include "tiering/shared_files_fixture.h"

namespace deepfreeze::linked_files_test {
namespace {

class LinkedOnATier : public SharedFiles {
 protected:
  SimDisk far_;
  VfsTierStore store_{far_};
};

TEST_F(LinkedOnATier, AreSentTwiceAndThenLinkedInTurn) {
  std::vector<Manifest> saved;
  for (int i = 0; i < 7; ++i) {
    saved.push_back(run_.save());
    if (i == 0) continue;  // the tier does not want the first, for which the file was written
    ASSERT_EQ(text_of(flush(saved.back(), store_)), "");
    EXPECT_EQ(sent_cold(), i == 1 || i == 3) << i;
    EXPECT_TRUE(has_committed(far_, saved.back()));
  }
  EXPECT_EQ(broken_tier(far_, run_.run_id()), "");
  ASSERT_TRUE(far_.flip_bit(cold_of(saved[5]), 8 * kColdBytes));
  for (std::size_t i = 1; i < saved.size(); ++i) {
    const bool is_the_first_copy = i < 3 || i == 5;
    EXPECT_EQ(verify_attempt(far_, saved[i]).has_value(), !is_the_first_copy) << i;
  }
}

TEST_F(LinkedOnATier, AreSentTwiceByAForkToo) {
  SimDisk disk;
  SharingRun fork(disk, true);
  for (int i = 0; i < 4; ++i) {
    const Manifest saved = fork.save();
    ASSERT_EQ(text_of(flush_from(disk, saved, store_)), "");
    EXPECT_EQ(sent_cold(), i == 0 || i == 2) << i;
  }
  EXPECT_EQ(broken_tier(far_, fork.run_id()), "");
}

TEST_F(LinkedOnATier, AreLinkedIfOneCheckpointIsKept) {
  for (int i = 0; i < 4; ++i) {
    const Manifest saved = run_.save();
    ASSERT_EQ(text_of(flush(saved, store_)), "");
    EXPECT_EQ(sent_cold(), i < 1) << i;
    ASSERT_TRUE(collect_garbage(far_, {.last = 1}));
  }
  EXPECT_EQ(broken_tier(far_, run_.run_id()), "");
}

TEST_F(LinkedOnATier, AreSentIfTheTierRefusesLinks) {
  far_.refuse_links();
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(text_of(flush(run_.save(), store_)), "");
    EXPECT_TRUE(sent_cold()) << i;
  }
  EXPECT_EQ(broken_tier(far_, run_.run_id()), "");
}

TEST_F(LinkedOnATier, AreSentIfTheListingIsOldOrTheCopyIsNotTheirs) {
  const Manifest first = run_.save();
  ASSERT_EQ(text_of(flush(first, store_)), "");
  const RunListing old = read_run(far_).value();
  ASSERT_TRUE(remove_attempt(far_, name_of(first)));
  const Manifest second = run_.save();
  ASSERT_EQ(text_of(flush(second, store_, &old)), "");
  EXPECT_TRUE(sent_cold());
  ASSERT_TRUE(far_.flip_bit(cold_of(second), 100));  // of the header
  const Manifest third = run_.save();
  ASSERT_EQ(text_of(flush(third, store_)), "");
  EXPECT_TRUE(sent_cold());
  EXPECT_EQ(text_of(verify_attempt(far_, third)), "");
}

// The power fails at the link, and after it; the next flusher completes the attempt.
TEST_F(LinkedOnATier, AnEndAtTheLinkLeavesAWholeRun) {
  std::vector<Manifest> saved;
  for (int i = 0; i < 4; ++i) {
    saved.push_back(run_.save());
    if (i == 3) break;
    ASSERT_EQ(text_of(flush(saved.back(), store_)), "");
  }
  ASSERT_TRUE(fail_points::arm("tier.linked=error"));
  EXPECT_TRUE(flush(saved.back(), store_)) << "it is sent instead";
  fail_points::disarm();
  ASSERT_TRUE(fail_points::arm("flush.file=error@2"));
  const Manifest last = run_.save();
  EXPECT_FALSE(flush(last, store_));
  fail_points::disarm();
  far_.power_off();
  for (const auto& image : far_.crash_images(40, 0)) {
    ASSERT_EQ(broken_tier(*image, run_.run_id()), "") << image->label();
    VfsTierStore again(*image);
    ASSERT_EQ(text_of(flush(last, again)), "") << image->label();
    EXPECT_TRUE(has_committed(*image, last));
    EXPECT_EQ(broken_tier(*image, run_.run_id()), "") << image->label();
  }
}

}  // namespace
}  // namespace deepfreeze::linked_files_test
