#include "object/s3_text.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace deepfreeze {
namespace {

constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::size_t kChecksumLetters = 6;  // of 6 bits each, 4 more than a checksum has
constexpr unsigned kLetterBits = 6;
constexpr std::uint64_t kLetterMask = (1U << kLetterBits) - 1;
constexpr unsigned kSpareBits = 4;

struct CivilTime {
  std::uint64_t year, month, day, hour, minute, second;
};

std::optional<SystemTime> time_of(const CivilTime& civil) {
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(civil.year)),
                                         std::chrono::month(static_cast<unsigned>(civil.month)),
                                         std::chrono::day(static_cast<unsigned>(civil.day))};
  if (!date.ok() || civil.hour > 23 || civil.minute > 59 || civil.second > 60) return std::nullopt;
  return std::chrono::sys_days(date) + std::chrono::hours(civil.hour) +
         std::chrono::minutes(civil.minute) + std::chrono::seconds(civil.second);
}

// Takes numbers and fixed text from the front of a text; once something is missing, all is.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : left_(text) {}

  std::uint64_t number(std::size_t digits) {
    const auto value = parse_number(left_.substr(0, digits));
    is_good_ = is_good_ && value && left_.size() >= digits;
    if (is_good_) left_.remove_prefix(digits);
    return value.value_or(0);
  }
  void text(std::string_view wanted) {
    is_good_ = is_good_ && left_.starts_with(wanted);
    if (is_good_) left_.remove_prefix(wanted.size());
  }
  std::string_view word(std::size_t bytes) {
    const std::string_view found = left_.substr(0, bytes);
    is_good_ = is_good_ && found.size() == bytes;
    if (is_good_) left_.remove_prefix(bytes);
    return found;
  }
  [[nodiscard]] std::string_view left() const { return left_; }
  [[nodiscard]] bool is_good() const { return is_good_; }

 private:
  std::string_view left_;
  bool is_good_ = true;
};

// 0 if there is no such month.
std::uint64_t month_number(std::string_view name) {
  constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const auto* const found = std::ranges::find(kMonths, name);
  return found == kMonths.end() ? 0 : static_cast<std::uint64_t>(found - kMonths.begin()) + 1;
}

std::optional<unsigned> hex_value(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A') + 10;
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
  return std::nullopt;
}

}  // namespace

std::string checksum_text(std::uint32_t crc32c) {
  const std::uint64_t bits = std::uint64_t{crc32c} << kSpareBits;
  std::string text;
  for (std::size_t i = kChecksumLetters; i-- > 0;) {
    text += kBase64[(bits >> (i * kLetterBits)) & kLetterMask];
  }
  return text + "==";
}

std::optional<std::uint32_t> parse_checksum(std::string_view text) {
  if (text.size() != kChecksumLetters + 2 || !text.ends_with("==")) return std::nullopt;
  std::uint64_t bits = 0;
  for (const char letter : text.substr(0, kChecksumLetters)) {
    const std::size_t value = kBase64.find(letter);
    if (value == std::string_view::npos) return std::nullopt;
    bits = bits << kLetterBits | value;
  }
  return static_cast<std::uint32_t>(bits >> kSpareBits);
}

std::optional<SystemTime> parse_http_date(std::string_view text) {
  Scanner scanner(text.substr(std::min(text.size(), text.find(' '))));
  CivilTime civil{};
  scanner.text(" ");
  civil.day = scanner.number(2);
  scanner.text(" ");
  civil.month = month_number(scanner.word(3));
  scanner.text(" ");
  civil.year = scanner.number(4);
  scanner.text(" ");
  civil.hour = scanner.number(2);
  scanner.text(":");
  civil.minute = scanner.number(2);
  scanner.text(":");
  civil.second = scanner.number(2);
  if (!scanner.is_good() || scanner.left() != " GMT") return std::nullopt;
  return time_of(civil);
}

std::optional<std::uint64_t> parse_number(std::string_view digits) {
  std::uint64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

std::optional<ContentRange> parse_content_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  const std::size_t dash = text.find('-');
  const std::size_t slash = text.find('/');
  if (!text.starts_with(kUnit) || slash == std::string_view::npos || dash > slash) {
    return std::nullopt;
  }
  const auto begin = parse_number(text.substr(kUnit.size(), dash - kUnit.size()));
  const auto last = parse_number(text.substr(dash + 1, slash - dash - 1));
  const auto total = parse_number(text.substr(slash + 1));
  if (!begin || !last || !total || *begin > *last || *last >= *total) return std::nullopt;
  return ContentRange{.begin = *begin, .end = *last + 1, .total = *total};
}

std::optional<std::string> url_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    const auto high = hex_value(text[i + 1]);
    const auto low = hex_value(text[i + 2]);
    if (!high || !low) return std::nullopt;
    decoded += static_cast<char>(*high * 16 + *low);
    i += 2;
  }
  return decoded;
}

}  // namespace deepfreeze
