// Files of a run are damaged at rest, in every way of damage.h: readers get saved values or none, a
// full check finds the damage, and the other checkpoints stay good.
//
// DEEPFREEZE_DAMAGES says how many damages there are, and that each byte of a header has its turn;
// DEEPFREEZE_DAMAGE_SEED replays one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <ranges>
#include <set>
#include <string_view>

#include "base/log.h"
#include "corruption/damage.h"
#include "corruption/stored_run.h"
#include "support/number_from.h"
#include "support/scoped_dir.h"

namespace deepfreeze {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kDamages = DF_DAMAGES;
// The world sizes; each run gets half of the damages.
constexpr std::array<std::uint32_t, 2> kRuns = {1, 3};
constexpr std::uint64_t kGoOnEvery = 20;  // a copy of the run, with one save more

bool is_data_file(const Contents::value_type& file) {
  return file.first.extension() == ".safetensors";
}

// Checkpoints in one file, and in one file of each of several ranks.
class Corruption : public testing::TestWithParam<std::uint32_t> {
 protected:
  Corruption() {
    set_log_sink([](std::string_view) {});  // warnings are expected
    const Status stored = store_run(run_, GetParam());
    EXPECT_TRUE(stored.has_value()) << stored.error().message();
    good_ = read_all(run_);
    EXPECT_EQ(std::ranges::count_if(good_, is_data_file), GetParam() * kStoredSteps);
    // Else another rank's file would be found by its length alone.
    EXPECT_EQ(lengths_of_data_files().size(), 1U);
    const Reading whole = read_run_through(run_, {});
    EXPECT_EQ(whole.wrong, "");
    EXPECT_EQ(whole.good, (std::vector<std::uint64_t>{3, 2, 1}));
  }
  ~Corruption() override { set_log_sink({}); }

  // The step that a file is part of; none for those of the run itself.
  [[nodiscard]] std::optional<std::uint64_t> step_of(const fs::path& file) const {
    const std::string name = file.lexically_relative(run_).begin()->string();
    if (!name.starts_with("step-")) return std::nullopt;
    return std::strtoull(name.c_str() + 5, nullptr, 10);
  }

  [[nodiscard]] std::set<std::size_t> lengths_of_data_files() const {
    std::set<std::size_t> lengths;
    for (const auto& file : good_ | std::views::filter(is_data_file)) {
      lengths.insert(file.second.size());
    }
    return lengths;
  }

  void judge(const Damage& damage) {
    const auto step = step_of(damage.file);
    const Reading reading = read_run_through(run_, step);
    const std::string where = fmt::format("{}: {}", damage.file.string(), damage.text);
    EXPECT_EQ(reading.wrong, "") << where;
    EXPECT_GE(reading.good.size(), kStoredSteps - (step ? 1 : 0)) << where;
    found_ += reading.good.size() < kStoredSteps ? 1 : 0;
  }

  void judge_what_goes_on(const Damage& damage) {
    const ScopedDir place;
    fs::copy(run_, place.path() / "run", fs::copy_options::recursive);
    EXPECT_EQ(go_on_from(place.path() / "run"), "") << damage.file << ": " << damage.text;
  }

  void damage_by(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    SCOPED_TRACE(fmt::format("DEEPFREEZE_DAMAGE_SEED={}", seed));
    const Damage damage = damage_one(good_, random);
    ++by_kind_[damage.kind];
    judge(damage);
    if (seed % kGoOnEvery == 0) judge_what_goes_on(damage);
    put_back(good_, damage.file);
  }

  ScopedDir dir_;
  fs::path run_ = dir_.path() / "run";
  Contents good_;
  std::map<std::string_view, std::uint64_t> by_kind_;
  std::uint64_t found_ = 0;  // damages that kept a checkpoint from being read
};

TEST_P(Corruption, NothingIsGivenOutButWhatWasSaved) {
  if (const auto seed = number_from("DEEPFREEZE_DAMAGE_SEED")) return damage_by(*seed);
  const std::uint64_t count = number_from("DEEPFREEZE_DAMAGES").value_or(kDamages) / kRuns.size();
  for (std::uint64_t seed = 1; seed <= count && !HasFailure(); ++seed) damage_by(seed);
  std::string kinds;
  for (const auto& [kind, times] : by_kind_) kinds += fmt::format(", {} {}", times, kind);
  fmt::print("ranks: {}; {} damages, {} of them kept a checkpoint from being read{}\n", GetParam(),
             count, found_, kinds);
  EXPECT_GT(found_, count / 2);                               // else the damage was none
  EXPECT_GT(by_kind_["single bits flipped"], count * 2 / 5);  // about half
  EXPECT_EQ(by_kind_.size(), 10U);
}

// Bytes of the newest manifest and of its header: one flipped bit, and cut off there.
TEST_P(Corruption, EveryByteOfHeaderAndManifestCounts) {
  constexpr std::size_t kHeaderBytes = 4096;
  const std::size_t stride = number_from("DEEPFREEZE_DAMAGES") ? 1 : DF_DAMAGE_STRIDE;
  std::size_t tried = 0;
  for (const auto& [file, bytes] : good_) {
    if (step_of(file) != kStoredSteps) continue;
    std::string damaged = bytes;
    for (std::size_t byte = 0; byte < std::min(bytes.size(), kHeaderBytes); byte += stride) {
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << (byte % 8)));
      write_file(file, damaged);
      judge({file, fmt::format("byte {} changed", byte)});
      damaged[byte] = bytes[byte];
      write_file(file, bytes.substr(0, byte));
      judge({file, fmt::format("cut off at {}", byte)});
      ASSERT_FALSE(HasFailure());
      ++tried;
    }
    put_back(good_, file);
  }
  fmt::print("{} bytes of header and manifest, each with a bit flipped and each cut off there\n",
             tried);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Corruption, testing::ValuesIn(kRuns),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace deepfreeze
