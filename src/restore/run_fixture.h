// For tests: a real run in a temporary directory, written through the lower layers alone.
// One thread. Whatever fails here ends the test program with a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "format/records.h"
#include "storage/vfs.h"

namespace deepfreeze {

struct OwnedTensor {
  TensorSpec spec;
  std::vector<std::byte> data;
};

[[nodiscard]] OwnedTensor f32_tensor(std::string key, const std::vector<float>& values);
// Arbitrary bits; the same for the same seed.
[[nodiscard]] OwnedTensor random_tensor(std::string key, DType dtype, Shape shape,
                                        std::uint64_t seed);

struct FixtureSave {
  std::uint64_t step = 1;
  std::vector<std::vector<OwnedTensor>> ranks;  // the tensors of each rank's file
  std::string tree;                             // of rank 0
  Annotations annotations = {};
  std::string tree_of_others = {};  // of ranks but 0
};

class RunFixture {
 public:
  explicit RunFixture(std::optional<ParentPoint> parent = {});
  ~RunFixture();
  RunFixture(const RunFixture&) = delete;
  RunFixture& operator=(const RunFixture&) = delete;

  [[nodiscard]] Vfs& vfs() { return *vfs_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::string text() const { return path_.string(); }

  // Starts another generation; the first one is claimed by the constructor.
  void claim(std::optional<Point> resumed_from, const Keep& keep = {});
  // Writes, seals and commits under the generation claimed last.
  Manifest save(const FixtureSave& save);
  // Writes without the commit: an undecided attempt, its files sealed.
  Identity write_undecided(const FixtureSave& save);

  [[nodiscard]] std::filesystem::path file_path(const Manifest& manifest,
                                                const std::string& name) const;

 private:
  void write_part(const FixtureSave& save, const Identity& identity);

  std::filesystem::path path_;
  std::unique_ptr<Vfs> vfs_;
  std::string run_id_;
  std::uint64_t generation_ = 0;
  std::uint64_t save_count_ = 0;
};

// Inverts one bit of a file.
void flip_bit(const std::filesystem::path& file, std::uint64_t bit);

// `random_tensor` and the like, and a value or the end of the test program.
template <class T>
[[nodiscard]] T must(Result<T> result);
void must(const Status& status);
[[noreturn]] void give_up(const Error& error);

template <class T>
T must(Result<T> result) {
  if (!result) give_up(result.error());
  return std::move(*result);
}

}  // namespace deepfreeze
