#include "corruption/damage.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <iterator>
#include <vector>

namespace deepfreeze {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kBlock = 64 * 1024;  // with a checksum of its own

class Damager {
 public:
  Damager(const Contents& files, std::mt19937_64& random) : files_(files), random_(random) {}

  // Damages a file chosen at random; the text is empty if nothing has changed.
  Damage apply() {
    const auto chosen =
        std::next(files_.begin(), static_cast<std::ptrdiff_t>(below(files_.size())));
    bytes_ = chosen->second;
    Damage damage{.file = chosen->first};
    change(damage);
    if (damage.text != "gone" && bytes_ == chosen->second) return {};
    if (damage.text == "gone") {
      fs::remove(damage.file);
    } else {
      write_file(damage.file, bytes_);
    }
    return damage;
  }

 private:
  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  struct Kind {
    std::string_view name;
    std::string (Damager::*apply)(const fs::path& file);
  };

  void change(Damage& damage) {
    static constexpr Kind kFlip = {"single bits flipped", &Damager::flip_one};
    static constexpr std::array kKinds = {Kind{"pages zeroed", &Damager::zero_page},
                                          Kind{"blocks swapped", &Damager::swap_blocks},
                                          Kind{"stale pages", &Damager::stale_block},
                                          Kind{"stale files", &Damager::stale_file},
                                          Kind{"files all zeros", &Damager::all_zeros},
                                          Kind{"cut off", &Damager::cut_off},
                                          Kind{"lengthened", &Damager::go_on},
                                          Kind{"gone", &Damager::lose},
                                          Kind{"many bits flipped", &Damager::flip_many}};
    const bool is_flip = bytes_.empty() || below(2) == 0;
    const Kind& kind = is_flip ? kFlip : kKinds[below(kKinds.size())];
    damage.kind = kind.name;
    damage.text = std::invoke(kind.apply, this, damage.file);
  }

  std::string flip_one(const fs::path& /*file*/) { return flip(); }

  std::string flip() {
    if (bytes_.empty()) return "";
    const std::size_t bit = below(bytes_.size() * 8);
    bytes_[bit / 8] = static_cast<char>(bytes_[bit / 8] ^ (1 << (bit % 8)));
    return fmt::format("bit {} of byte {} flipped", bit % 8, bit / 8);
  }

  std::string flip_many(const fs::path& /*file*/) {
    const std::size_t count = 2 + below(30);
    for (std::size_t i = 0; i < count; ++i) std::ignore = flip();
    return fmt::format("{} bits flipped", count);
  }

  std::string zero_page(const fs::path& /*file*/) {
    const std::size_t begin = below(bytes_.size()) / kPage * kPage;
    const std::size_t count = std::min(kPage, bytes_.size() - begin);
    bytes_.replace(begin, count, count, '\0');
    return fmt::format("page at {} zeroed", begin);
  }

  std::string swap_blocks(const fs::path& /*file*/) {
    const std::size_t unit = below(2) == 0 ? kPage : kBlock;
    const std::size_t count = bytes_.size() / unit;
    const std::size_t a = below(count) * unit;
    const std::size_t b = below(count) * unit;
    if (count < 2) return "";
    std::swap_ranges(at(a), at(a + unit), at(b));
    return fmt::format("{} bytes at {} and {} swapped", unit, a, b);
  }

  // As of another checkpoint, or another rank, at the same place.
  std::string stale_block(const fs::path& file) {
    const std::string& other = other_of_that_kind(file);
    const std::size_t begin = below(bytes_.size()) / kPage * kPage;
    const std::size_t count =
        std::min({kPage, bytes_.size() - begin, other.size() - std::min(begin, other.size())});
    bytes_.replace(begin, count, other, std::min(begin, other.size()), count);
    return fmt::format("page at {} is another file's", begin);
  }

  std::string stale_file(const fs::path& file) {
    bytes_ = other_of_that_kind(file);
    return "another file's bytes";
  }

  std::string all_zeros(const fs::path& /*file*/) {
    bytes_.assign(bytes_.size(), '\0');
    return "all zeros";
  }

  std::string cut_off(const fs::path& /*file*/) {
    bytes_.resize(below(bytes_.size()));
    return fmt::format("cut off at {}", bytes_.size());
  }

  std::string go_on(const fs::path& /*file*/) {
    const std::size_t more = 1 + below(2 * kPage);
    bytes_.append(more, static_cast<char>(random_()));
    return fmt::format("{} bytes more", more);
  }

  std::string lose(const fs::path& /*file*/) { return "gone"; }

  std::string::iterator at(std::size_t place) {
    return bytes_.begin() + static_cast<std::ptrdiff_t>(place);
  }

  // For a data file, one of another step or rank; else a file of the same name. The file itself if
  // there is no other.
  const std::string& other_of_that_kind(const fs::path& file) {
    std::vector<const std::string*> others;
    for (const auto& [path, content] : files_) {
      if (path != file && kind_of(path) == kind_of(file)) others.push_back(&content);
    }
    return others.empty() ? files_.at(file) : *others[below(others.size())];
  }

  static std::string kind_of(const fs::path& file) {
    return file.extension() == ".safetensors" ? ".safetensors" : file.filename().string();
  }

  const Contents& files_;
  std::mt19937_64& random_;
  std::string bytes_;
};

}  // namespace

Contents read_all(const fs::path& directory) {
  Contents files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream stream(entry.path(), std::ios::binary);
    files[entry.path()] = {std::istreambuf_iterator(stream), {}};
  }
  return files;
}

void write_file(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

void put_back(const Contents& before, const fs::path& file) { write_file(file, before.at(file)); }

Damage damage_one(const Contents& files, std::mt19937_64& random) {
  while (true) {
    Damage damage = Damager(files, random).apply();
    if (!damage.text.empty()) return damage;
  }
}

}  // namespace deepfreeze
