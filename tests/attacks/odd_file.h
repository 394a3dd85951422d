// Odd entries in place of a file of a run, made on a real disk. One thread.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace deepfreeze {

enum class OddFile : unsigned char {
  kLinkToAFile,       // a symbolic link to the file, moved outside the run
  kLinkToADirectory,  // outside the run
  kLinkToNothing,
  kDirectory,
  kFifo,
  kSocket,
  kDevice,  // one that never ends: /dev/zero
};

struct OddFileCase {
  OddFile kind;
  std::string_view name;
  std::string_view cause;  // the cause in a reader's error
};
[[nodiscard]] const std::vector<OddFileCase>& odd_files();

// Puts one in place of `path`, whose file goes to `outside`. False if this machine does not allow
// it: nothing has changed then.
[[nodiscard]] bool replace_by(OddFile kind, const std::filesystem::path& path,
                              const std::filesystem::path& outside);

}  // namespace deepfreeze
