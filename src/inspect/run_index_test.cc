#include "inspect/run_index.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>

#include "format/sealed_json.h"
#include "manifest/claims.h"
#include "manifest/given_tags.h"
#include "manifest/name_kind.h"
#include "manifest/retention.h"
#include "manifest/run_survey.h"
#include "restore/run_fixture.h"
#include "support/passing_vfs.h"
#include "support/sim_disk.h"

namespace deepfreeze::run_index_test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kHour = kActiveMicros;

// All that a catalogue has of a run, as one text.
std::string text_of(const CataloguedRun& run) {
  return encode_index({.key = {}, .tag_numbers = {}, .run = run}) + std::to_string(run.faults);
}

struct IndexedRun {
  IndexedRun() {
    run_.claim({}, {.last = 9, .best = Keep::Best{.metric = "loss"}});
    for (std::uint64_t step = 1; step <= 4; ++step) manifests_.push_back(save(step));
    give(2, {{"lr", "3e-4"}});
    pass_a_tick();
  }

  Manifest save(std::uint64_t step) {
    FixtureSave save{.step = step, .ranks = {{f32_tensor("w", {static_cast<float>(step)})}}};
    save.annotations.wall_micros = static_cast<std::int64_t>(step) * 1000;
    save.annotations.metrics = {{"loss", 1.0 / static_cast<double>(step)}};
    if (step == 3) save.annotations.metrics["nan"] = std::nan("");
    save.annotations.tags = {{"host", "a"}};
    return run_.save(save);
  }
  void give(std::uint64_t step, const Tags& tags) {
    ASSERT_TRUE(change_tags(run_.vfs(), manifests_[step - 1], {.set = tags, .remove = {}}));
  }
  // Until a change now differs from one before: the file system's clock has ticks.
  void pass_a_tick() {
    const fs::path probe = run_.path() / "probe";
    const auto touch = [&] {
      std::ofstream(probe, std::ios::app) << ".";
      return run_.vfs().stamp("probe")->changed_nanos;
    };
    const std::int64_t start = touch();
    while (touch() == start) continue;
    fs::remove(probe);
  }
  // As if all files were old.
  std::string look() { return text_of(look_up(run_.vfs(), -kHour).value()); }
  std::string truth() { return text_of(catalogued(read_run(run_.vfs()).value())); }
  [[nodiscard]] fs::path index() const { return run_.path() / kIndexFile; }
  std::string index_text() { return read_file(run_.vfs(), kIndexFile, 1 << 20).value_or(""); }
  void write_index(const std::string& text) { std::ofstream(index(), std::ios::binary) << text; }
  [[nodiscard]] std::size_t files_in_root() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(run_.path()), fs::directory_iterator()));
  }

  [[nodiscard]] fs::path path(std::uint64_t step, const std::string& name) const {
    return run_.file_path(manifests_[step - 1], name);
  }

  RunFixture run_;
  std::vector<Manifest> manifests_;
};

class RunIndexOnDisk : public testing::Test, public IndexedRun {};

TEST_F(RunIndexOnDisk, GivesTheSameAsTheRecords) {
  EXPECT_EQ(look(), truth());
  ASSERT_TRUE(fs::exists(index()));
  EXPECT_EQ(look(), truth());
}

TEST_F(RunIndexOnDisk, CountsWhileNothingHasChanged) {
  look();
  RunIndex planted = decode_index(index_text()).value();
  planted.run.steps[0].bytes = 12345;
  write_index(encode_index(planted));
  EXPECT_EQ(look(), text_of(planted.run)) << "the manifests were read";
  planted.key += " ";
  write_index(encode_index(planted));
  EXPECT_EQ(look(), truth());
  EXPECT_EQ(look(), truth()) << "and it was written anew";
}

