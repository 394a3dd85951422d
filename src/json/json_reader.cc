#include "json/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "base/try.h"

namespace deepfreeze {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Many keys are sorted faster by their hashes. No choice of keys makes it slow: if hashes are
// equal, the keys themselves are sorted, as those of small objects always are.
bool are_surely_different(std::span<const std::string_view> keys) {
  constexpr std::size_t kFewKeys = 64;
  if (keys.size() <= kFewKeys) return false;
  std::vector<std::size_t> hashes(keys.size());
  std::ranges::transform(keys, hashes.begin(), std::hash<std::string_view>());
  std::ranges::sort(hashes);
  return std::ranges::adjacent_find(hashes) == hashes.end();
}

}  // namespace

JsonReader::Kind JsonReader::peek() {
  skip_space();
  if (!ok() || at_ == text_.size()) return Kind::kNone;
  const char c = text_[at_];
  switch (c) {
    case '{':
      return Kind::kObject;
    case '[':
      return Kind::kArray;
    case '"':
      return Kind::kString;
    case 't':
      return Kind::kTrue;
    case 'f':
      return Kind::kFalse;
    case 'n':
      return Kind::kNull;
    default:
      return c == '-' || is_digit(c) ? Kind::kNumber : Kind::kNone;
  }
}

void JsonReader::enter_object() { enter('{'); }
void JsonReader::enter_array() { enter('['); }
bool JsonReader::next_element() { return next(']'); }

bool JsonReader::next_member(std::string_view& key) {
  if (!next('}')) return false;
  key = read_string();
  if (!expect(':')) return false;
  keys_.push_back(key);
  return true;
}

std::string_view JsonReader::read_number() {
  skip_space();
  const std::size_t begin = at_;
  (void)take('-');
  if (!take('0')) skip_digits();
  if (take('.')) skip_digits();
  if (take('e') || take('E')) {
    if (!take('+')) (void)take('-');
    skip_digits();
  }
  return ok() ? text_.substr(begin, at_ - begin) : std::string_view{};
}

void JsonReader::read_word() {
  skip_space();
  for (const std::string_view word : {"true", "false", "null"}) {
    if (!text_.substr(at_).starts_with(word)) continue;
    at_ += word.size();
    return;
  }
  refuse("expected a value");
}

void JsonReader::skip_value() {
  std::string_view key;
  switch (peek()) {
    case Kind::kObject:
      enter_object();
      while (next_member(key)) skip_value();
      return;
    case Kind::kArray:
      enter_array();
      while (next_element()) skip_value();
      return;
    case Kind::kString:
      (void)read_string();
      return;
    case Kind::kNumber:
      if (!is_in_range(read_number())) refuse("a number out of range");
      return;
    default:
      read_word();
  }
}

void JsonReader::refuse(std::string_view cause) {
  if (ok()) error_.emplace(ErrorCode::kCorrupt, fmt::format("JSON at byte {}: {}", at_, cause));
}

Status JsonReader::finish() {
  skip_space();
  if (at_ != text_.size()) refuse("bytes after the end");
  if (error_) return std::unexpected(*error_);
  return {};
}

void JsonReader::skip_space() {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
}

bool JsonReader::take(char c) {
  if (error_ || at_ == text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

bool JsonReader::expect(char c) {
  skip_space();
  if (take(c)) return true;
  refuse(fmt::format("expected {}", c));
  return false;
}

void JsonReader::enter(char c) {
  if (!expect(c)) return;
  if (frames_.size() == depth_max_) return refuse("nested too deep");
  frames_.push_back({.keys_begin = keys_.size()});
}

bool JsonReader::next(char close) {
  skip_space();
  if (!ok()) return false;
  if (take(close)) {
    close_object();
    return false;
  }
  if (!frames_.back().first && !expect(',')) return false;
  frames_.back().first = false;
  return true;
}

void JsonReader::close_object() {
  const auto own = std::span(keys_).subspan(frames_.back().keys_begin);
  if (!are_surely_different(own)) {
    std::ranges::sort(own);
    const auto twice = std::ranges::adjacent_find(own);
    if (twice != own.end()) refuse(fmt::format("the key \"{}\" twice in one object", *twice));
  }
  keys_.resize(frames_.back().keys_begin);
  frames_.pop_back();
}

void JsonReader::skip_digits() {
  const std::size_t begin = at_;
  while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  if (at_ == begin) refuse("expected a digit");
}

}  // namespace deepfreeze
