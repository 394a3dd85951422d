#include "tiering/packing_judge.h"

#include <cmath>
#include <limits>
#include <utility>

#include "base/log.h"
#include "codec/pack.h"

namespace deepfreeze {
namespace {

// The link's rate is known after two slabs, and packing's: the first one counts a little less.
constexpr double kLinkBytesMin = 7.5 * 1024 * 1024;
constexpr double kPackingBytesMin = 7.5 * 1024 * 1024;
// Until packing is measured, which takes two slabs.
constexpr double kAssumedPacking = 1.0e9;
// Packing must be faster than the link by so much. The other threads want the cores, too: between
// 1 and 2, flushes on two cores were up to a tenth slower than plain ones.
constexpr double kMargin = 2;
// In a file of fewer bytes they hardly overlap: then packing takes at most 1/16 of the link's time.
constexpr std::uint64_t kShortBytes = 32U << 20U;
constexpr double kMarginOfShort = 16;
// After so many bytes without packing its rate is measured anew: the cores may be free now.
constexpr double kForgetBytes = 4.0 * 1024 * 1024 * 1024;

}  // namespace

Status check_packing() {
  const auto packer = Packer::make();
  if (!packer) return std::unexpected(packer.error());
  const auto unpacker = Unpacker::make();
  return unpacker ? Status{} : std::unexpected(unpacker.error());
}

void Rate::add(double bytes, double seconds) {
  const double kept = std::exp2(-bytes / kRateBytes);
  bytes_ = bytes_ * kept + bytes;
  seconds_ = seconds_ * kept + seconds;
}

double Rate::bytes_per_second() const {
  return seconds_ > 0 ? bytes_ / seconds_ : std::numeric_limits<double>::infinity();
}

void PackingJudge::note_sent(std::uint64_t bytes, double seconds) {
  const std::lock_guard lock(mutex_);
  link_.add(static_cast<double>(bytes), seconds);
  sent_since_packing_ += static_cast<double>(bytes);
  if (sent_since_packing_ > kForgetBytes) packing_.forget();
}

void PackingJudge::note_packed(std::uint64_t plain_bytes, double seconds) {
  const std::lock_guard lock(mutex_);
  packing_.add(static_cast<double>(plain_bytes), seconds);
  sent_since_packing_ = 0;
}

void PackingJudge::give_up(const Error& why) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(has_given_up_, true)) return;
  }
  log_warning("files are sent as they are: " + why.message());
}

bool PackingJudge::pays_now(std::uint64_t file_bytes) const {
  if (has_given_up_ || !link_.is_known(kLinkBytesMin)) return false;
  const double packing =
      packing_.is_known(kPackingBytesMin) ? packing_.bytes_per_second() : kAssumedPacking;
  const double margin = file_bytes < kShortBytes ? kMarginOfShort : kMargin;
  return packing > margin * link_.bytes_per_second();
}

bool PackingJudge::pays(std::uint64_t file_bytes) const {
  const std::lock_guard lock(mutex_);
  return pays_now(file_bytes);
}

bool PackingJudge::is_idle(std::uint64_t file_bytes) const {
  const std::lock_guard lock(mutex_);
  return has_given_up_ || (link_.is_known(kLinkBytesMin) && !pays_now(file_bytes));
}

}  // namespace deepfreeze
