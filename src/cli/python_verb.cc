#include "cli/python_verb.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace deepfreeze {
namespace {

std::string python_program() {
  std::error_code ignored;  // without /proc: the one on the PATH
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::string beside = (self.parent_path() / "python3").string();
  return ::access(beside.c_str(), X_OK) == 0 ? beside : "python3";
}

}  // namespace

Error exec_python(const std::string& verb, const std::vector<std::string>& arguments) {
  // -P: nothing is imported from the current directory, which may be anybody's.
  std::vector<std::string> words{python_program(), "-P", "-m", "deepfreeze", verb};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  const int cause = errno;
  return {cause == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
          fmt::format("run {} -m deepfreeze {}: {}", words[0], verb,
                      std::generic_category().message(cause)),
          cause};
}

}  // namespace deepfreeze
