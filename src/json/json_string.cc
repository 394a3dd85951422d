// Strings and numbers of JsonReader.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/utf8.h"
#include "json/json_reader.h"
#include "json/plain.h"

namespace deepfreeze {
namespace {

// The character that a one-letter escape stands for; 0 if it is no escape.
char unescape(char letter) {
  switch (letter) {
    case '"':
    case '\\':
    case '/':
      return letter;
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return 0;
  }
}

void append_utf8(std::string& out, std::uint32_t point) {
  const auto put = [&out](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  const auto put_tail = [&](std::uint32_t bits) { put(0x80 | (bits & 0x3f)); };
  if (point < 0x80) return put(point);
  if (point < 0x800) {
    put(0xc0 | point >> 6);
  } else {
    if (point < 0x10000) {
      put(0xe0 | point >> 12);
    } else {
      put(0xf0 | point >> 18);
      put_tail(point >> 12);
    }
    put_tail(point >> 6);
  }
  put_tail(point);
}

template <class T>
std::optional<T> parse_whole(std::string_view token) {
  T value{};
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  if (error != std::errc{} || end != token.data() + token.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string_view JsonReader::read_string() {
  if (!expect('"')) return {};
  std::size_t begin = at_;
  if (!skip_plain()) return {};
  if (text_[at_] == '"') return text_.substr(begin, at_++ - begin);
  std::string& out = unescaped_.emplace_back(text_.substr(begin, at_ - begin));
  while (take('\\')) {
    read_escape(out);
    begin = at_;
    if (!skip_plain()) return {};
    out.append(text_.substr(begin, at_ - begin));
  }
  return expect('"') ? std::string_view(out) : std::string_view{};
}

// Stops at a quote or a backslash.
bool JsonReader::skip_plain() {
  while (ok()) {
    while (at_ < text_.size() && is_plain(text_[at_])) ++at_;
    if (at_ == text_.size()) {
      refuse("a string without an end");
    } else if (text_[at_] == '"' || text_[at_] == '\\') {
      return true;
    } else if (static_cast<unsigned char>(text_[at_]) < 0x20) {
      refuse("a control character in a string");
    } else {
      const std::size_t bytes = utf8_sequence_bytes(text_.substr(at_));
      if (bytes == 0) refuse("a string that is not UTF-8");
      at_ += bytes;
    }
  }
  return false;
}

void JsonReader::read_escape(std::string& out) {
  if (take('u')) {
    if (const auto point = read_code_point()) append_utf8(out, *point);
    return;
  }
  const char c = at_ < text_.size() ? unescape(text_[at_]) : '\0';
  if (c == 0) return refuse("an unknown escape in a string");
  out.push_back(c);
  ++at_;
}

std::optional<std::uint32_t> JsonReader::read_code_point() {
  const auto high = read_code_unit();
  if (!high || *high < 0xd800 || *high > 0xdfff) return high;
  if (*high < 0xdc00 && take('\\') && take('u')) {
    const auto low = read_code_unit();
    if (low && *low >= 0xdc00 && *low <= 0xdfff) {
      return 0x10000 + ((*high - 0xd800) << 10) + (*low - 0xdc00);
    }
  }
  refuse("half a surrogate pair in a string");
  return std::nullopt;
}

std::optional<std::uint32_t> JsonReader::read_code_unit() {
  std::uint32_t unit = 0;
  const std::string_view digits = text_.substr(at_, 4);
  const char* end = std::from_chars(digits.data(), digits.data() + digits.size(), unit, 16).ptr;
  if (end - digits.data() != 4) {
    refuse("expected four hexadecimal digits");
    return std::nullopt;
  }
  at_ += 4;
  return unit;
}

std::optional<std::uint64_t> to_u64(std::string_view token) {
  return parse_whole<std::uint64_t>(token);
}

std::optional<std::int64_t> to_i64(std::string_view token) {
  return parse_whole<std::int64_t>(token);
}

std::optional<double> to_double(std::string_view token) {
  const auto value = parse_whole<double>(token);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

bool is_float_token(std::string_view token) {
  return token.find_first_of(".eE") != std::string_view::npos;
}

bool is_in_range(std::string_view token) {
  if (is_float_token(token)) return to_double(token).has_value();
  return to_u64(token).has_value() || to_i64(token).has_value();
}

}  // namespace deepfreeze
