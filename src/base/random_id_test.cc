#include "base/random_id.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <set>

namespace {

std::atomic<bool> is_refused{false};

}  // namespace

// In place of glibc's, for the whole program.
extern "C" ssize_t getrandom(void* into, std::size_t bytes, unsigned flags) {
  if (is_refused) {
    errno = EPERM;
    return -1;
  }
  return ::syscall(SYS_getrandom, into, bytes, flags);
}

namespace deepfreeze {
namespace {

std::set<std::uint64_t> drawn(std::size_t count) {
  std::set<std::uint64_t> ids;
  for (std::size_t i = 0; i < count; ++i) ids.insert(random_id());
  return ids;
}

TEST(RandomId, DoesNotRepeat) { EXPECT_EQ(drawn(1'000).size(), 1'000U); }

TEST(RandomId, ASandboxThatForbidsTheCallHasTheDevice) {
  is_refused = true;
  const auto ids = drawn(1'000);
  is_refused = false;
  EXPECT_EQ(ids.size(), 1'000U);
}

}  // namespace
}  // namespace deepfreeze
