#include "json/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/utf8.h"
#include "json/plain.h"

namespace deepfreeze {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

void append_escape(fmt::memory_buffer& out, char c, ControlEscapes form) {
  constexpr std::string_view kNamed = "\"\\\b\f\n\r\t";
  constexpr std::string_view kNames = "\"\\bfnrt";
  const std::size_t index = kNamed.find(c);
  if (c >= ' ' || (form == ControlEscapes::kShort && index != std::string_view::npos)) {
    out.push_back('\\');
    out.push_back(kNames[index]);
    return;
  }
  fmt::format_to(fmt::appender(out), "\\u{:04x}", static_cast<unsigned>(c));
}

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

// The length of the beginning of `text` that stands for itself.
std::size_t unescaped_bytes(std::string_view text) {
  std::size_t at = 0;
  for (std::size_t character = 1; character > 0; at += character) {
    while (at < text.size() && is_plain(text[at])) ++at;
    const bool is_other = at < text.size() && !is_ascii(text[at]);
    character = is_other ? utf8_sequence_bytes(text.substr(at)) : 0;
  }
  return at;
}

// The shortest decimal digits that give the same number: 0.<digits> times 10^point.
struct Decimal {
  std::string digits;
  int point;
};

Decimal decimal_of(double value) {
  std::array<char, 32> buffer{};
  const char* const begin = buffer.data();
  const char* const end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                        std::chars_format::scientific)
                              .ptr;
  const std::string_view text(begin, static_cast<std::size_t>(end - begin));
  const std::size_t e = text.find('e');
  Decimal decimal{.digits = std::string(text.substr(0, e)), .point = 0};
  std::erase(decimal.digits, '.');
  const std::size_t exponent = e + (text[e + 1] == '+' ? 2 : 1);  // from_chars takes no plus sign
  std::from_chars(begin + exponent, end, decimal.point);
  ++decimal.point;
  return decimal;
}

}  // namespace

void append_json_string(fmt::memory_buffer& out, std::string_view text, ControlEscapes form) {
  out.push_back('"');
  while (!text.empty()) {
    const std::size_t bytes = unescaped_bytes(text);
    append_text(out, text.substr(0, bytes));
    text.remove_prefix(bytes);
    if (text.empty()) break;
    if (is_ascii(text.front())) {
      append_escape(out, text.front(), form);
      text.remove_prefix(1);
    } else {
      append_text(out, kReplacement);
      text.remove_prefix(utf8_broken_bytes(text));
    }
  }
  out.push_back('"');
}

// Always with a point or an exponent, so that it is read as a fraction again.
void append_json_number(fmt::memory_buffer& out, double value) {
  constexpr int kPlainPointMin = -3;  // 0.0001; smaller ones have an exponent
  constexpr int kPlainPointMax = 15;
  if (std::signbit(value)) out.push_back('-');
  const auto [digits, point] = decimal_of(std::abs(value));
  const int count = static_cast<int>(digits.size());
  if (point > kPlainPointMax || point < kPlainPointMin) {
    append_text(out, digits.substr(0, 1));
    if (count > 1) fmt::format_to(fmt::appender(out), ".{}", digits.substr(1));
    fmt::format_to(fmt::appender(out), "e{}{:02}", point > 0 ? '+' : '-', std::abs(point - 1));
  } else if (point <= 0) {
    fmt::format_to(fmt::appender(out), "0.{:0<{}}{}", "", -point, digits);
  } else if (count <= point) {
    fmt::format_to(fmt::appender(out), "{:0<{}}.0", digits, point);
  } else {
    const auto whole = static_cast<std::size_t>(point);
    fmt::format_to(fmt::appender(out), "{}.{}", digits.substr(0, whole), digits.substr(whole));
  }
}

void append_json_array(fmt::memory_buffer& out, std::span<const std::uint64_t> values) {
  out.push_back('[');
  for (const std::uint64_t& value : values) {
    if (&value != values.data()) out.push_back(',');
    append_text(out, fmt::format_int(value).c_str());
  }
  out.push_back(']');
}

void JsonWriter::key(std::string_view name) {
  separate();
  append_json_string(out_, name);
  append_text(out_, layout_ == Layout::kIndented ? ": " : ":");
  has_key_ = true;
}

void JsonWriter::begin(char open) {
  separate();
  out_.push_back(open);
  ++depth_;
  is_empty_ = true;
}

void JsonWriter::end(char close) {
  --depth_;
  if (!is_empty_) new_line();
  out_.push_back(close);
  is_empty_ = false;
}

// Goes before every key, and before every value that has none.
void JsonWriter::separate() {
  if (std::exchange(has_key_, false) || depth_ == 0) return;
  if (!std::exchange(is_empty_, false)) out_.push_back(',');
  new_line();
}

void JsonWriter::new_line() {
  constexpr std::size_t kIndent = 2;
  if (layout_ == Layout::kOneLine) return;
  out_.push_back('\n');
  append_text(out_, std::string(kIndent * depth_, ' '));
}

void JsonWriter::word(std::string_view text) {
  separate();
  append_text(out_, text);
}

void JsonWriter::string(std::string_view text) {
  separate();
  append_json_string(out_, text);
}

void JsonWriter::number(double value) {
  if (std::isnan(value)) return string("nan");
  if (std::isinf(value)) return string(value > 0 ? "inf" : "-inf");
  separate();
  append_json_number(out_, value);
}

}  // namespace deepfreeze
