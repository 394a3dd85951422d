// doctor RUN TIER...
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/test_run.h"
#include "inspect/tier_exam.h"
#include "manifest/claims.h"
#include "restore/run_fixture.h"
#include "storage/posix_vfs.h"
#include "support/passing_vfs.h"

namespace deepfreeze {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kTemporaryManifest = "manifest.0123456789abcdef.tmp";

class DoctorTiers : public testing::Test {
 protected:
  DoctorTiers() {
    for (const std::uint64_t step : {1U, 2U}) save(step);
    far_ = run_.text() + "-far";
    EXPECT_EQ(call({"flush", run_.text(), far_}).code, 0);
  }
  ~DoctorTiers() override { fs::remove_all(far_); }

  Manifest save(std::uint64_t step) {
    return run_.save({.step = step, .ranks = {{f32_tensor("w", {static_cast<float>(step)})}}});
  }
  [[nodiscard]] Answer doctor() const { return call_json({"doctor", run_.text(), far_}); }
  [[nodiscard]] fs::path copy_of(const Manifest& manifest, const std::string& name = "") const {
    return fs::path(far_) / attempt_dir_name({manifest.point.step, manifest.point.attempt_id}) /
           name;
  }
  static std::vector<std::string> kinds(const Answer& answer) {
    std::vector<std::string> kinds;
    const json document = answer.json();
    for (const json& item : document["findings"]) kinds.push_back(item["kind"]);
    return kinds;
  }
  [[nodiscard]] TierState examine_as(std::unique_ptr<Vfs> vfs,
                                     std::optional<std::uint64_t> free_bytes) const {
    const OpenedRun run = open_run(run_.text()).value();
    return examine_tier(run, {run.listing},
                        {.path = far_, .vfs = std::move(vfs), .free_bytes = free_bytes}, {},
                        unwatched);
  }

