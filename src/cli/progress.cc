#include "cli/progress.h"

#include <fmt/ostream.h>

#include <algorithm>
#include <memory>
#include <ostream>
#include <utility>

#include "cli/output.h"

namespace deepfreeze {
namespace {

constexpr std::chrono::milliseconds kQuiet{1000};
constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::size_t kBarWidth = 30;
constexpr std::string_view kWipe = "\r\033[K";

}  // namespace

Progress::Progress(const Console& console, std::string label, std::uint64_t total, Now now)
    : console_(console),
      label_(std::move(label)),
      total_(std::max<std::uint64_t>(total, 1)),
      now_(std::move(now)),
      start_(now_()),
      drawn_(start_) {}

Progress::~Progress() {
  if (visible_) console_.err << kWipe << std::flush;
}

void Progress::update(std::uint64_t done) {
  if (!console_.err_is_terminal) return;
  const Monotonic::time_point time = now_();
  if (time - start_ < kQuiet || (visible_ && time - drawn_ < kRedraw)) return;
  visible_ = true;
  drawn_ = time;
  const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(total_));
  const double seconds = std::chrono::duration<double>(time - start_).count();
  const auto filled = static_cast<std::size_t>(part * static_cast<double>(kBarWidth));
  const auto rate = static_cast<std::uint64_t>(static_cast<double>(done) / seconds);
  fmt::print(console_.err, "{}{} [{}{}] {:3.0f}%  {} of {}  {}/s", kWipe, label_,
             std::string(filled, '#'), std::string(kBarWidth - filled, '-'), part * 100,
             human_bytes(done), human_bytes(total_), human_bytes(rate));
  console_.err.flush();
}

Watch bars_on(const Console& console) {
  return [&console](std::string label, std::uint64_t total) {
    const auto bar = std::make_shared<Progress>(console, std::move(label), total);
    return [bar](std::uint64_t done) { bar->update(done); };
  };
}

}  // namespace deepfreeze
