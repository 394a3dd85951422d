// doctor.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <map>

#include "base/fail_point.h"
#include "base/log.h"
#include "cli/test_run.h"
#include "format/sealed_fixture.h"
#include "inspect/doctor_exam.h"
#include "manifest/commit.h"
#include "manifest/run_directory.h"
#include "restore/run_fixture.h"

namespace deepfreeze {
namespace {

using nlohmann::json;

constexpr const char* kNonce = "0123456789abcdef";

std::string slurp(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void spill(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

void make_old(const std::filesystem::path& path) {
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() - std::chrono::minutes(61));
}

class Doctor : public testing::Test {
 protected:
  ~Doctor() override { fail_points::disarm(); }

  FixtureSave save_of(std::uint64_t step) {
    return {.step = step, .ranks = {{random_tensor("w", DType::kU8, {200'000}, step)}}, .tree = {}};
  }
  Manifest add(std::uint64_t step) { return run_.save(save_of(step)); }
  std::filesystem::path dir(const Identity& identity) {
    return run_.path() / attempt_dir_name({identity.step, identity.attempt_id});
  }
  std::filesystem::path dir(const Manifest& manifest) { return run_.file_path(manifest, ""); }
  std::filesystem::path manifest_file(const Manifest& manifest) {
    return run_.file_path(manifest, "manifest.json");
  }
  Identity add_aborted(std::uint64_t step) {
    const Identity identity = run_.write_undecided(save_of(step));
    Manifest aborted{.outcome = Outcome::kAborted, .run_id = identity.run_id};
    aborted.point = {identity.generation, step, identity.save_index, identity.attempt_id};
    std::ignore = must(abort_attempt(run_.vfs(), aborted));
    return identity;
  }
  Manifest add_half_deleted(std::uint64_t step) {
    Manifest manifest = add(step);
    std::filesystem::rename(manifest_file(manifest), dir(manifest) / "manifest.deleted.json");
    return manifest;
  }
  Answer doctor(std::vector<std::string> flags = {}) {
    flags.insert(flags.begin(), {"doctor", run_.text()});
    return call_json(flags);
  }
  // The one finding of this kind; null unless there is exactly one.
  static json finding(const Answer& answer, const std::string& kind) {
    json found;
    std::size_t count = 0;
    const json document = answer.json();
    for (const json& item : document["findings"]) {
      if (item["kind"] != kind) continue;
      found = item;
      ++count;
    }
    return count == 1 ? found : json();
  }
  // Every name below the run, with the contents of files.
  std::map<std::string, std::string> everything() {
    std::map<std::string, std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(run_.path())) {
      names[entry.path().string()] = entry.is_regular_file() ? slurp(entry.path()) : "";
    }
    return names;
  }

  RunFixture run_;
};

TEST_F(Doctor, AHealthyRunHasNoFindings) {
  add(1);
  add(2);
  EXPECT_EQ(call({"scrub", run_.text(), "--rate", "0"}).code, 0);
  for (const char* flag : {"--verify", "--repair", "--delete-debris"}) {
    const auto before = everything();
    const Answer answer = doctor({flag});
    EXPECT_EQ(answer.code, 0) << answer.out << answer.err;
    EXPECT_EQ(answer.json()["findings"], json::array()) << answer.out;
    EXPECT_EQ(everything(), before);
  }
  EXPECT_TRUE(call({"doctor", run_.text()}).says("0 faults, 0 debris, 0 notes"));
}

TEST_F(Doctor, SaysOfEverythingWhatItIs) {
  const Manifest kept = add(1);
  const Identity fenced = run_.write_undecided(save_of(3));
  run_.claim(kept.point);
  add_half_deleted(4);
  add_aborted(5);
  const Identity open = run_.write_undecided(save_of(6));
  report_failed_part(run_.vfs(), {6, open.attempt_id}, {.rank = 1, .world_size = 2},
                     Error(ErrorCode::kNoSpace, "disk\x1b[2J of rank 1"));
  spill(run_.path() / (std::string("deepfreeze.bad-") + kNonce + ".json"), "bad");
  spill(run_.path() / (std::string("generation.") + kNonce + ".tmp"), "torn");
  spill(dir(kept) / (std::string("manifest.bad-") + kNonce + ".json"), "bad");
  spill(dir(kept) / sealed_file_name({.rank = 1, .world_size = 2}), "data");
  spill(run_.path() / "notes\n.txt", "mine");
  const auto before = everything();
  const Answer answer = doctor();
  EXPECT_EQ(answer.code, 0) << "debris is no fault: " << answer.out;
  EXPECT_EQ(everything(), before) << "it only looks";
  EXPECT_EQ(answer.json()["findings"].size(), 10U) << answer.out;
  EXPECT_EQ(finding(answer, "fenced")["place"], attempt_dir_name({3, fenced.attempt_id}));
  EXPECT_EQ(finding(answer, "fenced")["detail"], "of generation 1, and 2 has been claimed");
  EXPECT_GT(finding(answer, "fenced")["bytes"], 200'000);
  EXPECT_EQ(finding(answer, "undecided")["place"], attempt_dir_name({6, open.attempt_id}));
  EXPECT_EQ(finding(answer, "undecided")["weight"], "note");
  EXPECT_EQ(finding(answer, "half_deleted")["weight"], "debris");
  EXPECT_EQ(finding(answer, "aborted")["weight"], "debris");
  EXPECT_EQ(finding(answer, "rank_failed")["detail"], "disk\x1b[2J of rank 1");
  EXPECT_EQ(finding(answer, "run_file_kept")["bytes"], 3);
  EXPECT_EQ(finding(answer, "temporary")["bytes"], 4);
  EXPECT_EQ(finding(answer, "manifest_kept")["weight"], "note");
  EXPECT_EQ(finding(answer, "unlisted")["bytes"], 4);
  EXPECT_EQ(finding(answer, "foreign")["place"], "notes\n.txt");
  const Answer table = call({"doctor", run_.text()});
  EXPECT_EQ(table.out.find('\x1b'), std::string::npos) << "nothing stored steers the terminal";
  EXPECT_TRUE(table.says("notes\\x0a.txt")) << table.out;
  EXPECT_TRUE(table.says("0 faults, 4 debris, 6 notes")) << table.out;
}

TEST_F(Doctor, WhatIsForeignGoesWithAnAttemptAndNotWithTheRun) {
  const Manifest manifest = add(1);
  spill(dir(manifest) / "mine.txt", "mine");
  EXPECT_NE(finding(doctor(), "foreign")["remedy"].get<std::string>().find("gc deletes it"),
            std::string::npos);
  std::filesystem::rename(dir(manifest) / "mine.txt", run_.path() / "mine.txt");
  EXPECT_NE(finding(doctor(), "foreign")["remedy"].get<std::string>().find("never touched"),
            std::string::npos);
}

TEST_F(Doctor, DamagedClaimsAndHeadersAreFaults) {
  add(1);
  const Manifest bad = add(2);
  flip_bit(run_.path() / generation_file_name(1), 8 * 40);
  EXPECT_EQ(doctor().code, 1);
  EXPECT_EQ(finding(doctor(), "claim_damaged")["place"], generation_file_name(1));
  flip_bit(run_.path() / generation_file_name(1), 8 * 40);
  flip_bit(run_.file_path(bad, bad.files[0].name), 8 * 200);
  const Answer answer = doctor();
  EXPECT_EQ(answer.code, 1);
  EXPECT_EQ(finding(answer, "checkpoint_damaged")["place"],
            attempt_dir_name({2, bad.point.attempt_id}) + "/" + bad.files[0].name);
}

TEST_F(Doctor, ABadBlockShowsOnlyWhereAllIsRead) {
  const Manifest bad = add(1);
  flip_bit(run_.file_path(bad, bad.files[0].name), bad.files[0].bytes * 8 - 1);
  EXPECT_EQ(doctor().code, 0);
  const Answer answer = doctor({"--verify"});
  EXPECT_EQ(answer.code, 1);
  EXPECT_EQ(finding(answer, "checkpoint_damaged")["tensors"], json({"w"}));
  EXPECT_TRUE(call({"doctor", run_.text(), "--verify"}).says("  tensors w\n"));
}

// Without --verify a flipped byte is not seen, and doctor must not sound as if it were.
TEST_F(Doctor, SaysThatBlocksWereNotReadAndWhenTheyWereLast) {
  add(1);
  const Manifest bad = add(2);
  flip_bit(run_.file_path(bad, bad.files[0].name), bad.files[0].bytes * 8 - 1);
  const Answer before = call({"doctor", run_.text()});
  EXPECT_EQ(before.code, 0) << before.out;
  EXPECT_TRUE(before.says("the blocks were not read; --verify reads them all")) << before.out;
  EXPECT_TRUE(before.says("step 2: never read in full, written ")) << before.out;
  EXPECT_TRUE(before.says("0 notes; blocks were not read\n")) << before.out;
  const json unread = call_json({"doctor", run_.text()}).json();
  EXPECT_EQ(unread["blocks_read"], false);
  ASSERT_EQ(unread["checkpoints"].size(), 2U);
  EXPECT_TRUE(unread["checkpoints"][0]["last_full_read_micros"].is_null());

  EXPECT_EQ(call({"verify", run_.text()}).code, 1);
  EXPECT_EQ(call({"doctor", run_.text()}).code, 0) << "what memory holds is no reading of the disk";
  EXPECT_EQ(call({"verify", "--deep", run_.text()}).code, 1);
  const json read = call_json({"doctor", run_.text()}).json();
  EXPECT_EQ(read["good"], false);
  EXPECT_EQ(read["checkpoints"][0]["last_full_read_good"], false);
  EXPECT_EQ(read["checkpoints"][1]["last_full_read_good"], true);
  const Answer after = call({"doctor", run_.text()});
  EXPECT_EQ(after.code, 1);
  EXPECT_TRUE(after.says("fault fault_when_last_read: step-000000000002")) << after.out;
  EXPECT_TRUE(after.says("step 1: read in full 0 s ago\n")) << after.out;
  EXPECT_TRUE(after.says("step 2: read in full 0 s ago, with a fault\n")) << after.out;

  const json now = call_json({"doctor", "--verify", run_.text()}).json();
  EXPECT_EQ(now["blocks_read"], true);
  ASSERT_EQ(now["findings"].size(), 1U) << "once, and not as a memory of it";
  EXPECT_EQ(now["findings"][0]["kind"], "checkpoint_damaged");
  EXPECT_FALSE(call({"doctor", "--verify", run_.text()}).says("not read"));
}

TEST_F(Doctor, AReadingThatCantBeRememberedIsNoError) {
  add(1);
  spill(run_.path() / "scrub.json", "mine");
  const Answer deep = call({"verify", "--deep", run_.text()});
  EXPECT_EQ(deep.code, 0) << deep.err;
  EXPECT_EQ(deep.err, "");
  EXPECT_EQ(slurp(run_.path() / "scrub.json"), "mine");
  EXPECT_TRUE(call({"doctor", run_.text()}).says("step 1: never read in full"));
  std::filesystem::remove(run_.path() / "scrub.json");
  ASSERT_TRUE(fail_points::arm("scrub.written=error").has_value());
  EXPECT_EQ(call({"verify", "--deep", run_.text()}).code, 0);
}

TEST_F(Doctor, OfManyCheckpointsTheNewestReadingsAreListed) {
  for (std::uint64_t step = 1; step <= 12; ++step) {
    run_.save({.step = step, .ranks = {{f32_tensor("w", {1})}}});
  }
  const Answer answer = call({"doctor", run_.text()});
  EXPECT_TRUE(answer.says("step 3: never")) << answer.out;
  EXPECT_FALSE(answer.says("step 2: never")) << answer.out;
  EXPECT_TRUE(answer.says("and 2 older checkpoints, 2 of them never read in full")) << answer.out;
  EXPECT_EQ(call_json({"doctor", run_.text()}).json()["checkpoints"].size(), 12U);
}

TEST_F(Doctor, RepairsTheRunsRecordAndKeepsTheBadOne) {
  add(1);
  const std::string run_id = read_run(run_.vfs())->run.run_id;
  flip_bit(run_.path() / "deepfreeze.json", 8 * 30);
  EXPECT_EQ(finding(doctor(), "run_file_damaged")["weight"], "fault");
  Answer answer = doctor({"--repair"});
  EXPECT_EQ(answer.code, 0) << answer.out;
  EXPECT_EQ(answer.json()["repaired"][0]["place"], "deepfreeze.json");
  EXPECT_NE(finding(answer, "run_file_kept"), json());
  EXPECT_EQ(read_run(run_.vfs())->run.run_id, run_id);
  std::filesystem::remove(run_.path() / "deepfreeze.json");
  EXPECT_EQ(finding(doctor(), "run_file_missing")["weight"], "fault");
  answer = doctor({"--repair"});
  EXPECT_EQ(answer.code, 0) << answer.out;
  EXPECT_FALSE(read_run(run_.vfs())->run_rebuilt);
  EXPECT_EQ(read_run(run_.vfs())->run.run_id, run_id);
}

TEST_F(Doctor, WhatStopsTheRepairOfTheRunsRecordIsToldAndCanBeRepeated) {
  add(1);
  for (const char* point : {"run.written", "run.renamed", "run.synced"}) {
    std::filesystem::remove(run_.path() / "deepfreeze.json");
    ASSERT_TRUE(fail_points::arm(std::string(point) + "=error").has_value());
    const Answer answer = doctor({"--repair"});
    fail_points::disarm();
    EXPECT_EQ(answer.json()["not_repaired"][0]["place"], "deepfreeze.json") << point;
    EXPECT_EQ(answer.json()["repaired"], json::array()) << point;
    EXPECT_EQ(answer.code, 3) << "whatever faults are left: " << point;
    EXPECT_EQ(answer.json()["failed"], true) << point;
    EXPECT_EQ(doctor({"--repair"}).code, 0) << point;
  }
}

TEST_F(Doctor, PublishesADamagedManifestAnewWhereAllItsDataIsWhole) {
  add(1);
  const Manifest manifest = add(2);
  const std::string good = slurp(manifest_file(manifest));
  flip_bit(manifest_file(manifest), 8 * 150);
  const std::string damaged = slurp(manifest_file(manifest));
  Answer answer = doctor();
  EXPECT_EQ(answer.code, 1);
  EXPECT_EQ(finding(answer, "manifest_damaged")["remedy"].get<std::string>().substr(0, 9),
            "--repair ");
  answer = doctor({"--repair"});
  EXPECT_EQ(answer.code, 0) << answer.out;
  EXPECT_EQ(answer.json()["repaired"].size(), 1U);
  EXPECT_EQ(slurp(manifest_file(manifest)), good);
  const std::string kept = finding(answer, "manifest_kept")["place"];
  EXPECT_EQ(slurp(run_.path() / kept), damaged);
  EXPECT_EQ(call({"verify", run_.text() + "@2"}).code, 0);
  EXPECT_EQ(call({"gc", run_.text(), "--keep-last", "1"}).code, 0);
  EXPECT_EQ(call_json({"ls", run_.text()}).json()["checkpoints"].size(), 1U);
}

TEST_F(Doctor, RefusesWhereTheDataIsNotWholeAndSaysWhy) {
  const Manifest manifest = add(1);
  flip_bit(manifest_file(manifest), 8 * 150);
  flip_bit(run_.file_path(manifest, manifest.files[0].name), manifest.files[0].bytes * 8 - 1);
  const auto before = everything();
  const Answer answer = doctor({"--repair", "--delete-debris"});
  EXPECT_EQ(answer.code, 3);
  EXPECT_EQ(everything(), before);
  const std::string why = answer.json()["not_repaired"][0]["why"];
  EXPECT_NE(why.find("block 3"), std::string::npos) << why;
}

TEST_F(Doctor, RefusesWhereTheStateTreeIsNone) {
  FixtureSave save = save_of(1);
  save.tree = R"({"$":"nonsense"})";
  const Manifest manifest = run_.save(save);
  flip_bit(manifest_file(manifest), 8 * 150);
  const auto before = everything();
  const Answer answer = doctor({"--repair"});
  EXPECT_EQ(answer.code, 3);
  EXPECT_EQ(everything(), before);
  EXPECT_NE(answer.json()["not_repaired"][0]["why"].get<std::string>().find("state tree"),
            std::string::npos);
}

TEST_F(Doctor, WhatACollectorDeletesMeanwhileIsNoFault) {
  const Manifest first = add(1);
  add(2);
  const OpenedRun run = must(open_run(run_.text()));
  must(remove_attempt(run_.vfs(), {1, first.point.attempt_id}));
  for (const bool read_all : {false, true}) {
    const auto complaints = examine(run, {}, {.read_all = read_all}, unwatched);
    EXPECT_TRUE(complaints.empty());
  }
}

// As the record is mended another process, of a newer version, claims the run.
TEST_F(Doctor, WhatItDidIsToldThoughTheRunCantBeReadAgain) {
  add(1);
  flip_bit(run_.path() / "deepfreeze.json", 8 * 30);
  const nlohmann::ordered_json newer{{"kind", "generation"}, {"format_version", 3}};
  set_log_sink([&](std::string_view text) {
    if (!text.contains("written anew")) return;
    spill(run_.path() / generation_file_name(2), seal_json(newer));
  });
  const Answer answer = doctor({"--repair"});
  set_log_sink({});
  EXPECT_EQ(answer.code, 3) << answer.out;
  EXPECT_EQ(answer.json()["good"], false);
  EXPECT_EQ(answer.json()["failed"], true);
  EXPECT_EQ(answer.json()["repaired"].size(), 1U);
  EXPECT_EQ(answer.json()["error"]["code"], "unsupported");
  EXPECT_NE(answer.err.find("deepfreeze doctor: "), std::string::npos);
}

TEST_F(Doctor, WritesTheRunsRecordAnewWithItsParent) {
  const ParentPoint parent{.run = "../older", .step = 7};
  FixtureSave save = save_of(1);
  save.annotations.parent = parent;
  run_.save(save);
  std::filesystem::remove(run_.path() / "deepfreeze.json");
  const Answer answer = doctor({"--repair"});
  EXPECT_EQ(answer.code, 0) << answer.out;
  EXPECT_EQ(answer.json()["repaired"][0]["how"], "written anew from the other records");
  EXPECT_EQ(read_run(run_.vfs())->run.parent, parent);
}

TEST_F(Doctor, SaysWhereNothingTellsWhetherTheRunHasAParent) {
  add_aborted(1);
  const std::string run_id = read_run(run_.vfs())->run.run_id;
  std::filesystem::remove(run_.path() / "deepfreeze.json");
  const Answer answer = doctor({"--repair"});
  EXPECT_EQ(answer.code, 0) << answer.out;
  EXPECT_NE(answer.json()["repaired"][0]["how"].get<std::string>().find("has a parent"),
            std::string::npos);
  EXPECT_EQ(read_run(run_.vfs())->run.run_id, run_id) << "never a new run";
}

// The record may be whole behind the link, or on a device that is coming back.
TEST_F(Doctor, ARunsRecordThatCantBeReadIsNotReplaced) {
  add(1);
  const auto record = run_.path() / "deepfreeze.json";
  std::filesystem::rename(record, run_.path() / "aside");
  std::filesystem::create_symlink(run_.path() / "aside", record);
  const auto before = everything();
  const Answer answer = doctor({"--repair"});
  EXPECT_EQ(answer.code, 3);
  EXPECT_EQ(finding(answer, "run_file_unread")["weight"], "fault");
  EXPECT_EQ(answer.json()["not_repaired"][0]["place"], "deepfreeze.json");
  EXPECT_EQ(everything(), before);
}

TEST_F(Doctor, AnUnknownIntegrityIsNoDamageAndHidesNothing) {
  Manifest manifest = add(1);
  manifest.integrity = "sha-3";
  spill(manifest_file(manifest), encode_manifest(manifest));
  add_aborted(2);
  const Answer answer = doctor();
  EXPECT_EQ(answer.code, 1) << answer.out;
  EXPECT_NE(finding(answer, "checkpoint_unread"), json());
  EXPECT_NE(finding(answer, "aborted"), json());
}

TEST_F(Doctor, RefusesWhatANewerClaimHasFenced) {
  const Manifest manifest = add(1);
  flip_bit(manifest_file(manifest), 8 * 150);
  run_.claim(std::nullopt);
  const auto before = everything();
  const Answer answer = doctor({"--repair", "--delete-debris"});
  EXPECT_EQ(answer.code, 3);
  EXPECT_EQ(everything(), before);
  EXPECT_NE(finding(answer, "manifest_damaged")["remedy"].get<std::string>().find("fenced"),
            std::string::npos);
}

TEST_F(Doctor, RepairsWhatTheRunWasResumedFrom) {
  const Manifest manifest = add(1);
  run_.claim(manifest.point);
  flip_bit(manifest_file(manifest), 8 * 150);
  const Answer answer = doctor({"--repair"});
  EXPECT_EQ(answer.code, 0) << answer.out;
  EXPECT_EQ(call({"verify", run_.text()}).code, 0);
}

TEST_F(Doctor, AForeignManifestIsNotDamagedAndStays) {
  const Manifest first = add(1);
  const Manifest second = add(2);
  spill(manifest_file(second), slurp(manifest_file(first)));
  const auto before = everything();
  const Answer answer = doctor({"--repair", "--delete-debris"});
  EXPECT_EQ(answer.code, 3);
  EXPECT_EQ(everything(), before);
  EXPECT_EQ(answer.json()["not_repaired"].size(), 1U);
}

class Debris : public Doctor {
 protected:
  static std::vector<std::string> places(const Answer& answer, const char* member) {
    std::vector<std::string> names;
    const json document = answer.json();
    for (const json& item : document[member]) names.push_back(item["place"]);
    return names;
  }
  static std::string name(const Identity& identity) {
    return attempt_dir_name({identity.step, identity.attempt_id});
  }
  std::filesystem::path temporary(const std::filesystem::path& where, const char* stem) {
    const auto path = where / (std::string(stem) + "." + kNonce + ".tmp");
    spill(path, "torn");
    return path;
  }
};

TEST_F(Debris, GoesAndNothingElse) {
  const Manifest kept = add(1);
  const Identity fenced = run_.write_undecided(save_of(3));
  run_.claim(kept.point);
  const Identity open = run_.write_undecided(save_of(6));
  make_old(temporary(dir(open), "manifest"));
  temporary(run_.path(), "generation");  // just written
  spill(run_.path() / "notes.txt", "mine");
  const auto before = everything();
  const Manifest half = add_half_deleted(4);
  const Identity aborted = add_aborted(5);
  make_old(temporary(run_.path(), "deepfreeze"));
  make_old(temporary(dir(kept), "manifest"));
  const Answer answer = doctor({"--delete-debris"});
  EXPECT_EQ(answer.code, 0) << answer.out << answer.err;
  const std::vector<std::string> gone{
      name(aborted), attempt_dir_name({half.point.step, half.point.attempt_id}),
      std::string("deepfreeze.") + kNonce + ".tmp",
      attempt_dir_name({1, kept.point.attempt_id}) + "/manifest." + kNonce + ".tmp", name(fenced)};
  EXPECT_EQ(places(answer, "deleted"), gone) << answer.out;
  EXPECT_GT(answer.json()["deleted"][0]["bytes"], 200'000);
  EXPECT_EQ(answer.json()["deleted"][2]["bytes"], 4);
  auto expected = before;
  std::erase_if(expected, [&](const auto& item) { return item.first.contains(name(fenced)); });
  EXPECT_EQ(everything(), expected);
  EXPECT_EQ(places(answer, "not_deleted").size(), 2U)
      << "the one that is not an hour old, and the one that may be in use";
  EXPECT_EQ(doctor({"--delete-debris"}).json()["deleted"], json::array());
}

TEST_F(Debris, StaysWhileOnlyOtherRecordsTellWhichRunItIs) {
  add(1);
  const Identity aborted = add_aborted(2);
  std::filesystem::remove(run_.path() / "deepfreeze.json");
  const auto before = everything();
  Answer answer = doctor({"--delete-debris"});
  EXPECT_EQ(answer.code, 3);
  EXPECT_EQ(places(answer, "not_deleted"), std::vector<std::string>{"deepfreeze.json"});
  EXPECT_EQ(everything(), before);
  answer = doctor({"--delete-debris", "--repair"});
  EXPECT_EQ(answer.code, 0) << answer.out;
  EXPECT_FALSE(std::filesystem::exists(dir(aborted)));
}

TEST_F(Debris, IsToldWithItsSize) {
  add(1);
  add_aborted(2);
  const Answer answer = call({"doctor", run_.text(), "--delete-debris"});
  EXPECT_EQ(answer.code, 0);
  EXPECT_TRUE(answer.says("deleted step-000000000002-")) << answer.out;
  EXPECT_TRUE(answer.says("freed\n")) << answer.out;
}

TEST_F(Debris, AnUndecidedAttemptOfTheNewestGenerationStays) {
  add(1);
  run_.write_undecided(save_of(2));
  const auto before = everything();
  const Answer answer = doctor({"--delete-debris", "--repair"});
  EXPECT_EQ(answer.code, 0);
  EXPECT_EQ(everything(), before);
}

TEST_F(Debris, AnUndecidedAttemptThatTellsNoGenerationStays) {
  add(1);
  const Identity open = run_.write_undecided(save_of(2));
  run_.claim(std::nullopt);
  flip_bit(dir(open) / sealed_file_name({}), 8 * 200);
  const auto before = everything();
  const Answer answer = doctor({"--delete-debris"});
  EXPECT_EQ(everything(), before);
  EXPECT_NE(finding(answer, "undecided"), json());
}

TEST_F(Debris, AnAttemptThatHoldsWhatIsNotOursStays) {
  add(1);
  const Identity first = add_aborted(2);
  spill(dir(first) / "mine.txt", "precious");
  const Identity second = add_aborted(3);
  std::filesystem::create_directory(dir(second) / part_file_name({.rank = 1, .world_size = 2}));
  const Manifest half = add_half_deleted(4);
  std::filesystem::create_symlink("/etc/hostname", dir(half) / "link");
  const auto before = everything();
  const Answer answer = doctor({"--delete-debris"});
  EXPECT_EQ(answer.code, 0) << answer.out;
  EXPECT_EQ(answer.json()["not_deleted"].size(), 3U);
  EXPECT_EQ(everything(), before);
}

TEST_F(Debris, LinksAndForeignNamesAreNeverFollowedNorRemoved) {
  const Manifest kept = add(1);
  const RunFixture elsewhere;
  const auto outside = elsewhere.path() / "outside";
  spill(outside, "precious");
  make_old(outside);
  const std::string ending = std::string(".") + kNonce + ".tmp";
  std::filesystem::create_symlink(outside, run_.path() / ("generation" + ending));
  std::filesystem::create_symlink(outside, dir(kept) / ("manifest" + ending));
  std::filesystem::create_directory_symlink(elsewhere.path(),
                                            run_.path() / "step-000000000009-0000000000000009");
  std::filesystem::create_directory(run_.path() / ("deepfreeze" + ending));
  for (const char* foreign :
       {"generation.0123.tmp", "other.0123456789abcdef.tmp", "manifest.0123456789abcdeg.tmp",
        "generation.0123456789abcdef.tmp~", "x\x1b[31m.tmp"}) {
    spill(run_.path() / foreign, "mine");
    make_old(run_.path() / foreign);
  }
  const auto before = everything();
  const Answer answer = doctor({"--delete-debris", "--repair"});
  EXPECT_EQ(answer.code, 0) << answer.out << answer.err;
  EXPECT_EQ(everything(), before);
  EXPECT_EQ(slurp(outside), "precious");
}

TEST_F(Debris, AFileOfAnHourToComeStays) {
  add(1);
  const auto path = temporary(run_.path(), "generation");
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() + std::chrono::hours(3));
  EXPECT_EQ(doctor({"--delete-debris"}).json()["deleted"], json::array());
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST_F(Debris, StoppedAnywhereTheNextOneFinishes) {
  const Manifest kept = add(1);
  for (const char* point : {"abort.written", "abort.renamed", "abort.synced",
                            "remove.manifest_synced", "remove.files_removed", "remove.files_synced",
                            "remove.directory_removed", "debris.removed", "debris.synced"}) {
    const Identity fenced = run_.write_undecided(save_of(3));
    run_.claim(kept.point);
    const auto path = temporary(run_.path(), "scrub");
    make_old(path);
    ASSERT_TRUE(fail_points::arm(std::string(point) + "=error").has_value());
    Answer answer = doctor({"--delete-debris"});
    fail_points::disarm();
    EXPECT_EQ(answer.code, 3) << point << answer.out;
    const std::size_t left = std::string_view(point) == "debris.synced" ? 2 : 1;
    EXPECT_EQ(places(answer, "not_deleted").size(), left) << point << answer.out;
    answer = doctor({"--delete-debris"});
    EXPECT_EQ(answer.code, 0) << point << answer.out;
    EXPECT_FALSE(std::filesystem::exists(dir(fenced))) << point;
    EXPECT_FALSE(std::filesystem::exists(path)) << point;
    EXPECT_EQ(call({"verify", run_.text()}).code, 0) << point;
  }
}

TEST_F(Doctor, WhatIsNoRunIsAFailure) {
  EXPECT_EQ(call({"doctor", (run_.path() / "nowhere").string()}).code, 3);
  EXPECT_EQ(call({"doctor", run_.text() + "@1"}).code, 2);
  EXPECT_EQ(call({"doctor"}).code, 2);
}

}  // namespace
}  // namespace deepfreeze
