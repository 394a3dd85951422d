#include "storage/uring_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>

#include "storage/posix_vfs.h"
#include "support/aligned_bytes.h"
#include "support/code_of.h"
#include "support/deny_syscall.h"
#include "support/scoped_dir.h"

namespace deepfreeze::uring_queue_test {
namespace {

constexpr std::size_t kPage = 4096;

// Asks the system call itself, so that a queue that fails to open can't pass for a machine without
// io_uring.
TEST(UringQueue, OpensWhereTheKernelSetsARingUp) {
  io_uring_params parameters = {};
  const long fd = ::syscall(SYS_io_uring_setup, 4, &parameters);
  if (fd < 0) GTEST_SKIP() << "LEFT OUT: this machine allows no io_uring: " << std::strerror(errno);
  ::close(static_cast<int>(fd));
  const auto queue = UringQueue::open(4);
  EXPECT_TRUE(queue) << queue.error().message();
}

class UringQueueTest : public testing::Test {
 protected:
  void SetUp() override {
    memory_.fill_pattern();
    auto queue = UringQueue::open(4);
    if (!queue) {
      ASSERT_EQ(queue.error().code(), ErrorCode::kUnsupported) << queue.error().message();
      GTEST_SKIP() << "LEFT OUT: " << queue.error().message();
    }
    queue_ = *std::move(queue);
  }

  // Writes pages [first, first + count) of the memory to the same place of the file.
  [[nodiscard]] UringDone write_pages(std::size_t first, std::size_t count) {
    const Status sent =
        queue_->submit({.fd = file_->native_fd().value(),
                        .offset = first * kPage,
                        .bytes = memory_.bytes().subspan(first * kPage, count * kPage),
                        .tag = first});
    EXPECT_TRUE(sent) << sent.error().message();
    return queue_->reap();
  }
  [[nodiscard]] bool is_in_file(std::size_t first, std::size_t count) {
    const AlignedBytes back(count * kPage);
    EXPECT_EQ(file_->read_at(first * kPage, back.bytes()).value(), count * kPage);
    return std::ranges::equal(back.bytes(), memory_.bytes().subspan(first * kPage, count * kPage));
  }

