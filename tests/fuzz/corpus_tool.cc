// fuzz_corpus unpack TARGET FOLDER: seed-NNNN and found-NNNN, one file each, as libFuzzer wants.
// fuzz_corpus pack FOLDER: the files of a folder as the text of a corpus, on standard output.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/corpus_text.h"
#include "fuzz/seeds.h"

namespace deepfreeze {
namespace {

namespace fs = std::filesystem;

bool write_all(const fs::path& folder, std::string_view kind,
               const std::vector<std::string>& inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::ofstream file(folder / fmt::format("{}-{:04}", kind, i), std::ios::binary);
    file << inputs[i];
    if (!file.flush()) return false;
  }
  return true;
}

int unpack(const std::string& target, const fs::path& folder) {
  fs::create_directories(folder);
  const Seeds seeds = seeds_of(target);
  const bool written =
      write_all(folder, "seed", seeds.own) && write_all(folder, "found", seeds.found);
  return written ? 0 : 1;
}

int pack(const fs::path& folder) {
  std::vector<std::string> inputs;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  fmt::print("# Written by tests/fuzz/run.py --merge.\n{}", write_corpus(std::move(inputs)));
  return 0;
}

}  // namespace
}  // namespace deepfreeze

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  if (arguments.size() == 4 && arguments[1] == "unpack") {
    return deepfreeze::unpack(arguments[2], arguments[3]);
  }
  if (arguments.size() == 3 && arguments[1] == "pack") return deepfreeze::pack(arguments[2]);
  std::fputs("usage: fuzz_corpus unpack TARGET FOLDER | pack FOLDER\n", stderr);
  return 2;
}