  RunFixture run_;
  std::string far_;
};

using Kinds = std::vector<std::string>;

TEST_F(DoctorTiers, ATierThatHasAllHasNoFindings) {
  const Answer answer = doctor();
  EXPECT_EQ(answer.code, 0) << answer.out;
  EXPECT_EQ(kinds(answer), Kinds{});
  const json tier = answer.json()["tiers"][0];
  EXPECT_EQ(tier["path"], far_);
  EXPECT_EQ(tier["newest_step"], 2);
  EXPECT_EQ(tier["behind"], (json{{"checkpoints", 0}, {"bytes", 0}}));
  EXPECT_GT(tier["free_bytes"], 0);
  EXPECT_TRUE(call({"doctor", run_.text(), far_}).says("newest step 2; 0 newer checkpoints"));
}

TEST_F(DoctorTiers, SaysHowFarATierIsBehind) {
  const std::uint64_t bytes = stored_bytes(save(3)) + stored_bytes(save(4));
  fs::remove_all(copy_of(open_run(far_)->listing.attempts[0].manifest.value()));
  const Answer answer = doctor();
  EXPECT_EQ(answer.code, 0) << answer.out;
  EXPECT_EQ(kinds(answer), Kinds{"tier_behind"});
  const json tier = answer.json()["tiers"][0];
  EXPECT_EQ(tier["behind"], (json{{"checkpoints", 2}, {"bytes", bytes}}));
  EXPECT_EQ(tier["absent"]["checkpoints"], 3);
  EXPECT_TRUE(call({"doctor", run_.text(), far_}).says("so does flush"));
}

TEST_F(DoctorTiers, TheSecondTierIsBehindWhatTheFirstHas) {
  const std::string last = far_ + "-last";
  fs::create_directories(last);
  fs::remove_all(run_.path() / attempt_dir_name(open_run(far_)->listing.attempts[0].name));
  const Answer answer = call_json({"doctor", run_.text(), far_, last});
  EXPECT_EQ(kinds(answer), Kinds{"tier_empty"});
  EXPECT_EQ(answer.json()["tiers"][1]["behind"]["checkpoints"], 2);
  EXPECT_EQ(answer.json()["tiers"][1]["newest_step"], nullptr);
  fs::remove_all(last);
}

TEST_F(DoctorTiers, ATierThatIsNotThereIsAFault) {
  fs::remove_all(far_);
  const Answer answer = doctor();
  EXPECT_EQ(answer.code, 1) << answer.out;
  EXPECT_EQ(kinds(answer), Kinds{"tier_unreachable"});
  EXPECT_EQ(answer.json()["findings"][0]["place"], far_);
  EXPECT_EQ(answer.json()["tiers"][0]["behind"]["checkpoints"], 2);
  EXPECT_EQ(answer.json()["tiers"][0]["free_bytes"], nullptr);
  EXPECT_FALSE(fs::exists(far_));
}

TEST_F(DoctorTiers, ATierOfAnotherRunIsAFault) {
  RunFixture other;
  other.save({.step = 1, .ranks = {{f32_tensor("w", {1})}}});
  const Answer answer = call_json({"doctor", run_.text(), other.text()});
  EXPECT_EQ(answer.code, 1);
  EXPECT_EQ(kinds(answer), Kinds{"tier_of_another_run"});
}

TEST_F(DoctorTiers, ATierThatAnotherProcessContinuesIsAFault) {
  const auto vfs = open_posix_vfs(far_).value();
  ASSERT_TRUE(claim_generation(*vfs, read_run(*vfs)->run.run_id, {}));
  const Answer answer = doctor();
  EXPECT_EQ(answer.code, 1);
  EXPECT_EQ(kinds(answer), Kinds{"tier_fenced"});
  EXPECT_NE(answer.out.find("is continued by another process"), std::string::npos);
}

TEST_F(DoctorTiers, ACopyThatIsDamagedIsAFault) {
  const Manifest manifest = open_run(far_)->listing.attempts[1].manifest.value();
  fs::resize_file(copy_of(manifest, manifest.files[0].name), manifest.files[0].bytes - 1);
  const Answer answer = doctor();
  EXPECT_EQ(answer.code, 1);
  EXPECT_EQ(kinds(answer), Kinds{"tier_copy_damaged"});
  EXPECT_EQ(answer.json()["findings"][0]["place"],
            copy_of(manifest, manifest.files[0].name).string());
}

TEST_F(DoctorTiers, ACopyWithAnotherManifestIsAFault) {
  const OpenedRun far = open_run(far_).value();
  OpenedRun run = open_run(run_.text()).value();
  ++run.listing.attempts[0].manifest->files[0].bytes;
  const TierState state = examine_tier(run, {run.listing}, open_tier_place(far_), {}, unwatched);
  ASSERT_EQ(state.complaints.size(), 1U);
  EXPECT_EQ(state.complaints[0].kind, "tier_copy_differs");
}

TEST_F(DoctorTiers, LeftoversAreTold) {
  const OpenedRun far = open_run(far_).value();
  const Manifest kept = far.listing.attempts[0].manifest.value();
  const Manifest gone = far.listing.attempts[1].manifest.value();
  for (const Manifest& manifest : {kept, gone}) fs::remove(copy_of(manifest, "manifest.json"));
  fs::remove_all(run_.path() / attempt_dir_name(far.listing.attempts[1].name));
  const Answer answer = doctor();
  EXPECT_EQ(answer.code, 0) << answer.out;
  EXPECT_EQ(kinds(answer), (Kinds{"tier_copy_orphan", "tier_empty", "tier_copy_begun"}));
}

TEST_F(DoctorTiers, ATemporaryFileNamesTheCallThatDeletesIt) {
  const Manifest manifest = open_run(far_)->listing.attempts[0].manifest.value();
  std::ofstream(copy_of(manifest, kTemporaryManifest)) << "{";
  const Answer answer = doctor();
  EXPECT_EQ(kinds(answer), Kinds{"temporary"});
  const std::string remedy = answer.json()["findings"][0]["remedy"];
  EXPECT_EQ(remedy.find("deepfreeze doctor " + far_ + " --delete-debris"), 0U) << remedy;
}

// A place whose user may not write.
class SealedVfs final : public PassingVfs {
 public:
  using PassingVfs::PassingVfs;
  Status check_writable() override {
    return std::unexpected(Error(ErrorCode::kIo, "Read-only file system", EROFS));
  }
};

TEST_F(DoctorTiers, ATierThatIsReadOnlyOrFullIsAFault) {
  const auto vfs = open_posix_vfs(far_).value();
  const TierState sealed = examine_as(std::make_unique<SealedVfs>(*vfs), {});
  ASSERT_EQ(sealed.complaints.size(), 1U);
  EXPECT_EQ(sealed.complaints[0].kind, "tier_read_only");
  EXPECT_EQ(sealed.complaints[0].detail, "Read-only file system");
  const std::uint64_t needed = stored_bytes(*open_run(far_)->listing.attempts[1].manifest);
  EXPECT_TRUE(examine_as(std::make_unique<PassingVfs>(*vfs), needed).complaints.empty());
  const TierState full = examine_as(std::make_unique<PassingVfs>(*vfs), needed - 1);
  ASSERT_EQ(full.complaints.size(), 1U);
  EXPECT_EQ(full.complaints[0].kind, "tier_full");
}

}  // namespace
}  // namespace deepfreeze
