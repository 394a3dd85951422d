// Damage to the files of a run at rest: each kind, chosen by a random number.
#pragma once

#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <string_view>

namespace deepfreeze {

using Contents = std::map<std::filesystem::path, std::string>;  // of every file below a directory

[[nodiscard]] Contents read_all(const std::filesystem::path& directory);

// Puts files back as they were, those that are gone too.
void put_back(const Contents& before, const std::filesystem::path& file);
void write_file(const std::filesystem::path& file, const std::string& bytes);

struct Damage {
  std::filesystem::path file;
  std::string_view kind;  // "single bits flipped", ...: the kinds are counted
  std::string text;       // the change that was made, with its place
};

// Damages one file, in a way that changes its bytes. Half of all damages are single flipped bits.
[[nodiscard]] Damage damage_one(const Contents& files, std::mt19937_64& random);

}  // namespace deepfreeze
