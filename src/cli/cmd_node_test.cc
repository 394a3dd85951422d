// ls, doctor, verify, scrub and gc in the near directory of a node, whose checkpoints have files on
// other nodes (decision 0026).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/test_run.h"
#include "format/names.h"
#include "format/node_record.h"
#include "manifest/run_directory.h"
#include "restore/run_fixture.h"

namespace deepfreeze {
namespace {

using nlohmann::json;

constexpr std::uint64_t kOwn = 0xb2;
constexpr std::uint64_t kDecider = 0x3fa1;
constexpr const char* kInDoubt = "in doubt: node 0000000000003fa1 decides";

class NodeDirectory : public testing::Test {
 protected:
  NodeDirectory() {
    write(std::string(kNodeFile), encode_node({.node = kOwn, .host = "host1"}));
    name_decider(1);
  }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(run_.path() / name, std::ios::binary | std::ios::trunc) << text;
  }
  void name_decider(std::uint64_t generation, const Keep& keep = {}) {
    const RunListing listing = must(read_run(run_.vfs()));
    GenerationRecord record = *listing.claims.at(generation - 1).record;
    record.node = kDecider;
    record.keep = keep;
    write(generation_file_name(generation), encode_generation(record));
  }
  FixtureSave save_of(std::uint64_t step) {
    FixtureSave save{.step = step, .ranks = {}, .tree = R"({"lr":1})"};
    for (std::uint64_t rank = 0; rank < 4; ++rank) {
      save.ranks.push_back({random_tensor("w" + std::to_string(rank), DType::kU8, {70'000}, rank)});
    }
    return save;
  }
  // Ranks 0 and 1 are on the other node.
  Manifest add(std::uint64_t step) {
    Manifest manifest = run_.save(save_of(step));
    for (const std::size_t rank : {0U, 1U}) remove(manifest, rank);
    return manifest;
  }
  void remove(const Manifest& manifest, std::size_t rank) {
    std::filesystem::remove(run_.file_path(manifest, manifest.files.at(rank).name));
  }
  Identity add_in_doubt(std::uint64_t step) { return run_.write_undecided(save_of(step)); }
  Answer look(const std::string& verb) { return call_json({verb, run_.text()}); }
  static json findings(const Answer& answer, const std::string& kind) {
    json found = json::array();
    const json document = answer.json();
    for (const json& item : document["findings"]) {
      if (item["kind"] == kind) found.push_back(item);
    }
    return found;
  }

  RunFixture run_;
};

TEST_F(NodeDirectory, LsCountsTheFilesThatAreHere) {
  add(1);
  const Answer table = call({"ls", run_.text()});
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_TRUE(table.says("newest, 2 of 4 files here")) << table.out;
  const json row = look("ls").json()["checkpoints"][0];
  EXPECT_EQ(row["files"], 4);
  EXPECT_EQ(row["files_here"], 2);
  std::filesystem::remove(run_.path() / kNodeFile);
  EXPECT_FALSE(look("ls").json()["checkpoints"][0].contains("files"));
}

TEST_F(NodeDirectory, ACheckpointThatIsWholeHereIsToldAsEver) {
  run_.save(save_of(1));
  EXPECT_FALSE(call({"ls", run_.text()}).says("files here"));
  EXPECT_TRUE(findings(look("doctor"), "on_other_nodes").empty());
}

TEST_F(NodeDirectory, FilesOfOtherNodesAreANoteOfTheDoctor) {
  const Manifest manifest = add(1);
  for (const char* flag : {"--json", "--verify"}) {
    const Answer answer = call_json({"doctor", run_.text(), flag});
    EXPECT_EQ(answer.code, 0) << answer.out << answer.err;
    const json found = findings(answer, "on_other_nodes");
    ASSERT_EQ(found.size(), 1U) << answer.out;
    EXPECT_EQ(found[0]["weight"], "note");
    EXPECT_EQ(found[0]["detail"], "2 of 4 files here");
  }
  flip_bit(run_.file_path(manifest, manifest.files.at(2).name), 8 * 5'000);
  const Answer damaged = call_json({"doctor", run_.text(), "--verify"});
  EXPECT_EQ(damaged.code, 1) << "a file that is here must be whole";
  EXPECT_EQ(findings(damaged, "checkpoint_damaged").size(), 1U);
}

// As on a node to which the others' files were fetched.
TEST_F(NodeDirectory, ACheckpointThatIsWholeHereIsCheckedAsAWhole) {
  FixtureSave save = save_of(1);
  save.tree = R"({"$":"nonsense"})";
  run_.save(save);
  EXPECT_EQ(call({"verify", run_.text(), "--deep"}).code, 1);
  EXPECT_EQ(call({"doctor", run_.text(), "--verify"}).code, 1);
}

// A tier has no digits, and its half copies are decided by none.
TEST_F(NodeDirectory, AHalfCopyOnATierIsNotInDoubt) {
  const Manifest manifest = run_.save(save_of(1));
  const RunFixture tier;
  std::filesystem::copy(
      run_.path(), tier.path(),
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  std::filesystem::remove(tier.path() / kNodeFile);
  std::filesystem::remove(tier.file_path(manifest, "manifest.json"));
  const Answer answer = call_json({"doctor", run_.text(), tier.text()});
  EXPECT_TRUE(findings(answer, "in_doubt").empty());
  EXPECT_EQ(findings(answer, "tier_copy_begun").size(), 1U) << answer.out;
}

// A job whose ranks are all on one node has a claim without digits.
TEST_F(NodeDirectory, AMissingFileOfAJobOnOneNodeIsAFault) {
  run_.claim({});
  add(1);
  EXPECT_EQ(look("doctor").code, 1);
  EXPECT_EQ(look("verify").code, 1);
}

TEST_F(NodeDirectory, VerifyReadsTheFilesOfThisNode) {
  const Manifest manifest = add(1);
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"verify", run_.text()}, {"verify", run_.text(), "--deep"}}) {
    const Answer answer = call_json(arguments);
    EXPECT_EQ(answer.code, 0) << answer.out << answer.err;
    const json note = answer.json()["notes"][0];
    EXPECT_TRUE(
        note.get<std::string>().ends_with(": 2 of 4 files are on other nodes, and were not read"))
        << note;
  }
  EXPECT_EQ(call({"verify", run_.text() + "@1"}).code, 1) << "a single step must be whole";
  EXPECT_EQ(call({"scrub", run_.text()}).code, 0);
  flip_bit(run_.file_path(manifest, manifest.files.at(2).name), 8 * 5'000);
  EXPECT_EQ(look("verify").code, 1);
  EXPECT_EQ(call({"scrub", run_.text()}).code, 1);
}

TEST_F(NodeDirectory, AnAttemptInDoubtIsToldWithTheNodeThatDecides) {
  const Identity own = add_in_doubt(2);
  const std::string directory = attempt_dir_name({own.step, own.attempt_id});
  EXPECT_TRUE(call({"ls", run_.text()}).says(kInDoubt));
  const json row = look("ls").json()["checkpoints"][0];
  EXPECT_EQ(row["state"], "undecided") << "for everybody";
  EXPECT_EQ(row["in_doubt"], kInDoubt);
  EXPECT_EQ(row["deciding_node"], "0000000000003fa1");
  const Answer answer = look("doctor");
  EXPECT_EQ(answer.code, 0) << answer.out;
  const json found = findings(answer, "in_doubt");
  ASSERT_EQ(found.size(), 1U) << answer.out;
  EXPECT_EQ(found[0]["weight"], "note");
  EXPECT_EQ(found[0]["place"], directory);
  EXPECT_EQ(found[0]["detail"], kInDoubt);
  EXPECT_TRUE(found[0]["remedy"].get<std::string>().starts_with("leave it"));
  EXPECT_TRUE(call({"verify", run_.text()}).says(kInDoubt));
}

TEST_F(NodeDirectory, AClaimThatIsLostMakesTheDeciderUnknown) {
  add_in_doubt(2);
  std::filesystem::remove(run_.path() / generation_file_name(1));
  const json row = look("ls").json()["checkpoints"][0];
  EXPECT_EQ(row["deciding_node"], nullptr);
  EXPECT_EQ(row["in_doubt"], "in doubt: no claim here tells which node decides");
}

TEST_F(NodeDirectory, DoctorDeletesNothingInDoubt) {
  const Identity own = add_in_doubt(2);
  run_.claim({});
  name_decider(2);
  const Answer answer = call_json({"doctor", run_.text(), "--delete-debris"});
  EXPECT_EQ(answer.code, 0) << answer.out << answer.err;
  EXPECT_TRUE(answer.json()["deleted"].empty()) << answer.out;
  EXPECT_EQ(findings(answer, "in_doubt").size(), 1U);
  EXPECT_TRUE(must(read_run(run_.vfs())).attempts.at(0).undecided());
  EXPECT_EQ(must(read_run(run_.vfs())).attempts.at(0).name.attempt_id, own.attempt_id);
}

TEST_F(NodeDirectory, GcDeletesAnOldOneByTheRules) {
  const Identity own = add_in_doubt(1);
  run_.claim({});
  name_decider(2, {.last = 1, .every = {}, .best = {}});
  add(2);
  const std::string directory = attempt_dir_name({own.step, own.attempt_id});
  const Answer planned = call_json({"gc", run_.text(), "--keep-last", "1", "--dry-run"});
  EXPECT_EQ(planned.json()["removed"], json::array({directory})) << planned.out;
  const Answer answer = call_json({"gc", run_.text(), "--keep-last", "1"});
  EXPECT_EQ(answer.json()["removed"], json::array({directory})) << answer.out << answer.err;
  EXPECT_FALSE(std::filesystem::exists(run_.path() / directory));
}

TEST_F(NodeDirectory, ADamagedNodeFileIsAFaultAndAVoidClaimANote) {
  add(1);
  EXPECT_TRUE(findings(look("doctor"), "foreign").empty());
  std::filesystem::copy(run_.path() / generation_file_name(1),
                        run_.path() / "generation-00000001.void-0123456789abcdef.json");
  const Answer lost = look("doctor");
  EXPECT_EQ(lost.code, 0) << lost.out;
  EXPECT_EQ(findings(lost, "claim_void").size(), 1U);
  EXPECT_EQ(must(read_run(run_.vfs())).claims.size(), 1U);
  write(std::string(kNodeFile), "damaged");
  const Answer damaged = look("doctor");
  EXPECT_EQ(damaged.code, 1) << damaged.out;
  const json found = findings(damaged, "node_damaged");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0]["weight"], "fault");
}

TEST_F(NodeDirectory, ADamagedManifestIsToBeHadFromAnotherNode) {
  const Manifest manifest = add(1);
  flip_bit(run_.file_path(manifest, "manifest.json"), 8 * 100);
  const json found = findings(look("doctor"), "manifest_damaged");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found[0]["remedy"].get<std::string>().contains(
      "the directories of the other nodes have the same manifest"))
      << found[0];
}

}  // namespace
}  // namespace deepfreeze
