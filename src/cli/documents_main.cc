// deepfreeze_documents FOLDER: writes manual pages and completions below it, at their places in an
// installation. Runs while the program is built, and isn't installed.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "cli/cli.h"
#include "cli/completion.h"
#include "cli/manual.h"

namespace {

bool write_text(const std::filesystem::path& path, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  if (!file) std::cerr << "write " << path << ": failed\n";
  return file.good();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "deepfreeze_documents: name the folder to write to\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  const deepfreeze::ProgramDescription program = deepfreeze::describe_program();
  const std::string& name = program.name;
  bool good =
      write_text(folder / "bash-completion" / "completions" / name, bash_completion(program));
  good &= write_text(folder / "zsh" / "vendor-completions" / ("_" + name), zsh_completion(program));
  good &= write_text(folder / "fish" / "vendor_completions.d" / (name + ".fish"),
                     fish_completion(program));
  const std::filesystem::path manual = folder / "man" / "man1";
  good &= write_text(manual / (name + ".1"), manual_page(program));
  for (const deepfreeze::VerbDescription& verb : program.verbs) {
    good &= write_text(manual / (name + "-" + verb.name + ".1"), manual_page(program, verb));
  }
  return good ? 0 : 1;
}