TEST(RunIndex, EveryChangeOfARecordMakesItVoid) {
  const std::vector<std::pair<const char*, void (*)(IndexedRun&)>> changes = {
      {"a checkpoint", [](IndexedRun& on) { on.save(5); }},
      {"a tag", [](IndexedRun& on) { on.give(1, {{"a", "b"}}); }},
      {"another tag", [](IndexedRun& on) { on.give(2, {{"c", "d"}}); }},
      {"a claim", [](IndexedRun& on) { on.run_.claim(on.manifests_[1].point, {.last = 2}); }},
      {"a damaged claim",
       [](IndexedRun& on) { flip_bit(on.run_.path() / "generation-00000002.json", 8 * 30); }},
      {"damaged tags", [](IndexedRun& on) { flip_bit(on.path(2, "tags-00000001.json"), 8 * 60); }},
      {"a manifest damaged in place",
       [](IndexedRun& on) { flip_bit(on.path(3, "manifest.json"), 8 * 40); }},
      {"a checkpoint collected",
       [](IndexedRun& on) {
         ASSERT_TRUE(delete_checkpoint(on.run_.vfs(), {4, on.manifests_[3].point.attempt_id}));
       }},
      {"a step removed by hand", [](IndexedRun& on) { fs::remove_all(on.path(3, "")); }},
      {"a manifest removed by hand",
       [](IndexedRun& on) { fs::remove(on.path(3, "manifest.json")); }},
      {"a manifest put back from a copy",
       [](IndexedRun& on) {
         fs::copy(on.path(1, "manifest.json"), on.path(3, "manifest.json"),
                  fs::copy_options::overwrite_existing);
       }},
      {"the run's record damaged",
       [](IndexedRun& on) { flip_bit(on.run_.path() / "deepfreeze.json", 8 * 30); }},
      {"the run's record lost",
       [](IndexedRun& on) { fs::remove(on.run_.path() / "deepfreeze.json"); }},
  };
  for (const auto& [what, change] : changes) {
    IndexedRun on;
    const std::string before = on.look();
    ASSERT_TRUE(fs::exists(on.index())) << what;
    change(on);
    on.pass_a_tick();
    ASSERT_NE(on.truth(), before) << what << " changes nothing: no test";
    EXPECT_EQ(on.look(), on.truth()) << what;
    EXPECT_EQ(on.look(), on.truth()) << what << ", again";
  }
}

