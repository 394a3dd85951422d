#include "object/iso_time.h"

#include <algorithm>
#include <array>

namespace deepfreeze {
namespace {

constexpr int kLastYear = 2200;  // of those that a time point of nanoseconds can hold

// Takes a number of exactly so many digits.
std::optional<int> take_digits(std::string_view& text, std::size_t count) {
  if (text.size() < count) return std::nullopt;
  int number = 0;
  for (const char c : text.substr(0, count)) {
    if (c < '0' || c > '9') return std::nullopt;
    number = 10 * number + (c - '0');
  }
  text.remove_prefix(count);
  return number;
}

// Numbers with one character between each and the next.
template <std::size_t kCount>
std::optional<std::array<int, kCount>> take_numbers(std::string_view& text,
                                                    std::string_view separators,
                                                    std::size_t first_digits) {
  std::array<int, kCount> numbers{};
  for (std::size_t i = 0; i < kCount; ++i) {
    if (i > 0) {
      if (!text.starts_with(separators[i - 1])) return std::nullopt;
      text.remove_prefix(1);
    }
    const auto number = take_digits(text, i == 0 ? first_digits : 2);
    if (!number) return std::nullopt;
    numbers.at(i) = *number;
  }
  return numbers;
}

void skip_fraction(std::string_view& text) {
  if (!text.starts_with('.')) return;
  const std::size_t end = text.find_first_not_of("0123456789", 1);
  text.remove_prefix(std::min(end, text.size()));
}

// "Z", "+02:00" or "+0200", and nothing behind it.
std::optional<std::chrono::minutes> read_utc_offset(std::string_view text) {
  if (text == "Z" || text == "z") return std::chrono::minutes(0);
  if (!text.starts_with('+') && !text.starts_with('-')) return std::nullopt;
  const int sign = text.front() == '-' ? -1 : 1;
  text.remove_prefix(1);
  const auto hours = take_digits(text, 2);
  if (text.starts_with(':')) text.remove_prefix(1);
  const auto minutes = take_digits(text, 2);
  if (!hours || !minutes || !text.empty() || *hours > 23 || *minutes > 59) return std::nullopt;
  return std::chrono::minutes(sign * (60 * *hours + *minutes));
}

}  // namespace

std::optional<SystemTime> parse_iso_time(std::string_view text) {
  using std::chrono::system_clock;
  const auto date = take_numbers<3>(text, "--", 4);
  if (!date || text.empty() || (text.front() != 'T' && text.front() != ' ')) return std::nullopt;
  text.remove_prefix(1);
  const auto time = take_numbers<3>(text, "::", 2);
  if (!time) return std::nullopt;
  skip_fraction(text);
  const auto offset = read_utc_offset(text);
  const auto [year, month, day] = *date;
  const auto [hours, minutes, seconds] = *time;
  const std::chrono::year_month_day calendar{std::chrono::year(year),
                                             std::chrono::month(static_cast<unsigned>(month)),
                                             std::chrono::day(static_cast<unsigned>(day))};
  if (!offset || !calendar.ok() || hours > 23 || minutes > 59 || seconds > 60) return std::nullopt;
  if (year > kLastYear) return std::chrono::sys_days(std::chrono::year(kLastYear) / 12 / 31);
  if (year < 1970) return system_clock::time_point{};
  return std::chrono::sys_days(calendar) + std::chrono::hours(hours) +
         std::chrono::minutes(minutes) + std::chrono::seconds(seconds) - *offset;
}

}  // namespace deepfreeze
