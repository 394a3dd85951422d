#include "storage/os_error.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace deepfreeze {
namespace {

TEST(OsError, CodesAreWhatACallerActsOn) {
  EXPECT_EQ(code_of_errno(ENOSPC), ErrorCode::kNoSpace);
  EXPECT_EQ(code_of_errno(EDQUOT), ErrorCode::kNoSpace);
  EXPECT_EQ(code_of_errno(ENOENT), ErrorCode::kNotFound);
  EXPECT_EQ(code_of_errno(EEXIST), ErrorCode::kExists);
  EXPECT_EQ(code_of_errno(EACCES), ErrorCode::kIo);
  EXPECT_EQ(code_of_errno(EROFS), ErrorCode::kIo);
}

TEST(OsError, NamesOperationPlaceAndCause) {
  const Error error = os_fail("write", "/run/a at 4096", ENOSPC).error();
  EXPECT_EQ(error.message(), "write /run/a at 4096: No space left on device");
  EXPECT_EQ(error.os_errno(), ENOSPC);
}

TEST(OsError, AnAnswerThatDidNotComeLeavesACopyGood) {
  for (const ErrorCode open : {ErrorCode::kTimeout, ErrorCode::kNoSpace, ErrorCode::kCancelled}) {
    EXPECT_TRUE(may_have_good_copy(Error(open, "read"))) << to_string(open);
  }
  for (const ErrorCode bad : {ErrorCode::kCorrupt, ErrorCode::kIncomplete, ErrorCode::kGone,
                              ErrorCode::kNotFound, ErrorCode::kMismatch, ErrorCode::kIo}) {
    EXPECT_FALSE(may_have_good_copy(Error(bad, "read"))) << to_string(bad);
  }
  EXPECT_TRUE(may_have_good_copy(os_fail("open", "/run/a", EMFILE).error()));
  EXPECT_FALSE(may_have_good_copy(os_fail("read", "/run/a", EIO).error()));
}

TEST(OsError, WhatRefusesTheProcessTellsNothingOfTheBytes) {
  for (const int refusal : {EACCES, EPERM, EMFILE, ENFILE, ENOMEM}) {
    EXPECT_TRUE(is_refusal(os_fail("open", "/run/a", refusal).error().within("file a"))) << refusal;
  }
  for (const int fault : {EIO, ELOOP, ENOENT, ENOSPC, ESTALE, EISDIR}) {
    EXPECT_FALSE(is_refusal(os_fail("open", "/run/a", fault).error())) << fault;
  }
  EXPECT_FALSE(is_refusal(Error(ErrorCode::kCorrupt, "torn")));
}

}  // namespace
}  // namespace deepfreeze