TEST_F(RunIndexOnDisk, DamagedStaleOrForeignItCountsForNothing) {
  look();
  const std::string good = index_text();
  ASSERT_FALSE(good.empty());
  RunFixture other;
  other.save({.step = 9, .ranks = {{f32_tensor("w", {1})}}});
  ASSERT_TRUE(look_up(other.vfs(), -kHour));
  const std::string foreign = read_file(other.vfs(), kIndexFile, 1 << 20).value();
  for (const std::string& text :
       {std::string(), std::string("{}"), good.substr(0, good.size() / 2), good + good, foreign,
        std::string(100'000, 'x'), std::string("\0\0\0", 3), "[" + good + "]"}) {
    write_index(text);
    EXPECT_EQ(look(), truth()) << text.substr(0, 60);
    EXPECT_EQ(look(), truth());
  }
  for (std::size_t bit = 3; bit < 8 * good.size(); bit += 97) {
    std::string damaged = good;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    write_index(damaged);
    ASSERT_EQ(look(), truth()) << bit;
  }
  manifests_.push_back(save(5));
  pass_a_tick();
  write_index(good);
  EXPECT_EQ(look(), truth()) << "an older one, put back";
}

// A process that may write to the directory can make one with the right key.
TEST_F(RunIndexOnDisk, AnIndexThatAsksForMoreThanTheDirectoryHasCountsForNothing) {
  look();
  const RunIndex good = decode_index(index_text()).value();
  const auto counts = [&](const std::function<void(CataloguedRun&)>& change) {
    RunIndex planted = good;
    planted.run.claimed_micros = 7;
    change(planted.run);
    write_index(encode_index(planted));
    return look_up(run_.vfs(), -kHour)->claimed_micros == 7;
  };
  EXPECT_TRUE(counts([](CataloguedRun&) {}));
  EXPECT_FALSE(counts([](CataloguedRun& run) { run.steps.push_back(run.steps.back()); }))
      << "more steps than attempts";
  const auto all_have = [](const Tags& tags) {
    return [=](CataloguedRun& run) {
      for (CataloguedStep& step : run.steps) step.tags = tags;
    };
  };
  EXPECT_TRUE(counts(all_have({{"a", std::string(2000, 'x')}})));
  EXPECT_FALSE(counts(all_have({{"a", std::string(6000, 'x')}}))) << "one set, but many copies";
  Tags many;
  for (int i = 0; i < 201; ++i) many[std::to_string(i)] = "";
  EXPECT_FALSE(counts([&](CataloguedRun& run) { run.steps[0].tags = many; }));
  EXPECT_FALSE(counts([](CataloguedRun& run) {
    for (CataloguedStep& step : run.steps) step.metrics[std::string(6000, 'x')] = 1;
  })) << "a name for each step";
  EXPECT_FALSE(counts([](CataloguedRun& run) {
    run.parent = ParentPoint{.run = std::string(100'000, 'x'), .step = 1};
  })) << "larger than a directory of so few names needs";
}

TEST_F(RunIndexOnDisk, IsNotMadeOfARunForWhichItWouldBeTooLarge) {
  give(2, {{"a", std::string(kTagValueBytesMax, 'x')}, {"b", std::string(kTagValueBytesMax, 'x')}});
  for (const std::uint64_t step : {1U, 3U, 4U}) {
    Tags tags;
    for (char c = 'a'; c < 'g'; ++c) tags[{c}] = std::string(kTagValueBytesMax, 'x');
    give(step, tags);
  }
  pass_a_tick();
  EXPECT_EQ(look(), truth());
  EXPECT_FALSE(fs::exists(index()));
}

TEST_F(RunIndexOnDisk, OfACopyOfTheRunItCountsForNothing) {
  look();
  RunIndex planted = decode_index(index_text()).value();
  planted.run.claimed_micros = 7;
  write_index(encode_index(planted));
  const fs::path copy = run_.text() + "-copy";
  fs::copy(run_.path(), copy, fs::copy_options::recursive);
  const auto claimed = [](const fs::path& path) {
    return read_catalogue(path, UseIndex::kYes)->front().run.value();
  };
  EXPECT_EQ(claimed(run_.path()).claimed_micros, 7);
  EXPECT_EQ(text_of(claimed(copy)), truth());
  fs::remove_all(copy);
}

TEST_F(RunIndexOnDisk, IsNotMadeOfARunThatChangedJustNow) {
  const std::size_t files = files_in_root();
  EXPECT_EQ(text_of(look_up(run_.vfs(), kHour).value()), truth());
  EXPECT_EQ(files_in_root(), files);
  ASSERT_TRUE(look_up(run_.vfs(), -kHour));
  EXPECT_EQ(files_in_root(), files + 1);
}

class OtherClock final : public PassingVfs {
 public:
  OtherClock(Vfs& disk, std::int64_t ahead_micros) : PassingVfs(disk), ahead_(ahead_micros) {}
  Result<Stamp> stamp(std::string_view name) override {
    auto stamp = disk_.stamp(name);
    if (stamp) stamp->changed_nanos += ahead_ * 1000;
    return stamp;
  }

 private:
  std::int64_t ahead_;
};

TEST(RunIndex, TheClockIsThatOfTheFileSystem) {
  for (const std::int64_t ahead : {-48 * kHour, 48 * kHour}) {
    IndexedRun on;
    OtherClock disk(on.run_.vfs(), ahead);
    ASSERT_TRUE(look_up(disk, kHour));
    EXPECT_FALSE(fs::exists(on.index())) << ahead;
    ASSERT_TRUE(look_up(disk, -kHour));
    EXPECT_TRUE(fs::exists(on.index())) << ahead;
  }
}

// Changes the run in the moment before its root is listed for the `at`-th time.
class ChangedAt final : public PassingVfs {
 public:
  ChangedAt(Vfs& disk, int at, std::function<void()> change)
      : PassingVfs(disk), left_(at), change_(std::move(change)) {}
  Result<std::vector<DirEntry>> list(std::string_view name) override {
    if (name.empty() && --left_ == 0) change_();
    return disk_.list(name);
  }
  Result<Stamp> stamp(std::string_view name) override { return disk_.stamp(name); }
  [[nodiscard]] bool has_changed() const { return left_ <= 0; }

 private:
  int left_;
  std::function<void()> change_;
};

// Even if the time since the last change would tell nothing.
TEST(RunIndex, AChangeWhileItIsMadeIsNotHidden) {
  bool has_changed = true;
  for (int at = 1; has_changed; ++at) {
    IndexedRun on;
    ChangedAt disk(on.run_.vfs(), at, [&] { flip_bit(on.path(3, "manifest.json"), 8 * 40); });
    ASSERT_TRUE(look_up(disk, -kHour));
    has_changed = disk.has_changed();
    ASSERT_TRUE(has_changed || at > 3);
    EXPECT_EQ(on.look(), on.truth()) << at;
  }
}

TEST_F(RunIndexOnDisk, IsNotMadeOfARunWithFaultsOrAttemptsUnderWay) {
  run_.write_undecided({.step = 6, .ranks = {{f32_tensor("w", {1})}}});
  EXPECT_EQ(look(), truth());
  EXPECT_FALSE(fs::exists(index()));
  RunFixture faulty;
  flip_bit(faulty.path() / "generation-00000001.json", 8 * 30);
  ASSERT_TRUE(look_up(faulty.vfs(), -kHour));
  EXPECT_FALSE(fs::exists(faulty.path() / kIndexFile));
}

TEST_F(RunIndexOnDisk, AFailureToWriteItIsNobodysBusiness) {
  fs::create_directories(index() / "in the way");
  const std::size_t files = files_in_root();
  EXPECT_EQ(look(), truth());
  EXPECT_EQ(files_in_root(), files) << "a temporary file was left";
  SimDisk disk;  // it has no stamps
  ASSERT_TRUE(create_or_open_run(disk, {}));
  const auto names = disk.list_all();
  EXPECT_TRUE(look_up(disk, -kHour));
  EXPECT_EQ(disk.list_all(), names);
}

TEST_F(RunIndexOnDisk, IsNoOddityAndIsNeverACheckpoint) {
  look();
  ASSERT_TRUE(fs::exists(index()));
  const RunListing listing = read_run(run_.vfs()).value();
  EXPECT_TRUE(survey_run(run_.vfs(), listing)->empty());
  EXPECT_EQ(listing.attempts.size(), 4U);
  ASSERT_TRUE(collect_garbage(run_.vfs(), {.last = 1}));
  EXPECT_TRUE(fs::exists(index()));
  pass_a_tick();
  EXPECT_EQ(look(), truth());
  const std::string temporary = std::string(kIndexFile) + ".0123456789abcdef.tmp";
  EXPECT_EQ(kind_in_run({.name = temporary}), NameKind::kTemporary) << "debris, if one is left";
}

TEST(RunIndex, ComesBackAsItWas) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  CataloguedRun run{.run_id = "0123456789abcdef",
                    .parent = ParentPoint{.run = "/a \"b\"", .step = kMax},
                    .claimed_micros = -5};
  run.steps = {
      {.step = kMax,
       .wall_micros = std::numeric_limits<std::int64_t>::min(),
       .bytes = kMax,
       .shared_bytes = 1,
       .abandoned = true,
       .metrics = {{"a", 5e-324}, {"b", -0.0}},
       .tags = {{"x", "é\n"}}},
      {.step = 0, .metrics = {{"b", std::numeric_limits<double>::infinity()}, {"c", std::nan("")}}},
      {.step = 1}};
  run.best = 1;
  const RunIndex index{.key = "k \"1\"", .tag_numbers = {{"step", kMax}}, .run = run};
  const RunIndex back = decode_index(encode_index(index)).value();
  EXPECT_EQ(encode_index(back), encode_index(index));
  EXPECT_EQ(back.key, index.key);
  EXPECT_EQ(back.tag_numbers, index.tag_numbers);
  EXPECT_EQ(back.run.steps[0].wall_micros, run.steps[0].wall_micros);
  EXPECT_EQ(back.run.steps[0].metrics, run.steps[0].metrics);
  EXPECT_TRUE(std::signbit(back.run.steps[0].metrics.at("b")));
  EXPECT_EQ(back.run.steps[1].metrics.size(), 2U) << "absent values stay absent";
  EXPECT_EQ(back.run.best, 1U);
}

TEST(RunIndex, ColumnsOfOtherLengthsAreRefused) {
  CataloguedRun run{.run_id = "0123456789abcdef",
                    .steps = {{.step = 1, .wall_micros = 5}, {.step = 2, .wall_micros = 6}}};
  run.best = 2;
  EXPECT_FALSE(decode_index(encode_index({.run = run})));
  run.best.reset();
  const std::string good = encode_index({.run = run});
  ASSERT_TRUE(decode_index(good));
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {R"("wall_micros":[5,6])", R"("wall_micros":[5])"},
           {R"("wall_micros":[5,6])", R"("wall_micros":[5,6,7])"},
           {R"("step":[1,2])", R"("step":[1,"2"])"},
           {R"("step":[1,2])", R"("step":1)"},
           {R"("bytes":0)", R"("bytes":"0")"},
           {R"("bytes":0)", R"("bytes":[0])"},
           {R"("bytes":0)", R"("sizes":0)"},
           {R"("abandoned":false)", R"("abandoned":0)"},
           {R"("tags":0)", R"("tags":1)"},
           {R"("tags":0)", R"("tags":[0])"},
           {R"("tag_sets":[{}])", R"("tag_sets":[{"a":1}])"},
           {R"("metrics":{})", R"("metrics":{"a":[1]})"},
           {R"("metrics":{})", R"("metrics":{"a":[1,"x"]})"},
           {R"("tag_records":{})", R"("tag_records":{"a":"b"})"},
           {R"("best":null)", R"("best":-1)"}}) {
    std::string bad = good;
    const std::size_t at = bad.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bad.replace(at, from.size(), to);
    EXPECT_FALSE(decode_index(seal_text("{" + bad.substr(bad.find(',') + 1)))) << to;
  }
}

}  // namespace
}  // namespace deepfreeze::run_index_test
