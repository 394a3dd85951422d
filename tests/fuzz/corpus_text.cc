#include "fuzz/corpus_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace deepfreeze {
namespace {

bool is_plain(char c) { return c >= ' ' && c <= '~' && c != '\\'; }

std::string escape_byte(char c) {
  if (c == '\n') return "\\n";
  if (c == '\\') return "\\\\";
  return fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
}

// The byte that the escape at the front of `text` stands for, which is taken off.
char take_escape(std::string_view& text) {
  constexpr std::size_t kHexEscapeBytes = 4;  // \xNN
  if (text.starts_with("\\x") && text.size() >= kHexEscapeBytes) {
    unsigned value = 0;
    std::from_chars(text.data() + 2, text.data() + kHexEscapeBytes, value, 16);
    text.remove_prefix(kHexEscapeBytes);
    return static_cast<char>(value);
  }
  const bool is_newline = text.starts_with("\\n");
  text.remove_prefix(std::min<std::size_t>(text.size(), 2));
  return is_newline ? '\n' : '\\';
}

}  // namespace

std::string escape_input(std::string_view input) {
  std::string line;
  for (const char c : input) {
    const bool is_comment = c == '#' && line.empty();
    if (is_plain(c) && !is_comment) {
      line += c;
    } else {
      line += escape_byte(c);
    }
  }
  return line;
}

std::string unescape_input(std::string_view line) {
  std::string input;
  while (!line.empty()) {
    if (line.front() == '\\') {
      input += take_escape(line);
    } else {
      input += line.front();
      line.remove_prefix(1);
    }
  }
  return input;
}

std::vector<std::string> parse_corpus(std::string_view text) {
  std::vector<std::string> inputs;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.starts_with('#')) inputs.push_back(unescape_input(line));
  }
  return inputs;
}

std::string write_corpus(std::vector<std::string> inputs) {
  std::ranges::sort(inputs, [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), std::string_view(a)) < std::pair(b.size(), std::string_view(b));
  });
  const auto twice = std::ranges::unique(inputs);
  inputs.erase(twice.begin(), twice.end());
  std::string text;
  for (const std::string& input : inputs) text += escape_input(input) + "\n";
  return text;
}

}  // namespace deepfreeze
