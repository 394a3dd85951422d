#include "power_cut/fail_point_names.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

namespace deepfreeze {
namespace {

void add_matches(const std::string& text, const std::regex& pattern, std::set<std::string>& names) {
  for (std::sregex_iterator found(text.begin(), text.end(), pattern), end; found != end; ++found) {
    names.insert((*found)[1]);
  }
}

// As literals, or as the three of a record.
void add_names(const std::string& text, std::set<std::string>& names) {
  static const std::regex kUse(R"re(DF_(?:FAIL|STALL)_POINT\("([a-z_.]+)"\))re");
  static const std::regex kRecord(R"re(RecordFailPoints\s+k\w+\s*=\s*(\{[^}]*\}))re");
  static const std::regex kLiteral(R"re("([a-z_.]+)")re");
  add_matches(text, kUse, names);
  std::set<std::string> records;
  add_matches(text, kRecord, records);
  for (const std::string& record : records) add_matches(record, kLiteral, names);
}

}  // namespace

std::set<std::string> fail_points_of_sources() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(DF_SOURCES)) {
    const std::string file = entry.path().filename().string();
    if (!file.ends_with(".cc") || file.ends_with("_test.cc")) continue;
    std::ifstream stream(entry.path());
    add_names({std::istreambuf_iterator(stream), {}}, names);
  }
  return names;
}

}  // namespace deepfreeze