  ScopedDir dir_;
  std::unique_ptr<Vfs> vfs_ = open_posix_vfs(dir_.path()).value();
  std::unique_ptr<File> file_ = vfs_->create("file", Access::kDirect).value();
  AlignedBytes memory_{8 * kPage};
  std::unique_ptr<UringQueue> queue_;
};

TEST(SplitForRegistration, PiecesCoverTheMemoryAndNoneIsTooLarge) {
  const AlignedBytes memory(8 * kPage);
  for (const std::size_t bytes : {std::size_t{0}, kPage, 3 * kPage, 3 * kPage + 1, 8 * kPage}) {
    const auto pieces = split_for_registration(memory.bytes().first(bytes), 3 * kPage);
    EXPECT_EQ(pieces.size(), (bytes + 3 * kPage - 1) / (3 * kPage));
    std::byte* next = memory.bytes().data();
    for (const iovec& piece : pieces) {
      EXPECT_EQ(piece.iov_base, next);
      EXPECT_LE(piece.iov_len, 3 * kPage);
      next += piece.iov_len;
    }
    EXPECT_EQ(next, memory.bytes().data() + bytes);
  }
}

TEST_F(UringQueueTest, WritesFromRegisteredAndFromOtherMemory) {
  EXPECT_EQ(write_pages(0, 2).result, 2 * kPage);
  ASSERT_TRUE(queue_->register_memory(memory_.bytes().first(4 * kPage)));
  EXPECT_EQ(queue_->registered_bytes(), 4 * kPage);
  EXPECT_EQ(write_pages(2, 2).result, 2 * kPage);
  const UringDone half_registered = write_pages(3, 3);
  EXPECT_EQ(half_registered.result, 3 * kPage);
  EXPECT_EQ(half_registered.tag, 3U);
  EXPECT_EQ(write_pages(6, 2).result, 2 * kPage);
  EXPECT_TRUE(is_in_file(0, 8));
}

TEST_F(UringQueueTest, WritesFromMemoryBeforeWhatIsRegistered) {
  ASSERT_TRUE(queue_->register_memory(memory_.bytes().subspan(3 * kPage, 3 * kPage), 2 * kPage));
  EXPECT_EQ(write_pages(0, 2).result, 2 * kPage);
  EXPECT_EQ(write_pages(1, 2).result, 2 * kPage);  // as a piece before the first would be
  EXPECT_EQ(write_pages(2, 2).result, 2 * kPage);  // into it
  EXPECT_EQ(write_pages(4, 4).result, 4 * kPage);  // out of it
  EXPECT_TRUE(is_in_file(0, 8));
}

TEST_F(UringQueueTest, WritesFromEveryPieceAndAcrossTwo) {
  ASSERT_TRUE(queue_->register_memory(memory_.bytes(), 3 * kPage));
  for (std::size_t page = 0; page < 8; ++page) EXPECT_EQ(write_pages(page, 1).result, kPage);
  EXPECT_TRUE(is_in_file(0, 8));
  ASSERT_TRUE(file_->truncate(0));
  EXPECT_EQ(write_pages(0, 3).result, 3 * kPage);
  EXPECT_EQ(write_pages(2, 3).result, 3 * kPage);  // across
  EXPECT_EQ(write_pages(4, 4).result, 4 * kPage);
  EXPECT_TRUE(is_in_file(0, 8));
}

TEST_F(UringQueueTest, MemoryCanBeRegisteredAgainAndAgain) {
  for (std::size_t round = 1; round <= 8; ++round) {
    const Status registered = queue_->register_memory(memory_.bytes().first(round * kPage));
    ASSERT_TRUE(registered) << registered.error().message();
    EXPECT_EQ(write_pages(round - 1, 1).result, kPage);
  }
  queue_->unregister_memory();
  EXPECT_EQ(queue_->registered_bytes(), 0U);
  EXPECT_EQ(write_pages(0, 8).result, 8 * kPage);
  EXPECT_TRUE(is_in_file(0, 8));
}

TEST_F(UringQueueTest, AFailedWriteComesBackAsItsErrno) {
  const int read_only = ::open((dir_.path() / "file").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_TRUE(queue_->submit({.fd = read_only, .offset = 0, .bytes = memory_.bytes(), .tag = 7}));
  const UringDone done = queue_->reap();
  EXPECT_EQ(done.tag, 7U);
  EXPECT_EQ(done.result, -EBADF);
  ::close(read_only);
}

// Each as some sandbox does it.
TEST_F(UringQueueTest, WhereTheKernelRefusesItIsUnsupported) {
  for (const DeniedCall denied : {DeniedCall{.number = SYS_io_uring_setup, .os_errno = EPERM},
                                  DeniedCall{.number = SYS_io_uring_setup, .os_errno = ENOSYS},
                                  DeniedCall{.number = SYS_io_uring_setup, .os_errno = ENOMEM},
                                  DeniedCall{.number = SYS_io_uring_enter, .os_errno = EPERM},
                                  DeniedCall{.number = SYS_io_uring_register, .os_errno = EPERM}}) {
    const bool ran = run_with_denied(denied, [&] {
      const auto queue = UringQueue::open(4);
      EXPECT_EQ(code_of(queue), ErrorCode::kUnsupported) << denied.number;
      EXPECT_NE(queue.error().message().find("io_uring"), std::string::npos);
    });
    if (!ran) std::cerr << "LEFT OUT: this machine allows no seccomp filter\n";
  }
}

// The entry that was not taken must never be sent: it names memory that may be gone.
TEST_F(UringQueueTest, ARefusedSubmissionBreaksTheQueueForGood) {
  const bool ran = run_with_denied({.number = SYS_io_uring_enter, .os_errno = EPERM}, [this] {
    const Status refused = queue_->submit(
        {.fd = file_->native_fd().value(), .offset = 0, .bytes = memory_.bytes(), .tag = 1});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().os_errno(), EPERM);
  });
  if (!ran) GTEST_SKIP() << "LEFT OUT: this machine allows no seccomp filter";
  EXPECT_TRUE(queue_->is_broken());
  EXPECT_FALSE(queue_->submit(
      {.fd = file_->native_fd().value(), .offset = 0, .bytes = memory_.bytes(), .tag = 2}));
  EXPECT_EQ(file_->size().value(), 0U);
}

}  // namespace
}  // namespace deepfreeze::uring_queue_test
