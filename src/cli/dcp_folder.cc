#include "cli/dcp_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "cli/run_ref.h"

namespace deepfreeze {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kProtocol = "deepfreeze://";
constexpr std::array<std::string_view, 8> kVerbs{"ls",    "show", "verify", "doctor",
                                                 "scrub", "gc",   "diff",   "export"};

template <class Fn>
bool any_folder_in(const fs::path& path, Fn holds) {
  std::error_code failed;
  for (fs::directory_iterator entry(path, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    std::error_code ignored;
    if (entry->is_directory(ignored) && holds(entry->path())) return true;
  }
  return false;
}

// A path that can't be examined is no run.
bool is_run(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / "deepfreeze.json", ignored);
}

bool is_id(const fs::path& path) {
  return is_run(path / "metadata") || any_folder_in(path / "files", is_run);
}

}  // namespace

bool is_dcp_folder(const std::string& text) {
  const bool has_protocol = text.starts_with(kProtocol);
  const auto ref = parse_run_ref(has_protocol ? text.substr(kProtocol.size()) : text);
  if (!ref || ref->path.empty() || is_run(ref->path)) return false;
  return has_protocol || is_id(ref->path) || any_folder_in(ref->path, is_id);
}

bool is_of_dcp(const std::vector<std::string>& words) {
  const bool has_verb = !words.empty() && std::ranges::find(kVerbs, words[0]) != kVerbs.end();
  const auto asks_for_help = [](const std::string& word) {
    return word == "-h" || word == "--help";
  };
  if (!has_verb || std::ranges::any_of(words, asks_for_help)) return false;
  return std::any_of(words.begin() + 1, words.end(), is_dcp_folder);
}

}  // namespace deepfreeze
