// verify --deep, scrub.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "base/clock.h"
#include "base/fail_point.h"
#include "base/unique_fd.h"
#include "cli/idle_work.h"
#include "cli/test_run.h"
#include "format/sealed_fixture.h"
#include "inspect/scrub_pass.h"
#include "manifest/commit.h"
#include "manifest/scrub_memory.h"
#include "restore/run_fixture.h"
#include "support/code_of.h"
#include "support/deny_syscall.h"
#include "support/refuse_direct.h"
#include "support/scoped_dir.h"

namespace deepfreeze::cmd_scrub_test {
namespace {

using nlohmann::json;

constexpr std::int64_t kHour = std::int64_t{3600} * 1'000'000;

std::string slurp(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void spill(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

AttemptName name_of(const Manifest& manifest) {
  return {manifest.point.step, manifest.point.attempt_id};
}

class DeviceVerbs : public testing::Test {
 protected:
  ~DeviceVerbs() override { fail_points::disarm(); }

  static Manifest add_to(RunFixture& run, std::uint64_t step, std::string tree = {}) {
    return run.save({.step = step,
                     .ranks = {{random_tensor("w", DType::kU8, {200'000}, step)}},
                     .tree = std::move(tree)});
  }
  Manifest add(std::uint64_t step, std::string tree = {}) {
    return add_to(run_, step, std::move(tree));
  }
  std::filesystem::path file(const Manifest& manifest, const std::string& name) {
    return run_.file_path(manifest, name);
  }
  std::filesystem::path data_file(const Manifest& manifest) {
    return file(manifest, manifest.files[0].name);
  }
  void flip_last_bit(const Manifest& manifest) {
    flip_bit(data_file(manifest), manifest.files[0].bytes * 8 - 1);
  }

  RunFixture run_;
};

using VerifyDeep = DeviceVerbs;

TEST_F(VerifyDeep, GoodRunIsGood) {
  add(1, R"({"lr":1})");
  add(2);
  const Answer answer = call_json({"verify", "--deep", run_.text()});
  EXPECT_EQ(answer.code, 0) << answer.out << answer.err;
  EXPECT_EQ(answer.json()["attempts"].size(), 2U);
  EXPECT_EQ(answer.json()["attempts"][0]["unlisted"], json::array());
  EXPECT_EQ(call({"verify", "--deep", run_.text() + "@1"}).code, 0);
}

TEST_F(VerifyDeep, NamesBlocksAndTensorsAsVerifyDoes) {
  add(1);
  flip_last_bit(add(2));
  const Answer answer = call_json({"verify", "--deep", run_.text()});
  EXPECT_EQ(answer.code, 1) << answer.err;
  json shallow = call_json({"verify", run_.text()}).json()["attempts"][1];
  shallow["unlisted"] = json::array();
  EXPECT_EQ(answer.json()["attempts"][1], shallow);
  EXPECT_EQ(shallow["faults"][0]["tensors"], json({"w"}));
}

TEST_F(VerifyDeep, DecodesTheStateTree) {
  const Manifest bad = add(1, R"({"$":"nonsense","v":1})");
  EXPECT_EQ(call({"verify", run_.text()}).code, 0) << "the bytes are as they were written";
  const Answer answer = call_json({"verify", "--deep", run_.text()});
  EXPECT_EQ(answer.code, 1) << answer.out;
  const json fault = answer.json()["attempts"][0]["faults"][0];
  EXPECT_EQ(fault["file"], bad.files[0].name);
  EXPECT_EQ(fault["cause"].get<std::string>().substr(0, 12), "state tree: ");
}

TEST_F(VerifyDeep, AFileIsExactlyHeaderAndData) {
  const Manifest manifest = add(1);
  std::filesystem::resize_file(data_file(manifest), manifest.files[0].bytes + 1);
  EXPECT_EQ(call({"verify", "--deep", run_.text()}).code, 1);
  std::filesystem::resize_file(data_file(manifest), manifest.files[0].bytes);
  EXPECT_EQ(call({"verify", "--deep", run_.text()}).code, 0);
  std::filesystem::resize_file(data_file(manifest), manifest.files[0].bytes - 1);
  EXPECT_EQ(call({"verify", "--deep", run_.text()}).code, 1);
}

TEST_F(VerifyDeep, NamesWhatNoManifestLists) {
  const Manifest manifest = add(1);
  spill(file(manifest, "note\x1b[2J"), "hello");
  spill(file(manifest, "rank-00001-of-00002-0-of-1.safetensors"), "x");
  const Answer answer = call_json({"verify", "--deep", run_.text()});
  EXPECT_EQ(answer.code, 0) << "it takes nothing from the checkpoint";
  EXPECT_EQ(answer.json()["attempts"][0]["unlisted"],
            json({"note\x1b[2J", "rank-00001-of-00002-0-of-1.safetensors"}));
  const Answer table = call({"verify", "--deep", run_.text()});
  EXPECT_TRUE(table.says("does not list note\\x1b[2J, rank-00001")) << table.out;
  EXPECT_FALSE(call({"verify", run_.text()}).says("rank-00001"));
}

TEST_F(VerifyDeep, SaysOnceWhereTheFileSystemTakesNoDirectReads) {
  add(1);
  add(2);
  Answer answer;
  const bool ran = run_with_direct_access_refused(
      [&] { answer = call_json({"verify", "--deep", run_.text()}); });
  if (!ran) GTEST_SKIP() << "LEFT OUT: this machine allows no seccomp filter";
  EXPECT_EQ(answer.code, 0) << answer.out << answer.err;
  ASSERT_EQ(answer.json()["notes"].size(), 1U) << answer.out;
  EXPECT_NE(answer.json()["notes"][0].get<std::string>().find("takes no direct reads"),
            std::string::npos);
  EXPECT_EQ(answer.json()["attempts"].size(), 2U);
}

TEST_F(VerifyDeep, LinksAndPipesInThePlaceOfDataAreFaults) {
  for (const bool pipe : {false, true}) {
    RunFixture run;
    const Manifest manifest = add_to(run, 1);
    const auto path = run.file_path(manifest, manifest.files[0].name);
    std::filesystem::rename(path, run.path() / "aside");
    if (pipe) {
      ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    } else {
      std::filesystem::create_symlink(run.path() / "aside", path);
    }
    EXPECT_EQ(call({"verify", "--deep", run.text()}).code, 1) << pipe;
    EXPECT_EQ(call({"scrub", run.text()}).code, 1) << pipe;
  }
}

class Scrub : public DeviceVerbs {
 protected:
  // The steps in the order in which a pass reads them.
  std::vector<std::uint64_t> steps_of(const Answer& answer, std::size_t run = 0) {
    std::vector<std::uint64_t> steps;
    const json document = answer.json();
    for (const json& attempt : document["runs"][run]["attempts"]) steps.push_back(attempt["step"]);
    return steps;
  }
  std::vector<std::uint64_t> scrubbed_steps() {
    return steps_of(call_json({"scrub", run_.text(), "--rate", "0"}));
  }
  std::string run_id() { return read_run(run_.vfs())->run.run_id; }
  ScrubRecord memory() { return recall_scrubs(run_.vfs(), run_id()).value(); }
  void remember(std::vector<ScrubEntry> entries) {
    ASSERT_TRUE(remember_scrubs(run_.vfs(), {run_id(), std::move(entries)}).has_value());
  }
  std::filesystem::path memory_file() { return run_.path() / kScrubFile; }
};

TEST_F(Scrub, ReadsAllCheckpointsAndRemembersThem) {
  const Manifest first = add(1);
  const Manifest second = add(2);
  const std::int64_t before = wall_micros();
  const Answer answer = call_json({"scrub", run_.text()});
  EXPECT_EQ(answer.code, 0) << answer.out << answer.err;
  EXPECT_EQ(answer.json()["good"], true);
  EXPECT_EQ(answer.json()["complete"], true);
  EXPECT_GT(answer.json()["bytes"], 400'000);
  EXPECT_EQ(answer.json()["runs"][0]["notes"], json::array());
  const ScrubRecord record = memory();
  ASSERT_EQ(record.entries.size(), 2U);
  EXPECT_EQ(record.entries[0].attempt, name_of(first));
  EXPECT_EQ(record.entries[1].attempt, name_of(second));
  EXPECT_TRUE(record.entries[0].good);
  EXPECT_GE(record.entries[0].wall_micros, before);
  EXPECT_EQ(answer.err, "");
  EXPECT_TRUE(call({"scrub", run_.text()}).says("2 checkpoints read, 0 with a fault, 0 not")) << "";
}

TEST_F(Scrub, AFaultIsFoundRememberedAndTheRestStillRead) {
  const Manifest bad = add(1);
  add(2);
  flip_last_bit(bad);
  const Answer answer = call_json({"scrub", run_.text()});
  EXPECT_EQ(answer.code, 1);
  EXPECT_EQ(answer.json()["good"], false);
  EXPECT_EQ(answer.json()["runs"][0]["attempts"][0]["faults"][0]["tensors"], json({"w"}));
  EXPECT_TRUE(answer.json()["runs"][0]["attempts"][1]["faults"].empty());
  ASSERT_EQ(memory().entries.size(), 2U);
  EXPECT_FALSE(memory().entries[0].good);
  EXPECT_TRUE(memory().entries[1].good);
}

TEST_F(Scrub, RecordsAndDamagedManifestsAreFaults) {
  const Manifest manifest = add(1);
  for (const std::filesystem::path& path :
       {file(manifest, "manifest.json"), run_.path() / "deepfreeze.json",
        run_.path() / generation_file_name(1)}) {
    flip_bit(path, 8 * 30);
    EXPECT_EQ(call({"scrub", run_.text()}).code, 1) << path;
    flip_bit(path, 8 * 30);
  }
  EXPECT_EQ(call({"scrub", run_.text()}).code, 0);
}

TEST_F(Scrub, WhoWaitsLongestComesFirst) {
  const AttemptName first = name_of(add(1));
  add(2);
  const AttemptName third = name_of(add(3));
  const std::int64_t now = wall_micros();
  remember({{first, now - kHour, true}, {third, now - 2 * kHour, true}});
  EXPECT_EQ(scrubbed_steps(), (std::vector<std::uint64_t>{2, 3, 1}));
  EXPECT_EQ(scrubbed_steps(), (std::vector<std::uint64_t>{2, 3, 1}))
      << "as the last pass read them";
}

TEST_F(Scrub, ATimeToComeSaysNothing) {
  const AttemptName first = name_of(add(1));
  const AttemptName second = name_of(add(2));
  const std::int64_t now = wall_micros();
  remember({{first, now - kHour, true}, {second, now + kHour, true}});
  EXPECT_EQ(scrubbed_steps(), (std::vector<std::uint64_t>{2, 1}));
}

// Until a pass has read one, a checkpoint waits from when it was written.
TEST_F(Scrub, ANewCheckpointDoesNotComeBeforeOnesUnreadForLong) {
  const AttemptName first = name_of(add(1));
  const std::int64_t now = wall_micros();
  const auto save = [&](std::uint64_t step, std::int64_t written) {
    run_.save({.step = step,
               .ranks = {{random_tensor("w", DType::kU8, {100}, step)}},
               .tree = {},
               .annotations = {.wall_micros = written}});
  };
  save(2, now - kHour);
  save(3, now - 3 * kHour);
  save(4, now + kHour);
  remember({{first, now - 2 * kHour, true}});
  EXPECT_EQ(scrubbed_steps(), (std::vector<std::uint64_t>{4, 3, 1, 2}));
}

// On a clock that every read moves far on: the time is up as soon as the runs are open.
std::vector<ScrubbedRun> scrub_out_of_time(const std::vector<std::string>& paths) {
  Monotonic::time_point now{};
  const auto clock = [&] { return now; };
  RateLimit limit(
      1, {.now = clock, .sleep = [&](Monotonic::duration) { now += std::chrono::hours(1000); }});
  return scrub_runs(paths, limit, {.time_max = std::chrono::seconds(1), .now = clock}, unwatched);
}

TEST_F(Scrub, RunsShareOneQueue) {
  RunFixture other;
  const AttemptName here = name_of(add(1));
  add_to(other, 8);
  remember({{here, wall_micros() - kHour, true}});
  // Nothing is known of the other run, so it comes first, and it is read in any case.
  const auto runs = scrub_out_of_time({run_.text(), other.text()});
  EXPECT_TRUE(runs[0].good());
  EXPECT_TRUE(runs[0].findings.attempts.empty());
  EXPECT_EQ(runs[0].unread_count, 1U);
  ASSERT_EQ(runs[1].findings.attempts.size(), 1U);
  EXPECT_EQ(runs[1].findings.attempts[0].point->step, 8U);
  EXPECT_EQ(runs[1].unread_count, 0U);
}

TEST_F(Scrub, WhereTheTimeIsAlwaysUpEveryPassReadsTheNextOne) {
  for (std::uint64_t step = 1; step <= 3; ++step) add(step);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    const auto runs = scrub_out_of_time({run_.text()});
    ASSERT_EQ(runs[0].findings.attempts.size(), 1U);
    EXPECT_EQ(runs[0].findings.attempts[0].point->step, step);
    EXPECT_EQ(runs[0].unread_count, 2U);
  }
}

TEST_F(Scrub, WhereTheTimeIsUpAKnownFaultIsStillTold) {
  add(1);
  const AttemptName bad = name_of(add(2));
  remember({{bad, wall_micros() - kHour, false}});
  const auto runs = scrub_out_of_time({run_.text()});
  EXPECT_TRUE(runs[0].good()) << "what was checked is good";
  ASSERT_EQ(runs[0].findings.attempts.size(), 1U);
  EXPECT_EQ(runs[0].findings.attempts[0].point->step, 1U);
  ASSERT_EQ(runs[0].findings.notes.size(), 1U);
  EXPECT_NE(runs[0].findings.notes[0].find("had a fault"), std::string::npos);
}

// As many descriptors as one run takes.
TEST_F(Scrub, ThereMayBeMoreRunsThanDescriptors) {
  constexpr std::size_t kRuns = 30;
  add(1);
  const ScopedDir dir;
  std::vector<std::string> arguments{"scrub", "--rate", "0"};
  for (std::size_t i = 0; i < kRuns; ++i) {
    const auto path = dir.path() / std::to_string(i);
    std::filesystem::copy(run_.path(), path, std::filesystem::copy_options::recursive);
    arguments.push_back(path.string());
  }
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  {
    const UniqueFd lowest_free(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    few.rlim_cur = static_cast<rlim_t>(lowest_free.get()) + 12;
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const Answer answer = call_json(arguments);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(answer.code, 0) << answer.err;
  ASSERT_EQ(answer.json()["runs"].size(), kRuns);
  for (std::size_t i = 0; i < kRuns; ++i) {
    EXPECT_EQ(steps_of(answer, i), std::vector<std::uint64_t>{1}) << i;
  }
}

TEST_F(Scrub, AKilledPassGoesOnWhereItStopped) {
  for (std::uint64_t step = 1; step <= 4; ++step) add(step);
  for (const char* point :
       {"scrub.written=kill@3", "scrub.renamed=kill@3", "scrub.synced=kill@3"}) {
    std::filesystem::remove(memory_file());
    const bool third_counts = !std::string_view(point).starts_with("scrub.written");
    const auto scrub_and_die = [&] {
      std::ignore = fail_points::arm(point);
      call({"scrub", run_.text()});
    };
    EXPECT_EXIT(scrub_and_die(), testing::KilledBySignal(SIGKILL), "") << point;
    const auto rest = third_counts ? std::vector<std::uint64_t>{4, 1, 2, 3}
                                   : std::vector<std::uint64_t>{3, 4, 1, 2};
    EXPECT_EQ(scrubbed_steps(), rest) << point;
  }
}

TEST_F(Scrub, ADamagedMemoryOrAnotherRunsCountsAsNone) {
  const AttemptName first = name_of(add(1));
  add(2);
  const ScrubEntry entry{first, wall_micros() - kHour, true};
  for (const std::string& text :
       {encode_scrub({"0123456789abcdef", {entry}}), encode_scrub({run_id(), {entry}}) + "x"}) {
    spill(memory_file(), text);
    EXPECT_EQ(scrubbed_steps(), (std::vector<std::uint64_t>{1, 2})) << text;
    EXPECT_EQ(memory().entries.size(), 2U) << "and is replaced";
  }
  spill(memory_file(), encode_scrub({run_id(), {entry}}));
  EXPECT_EQ(scrubbed_steps(), (std::vector<std::uint64_t>{2, 1}));
}

TEST_F(Scrub, AMemoryOfTheWrongShapeCountsAsNone) {
  using nlohmann::ordered_json;
  const ordered_json entry{
      {"directory", attempt_dir_name(name_of(add(1)))}, {"wall_micros", 5}, {"good", true}};
  const auto with = [&](const char* member, const ordered_json& value) {
    ordered_json changed = entry;
    changed[member] = value;
    return ordered_json::array({changed});
  };
  ordered_json body{{"kind", "scrub"}, {"format_version", 1}, {"run_id", run_id()}};
  body["checkpoints"] = ordered_json::array({entry});
  EXPECT_EQ(decode_scrub(seal_json(body))->entries.size(), 1U);
  for (const ordered_json& list :
       {ordered_json(7), ordered_json(nullptr), ordered_json{{"first", entry}},
        with("directory", "../.."), with("directory", 3), with("wall_micros", "soon"),
        with("good", 1), ordered_json::array({7})}) {
    body["checkpoints"] = list;
    EXPECT_EQ(code_of(decode_scrub(seal_json(body))), ErrorCode::kCorrupt) << list;
  }
  body["checkpoints"] = ordered_json::array({entry});
  for (const char* member : {"checkpoints", "run_id"}) {
    ordered_json less = body;
    less.erase(member);
    EXPECT_EQ(code_of(decode_scrub(seal_json(less))), ErrorCode::kCorrupt) << member;
  }
  body.erase("checkpoints");
  spill(memory_file(), seal_json(body));
  EXPECT_EQ(scrubbed_steps(), std::vector<std::uint64_t>{1});
}

TEST_F(Scrub, ANewerVersionsMemoryIsNotOursToReplace) {
  add(1);
  nlohmann::ordered_json newer{{"kind", "scrub"}, {"format_version", 3}, {"run_id", run_id()}};
  const std::string text = seal_json(newer);
  spill(memory_file(), text);
  const Answer answer = call_json({"scrub", run_.text()});
  EXPECT_EQ(answer.code, 0);
  EXPECT_EQ(answer.json()["runs"][0]["notes"].size(), 1U);
  EXPECT_EQ(slurp(memory_file()), text);
}

TEST_F(Scrub, WithoutAMemoryThePassIsTheSame) {
  add(1);
  add(2);
  for (const char* point : {"scrub.written", "scrub.renamed", "scrub.synced"}) {
    ASSERT_TRUE(fail_points::arm(std::string(point) + "=error:EROFS").has_value());
    const Answer answer = call_json({"scrub", run_.text()});
    EXPECT_EQ(answer.code, 0) << point;
    EXPECT_EQ(answer.json()["runs"][0]["attempts"].size(), 2U) << point;
    ASSERT_EQ(answer.json()["runs"][0]["notes"].size(), 1U) << "said once: " << point;
    fail_points::disarm();
    EXPECT_EQ(call_json({"scrub", run_.text()}).json()["runs"][0]["notes"].size(), 0U) << point;
    for (const auto& entry : std::filesystem::directory_iterator(run_.path())) {
      EXPECT_NE(entry.path().extension(), ".tmp") << point;
    }
  }
}

// Somebody's own file of this name, or a link: the pass is the same, and remembers nothing.
TEST_F(Scrub, WhatIsNotOursInThePlaceOfItsMemoryStays) {
  add(1);
  const auto target = run_.path() / "target";
  spill(target, "precious");
  const auto expect_kept = [&] {
    const Answer answer = call_json({"scrub", run_.text()});
    EXPECT_EQ(answer.code, 0);
    EXPECT_EQ(steps_of(answer), std::vector<std::uint64_t>{1});
    EXPECT_EQ(answer.json()["runs"][0]["notes"].size(), 1U) << answer.out;
    EXPECT_EQ(slurp(memory_file()), "precious");
  };
  std::filesystem::create_symlink(target, memory_file());
  expect_kept();
  EXPECT_TRUE(std::filesystem::is_symlink(memory_file()));
  std::filesystem::remove(memory_file());
  spill(memory_file(), "precious");
  expect_kept();
}

TEST_F(Scrub, ReadersAndCollectorsDoNotMindItsMemory) {
  for (std::uint64_t step = 1; step <= 3; ++step) add(step);
  const json before = call_json({"ls", run_.text()}).json();
  EXPECT_EQ(call({"scrub", run_.text()}).code, 0);
  EXPECT_EQ(call_json({"ls", run_.text()}).json(), before);
  EXPECT_EQ(call({"gc", run_.text(), "--keep-last", "1"}).code, 0);
  EXPECT_TRUE(std::filesystem::exists(memory_file()));
  EXPECT_EQ(scrubbed_steps(), std::vector<std::uint64_t>{3});
  EXPECT_EQ(memory().entries.size(), 1U) << "what is gone is forgotten";
}

// While the first checkpoint is known and the second not yet read, a collector takes the second.
TEST_F(Scrub, WhatACollectorDeletesMeanwhileIsNoFault) {
  add(1);
  const AttemptName second = name_of(add(2));
  Monotonic::time_point now{};
  bool deleted = false;
  const auto sleep = [&](Monotonic::duration) {
    now += std::chrono::hours(1000);
    if (deleted || memory().entries.size() != 1) return;
    deleted = remove_attempt(run_.vfs(), second).has_value();
  };
  RateLimit limit(1, {.now = [&] { return now; }, .sleep = sleep});
  const auto runs = scrub_runs({run_.text()}, limit, {}, unwatched);
  ASSERT_TRUE(deleted);
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_TRUE(runs[0].good());
  EXPECT_EQ(runs[0].findings.attempts.size(), 1U);
  ASSERT_EQ(runs[0].findings.notes.size(), 1U);
  EXPECT_TRUE(runs[0].findings.notes[0].ends_with("removed meanwhile"));
  EXPECT_EQ(memory().entries.size(), 1U);
}

TEST_F(Scrub, KeepsToItsRateOverThePass) {
  std::uint64_t stored = 0;
  for (std::uint64_t step = 1; step <= 4; ++step) stored += add(step).files[0].bytes;
  constexpr std::uint64_t kRate = 100'000;
  Monotonic::time_point now{};
  const auto sleep = [&](Monotonic::duration length) { now += length; };
  RateLimit limit(kRate, {.now = [&] { return now; }, .sleep = sleep});
  const auto runs = scrub_runs({run_.text()}, limit, {}, unwatched);
  EXPECT_TRUE(runs[0].good());
  const double seconds = std::chrono::duration<double>(now.time_since_epoch()).count();
  EXPECT_NEAR(seconds * kRate, static_cast<double>(limit.taken()), 1);
  EXPECT_GT(limit.taken(), stored);
  EXPECT_LT(limit.taken(), stored + stored / 5) << "records are read as well, and little else";
}

TEST_F(Scrub, OneRunThatCantBeReadDoesNotKeepTheOthers) {
  const Manifest manifest = add(1);
  const std::string missing = (run_.path() / "nowhere").string();
  Answer answer = call_json({"scrub", missing, run_.text()});
  EXPECT_EQ(answer.code, 3);
  EXPECT_EQ(answer.json()["good"], false);
  EXPECT_EQ(answer.json()["runs"][0]["errors"][0]["code"], "not_found");
  EXPECT_EQ(answer.json()["runs"][0]["good"], false);
  EXPECT_EQ(answer.json()["runs"][1]["good"], true);
  EXPECT_EQ(steps_of(answer, 1), std::vector<std::uint64_t>{1});
  EXPECT_NE(answer.err.find("nowhere"), std::string::npos);
  flip_last_bit(manifest);
  EXPECT_EQ(call({"scrub", missing, run_.text()}).code, 1) << "a fault is what it looks for";
}

TEST_F(Scrub, ArgumentsThatMakeNoSenseAreUsageErrors) {
  add(1);
  EXPECT_EQ(call({"scrub"}).code, 2);
  EXPECT_EQ(call({"scrub", run_.text() + "@1"}).code, 2);
  EXPECT_EQ(call({"scrub", run_.text(), "--rate", "-1"}).code, 2);
  EXPECT_EQ(call({"scrub", run_.text(), "--rate", "fast"}).code, 2);
  EXPECT_EQ(call({"scrub", run_.text(), "--rate", "99999999999"}).code, 2);
  EXPECT_EQ(call({"scrub", run_.text(), "--max-seconds", "0"}).code, 2);
  EXPECT_FALSE(std::filesystem::exists(memory_file()));
}

TEST_F(Scrub, WhereNoPriorityCanBeGivenUpItSaysSo) {
  add(1);
  Answer answer;
  const bool ran = run_with_denied({.number = SYS_ioprio_set, .os_errno = EPERM},
                                   [&] { answer = call_json({"scrub", run_.text()}); });
  if (!ran) GTEST_SKIP() << "LEFT OUT: this machine allows no seccomp filter";
  EXPECT_EQ(answer.code, 0);
  EXPECT_EQ(answer.json()["notes"],
            json({"the I/O priority stays as it is: Operation not permitted"}));
}

TEST(IdleWork, YieldsToEverybodyElse) {
  int nice = 0;
  long io_class = 0;
  std::thread::id worker;
  const auto refused = run_idle([&] {
    worker = std::this_thread::get_id();
    nice = ::getpriority(PRIO_PROCESS, 0);
    io_class = ::syscall(SYS_ioprio_get, 1, 0) >> 13;
  });
  EXPECT_EQ(refused, std::vector<std::string>{});
  EXPECT_EQ(nice, 19);
  EXPECT_EQ(io_class, 3);
  EXPECT_NE(worker, std::this_thread::get_id()) << "the caller's would not come back";
}

TEST_F(Scrub, TheCallersPriorityStaysAsItIs) {
  add(1);
  const int before = ::getpriority(PRIO_PROCESS, 0);
  EXPECT_EQ(call({"scrub", run_.text()}).code, 0);
  EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), before);
}

}  // namespace
}  // namespace deepfreeze::cmd_scrub_test
