#include "cli/readings_output.h"

#include <fmt/ostream.h>

#include <algorithm>
#include <ostream>
#include <span>

#include "base/clock.h"
#include "cli/output.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kReadingsShown = 10;

std::string reading_text(const LastReading& reading, std::int64_t now) {
  if (!reading.read_micros) {
    return "never read in full, written " + human_age(reading.written_micros, now);
  }
  return fmt::format("read in full {}{}", human_age(*reading.read_micros, now),
                     reading.good ? "" : ", with a fault");
}

}  // namespace

void print_readings(const std::vector<LastReading>& readings, std::ostream& out) {
  if (readings.empty()) return;
  fmt::print(out, "the blocks were not read; --verify reads them all\n");
  const std::int64_t now = wall_micros();
  const std::size_t shown = std::min(readings.size(), kReadingsShown);
  for (std::size_t i = 0; i < shown; ++i) {
    fmt::print(out, "  step {}: {}\n", readings[i].attempt.step, reading_text(readings[i], now));
  }
  if (shown == readings.size()) return;
  const std::span others = std::span(readings).subspan(shown);
  const auto never = std::ranges::count_if(
      others, [](const LastReading& one) { return !one.read_micros.has_value(); });
  fmt::print(out, "  and {} older checkpoints, {} of them never read in full; --json lists them\n",
             others.size(), never);
}

void write_reading(JsonWriter& json, const LastReading& reading) {
  json.begin_object();
  json.members("directory", attempt_dir_name(reading.attempt), "step", reading.attempt.step,
               "written_micros", reading.written_micros, "last_full_read_micros",
               reading.read_micros);
  json.key("last_full_read_good");
  reading.read_micros ? json.value(reading.good) : json.value(nullptr);
  json.end_object();
}

}  // namespace deepfreeze
