#include "object/profile_file.h"

#include <algorithm>
#include <cctype>
#include <optional>

namespace deepfreeze {
namespace {

constexpr std::string_view kBlanks = " \t\r\f\v";

std::string_view without_spaces_around(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

// The profile of a section "[...]"; none if it is a section of another kind.
std::optional<std::string_view> profile_of_section(std::string_view line, ProfileFile file) {
  std::string_view name = without_spaces_around(line.substr(1, line.find(']') - 1));
  if (file == ProfileFile::kCredentials || name == "default") return name;
  constexpr std::string_view kWord = "profile";
  if (!name.starts_with(kWord)) return std::nullopt;
  name.remove_prefix(kWord.size());
  if (name.empty() || !kBlanks.contains(name.front())) return std::nullopt;
  name = without_spaces_around(name);
  const bool is_quoted = name.size() >= 2 && name.front() == name.back() &&
                         (name.front() == '"' || name.front() == '\'');
  return is_quoted ? name.substr(1, name.size() - 2) : name;
}

class ProfileReader {
 public:
  ProfileReader(ProfileFile file, std::string_view profile) : file_(file), profile_(profile) {}

  void read_line(std::string_view line) {
    const std::string_view words = without_spaces_around(line);
    if (words.empty() || words.front() == '#' || words.front() == ';') return;
    if (words.front() == '[' && words.contains(']')) {
      is_inside_ = profile_of_section(words, file_) == profile_;
      indent_.reset();
      return;
    }
    const auto indent = static_cast<std::size_t>(words.data() - line.data());
    if (indent_ && indent > *indent_) return;  // goes on with the setting before
    indent_ = indent;
    if (is_inside_) read_setting(words);
  }

  [[nodiscard]] ProfileSettings take() { return std::move(settings_); }

 private:
  void read_setting(std::string_view words) {
    const std::size_t equals = words.find('=');
    if (equals == std::string_view::npos || equals == 0) return;
    std::string name(without_spaces_around(words.substr(0, equals)));
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    settings_[std::move(name)] = without_spaces_around(words.substr(equals + 1));
  }

  const ProfileFile file_;
  const std::string_view profile_;
  bool is_inside_ = false;
  std::optional<std::size_t> indent_;  // of the last setting of this section
  ProfileSettings settings_;
};

}  // namespace

ProfileSettings settings_of_profile(std::string_view text, ProfileFile file,
                                    std::string_view profile) {
  ProfileReader reader(file, profile);
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    reader.read_line(line);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return reader.take();
}

}  // namespace deepfreeze
