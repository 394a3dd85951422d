// A run whose checkpoints share a file, and its flushes.
#pragma once

#include <algorithm>
#include <atomic>

#include "manifest/parts_check.h"
#include "manifest/remove_attempt.h"
#include "object/object_tier.h"
#include "support/fake_s3.h"
#include "tiering/shared_files.h"
#include "tiering/tiers_fixture.h"

namespace deepfreeze {

inline constexpr std::size_t kColdBytes = kReferredBytesMin + 5000;
// A run whose attempts have a file of their own and one in common: that of the first one, or, if
// the run is a fork, of an attempt of another run.
class SharingRun {
 public:
  explicit SharingRun(SimDisk& disk, bool is_fork = false) : disk_(disk), is_fork_(is_fork) {
    run_id_ = create_or_open_run(disk_, {}).value().run_id;
    std::ignore = claim_generation(disk_, run_id_, std::nullopt).value();
  }
  Manifest save() {
    const std::uint64_t step = ++saves_;
    Identity identity = make_identity(run_id_, {1, step, step, 0xc000 + step}, {0, 1, 0, 2});
    EXPECT_TRUE(begin_attempt(disk_, name_of(identity)));
    EXPECT_TRUE(write_and_seal(disk_, identity));
    identity.part.file = 1;
    bring_cold(identity);
    CheckedParts parts{.files = {}, .annotations = {}};
    for (const std::uint32_t file : {0U, 1U}) {
      identity.part.file = file;
      parts.files.push_back(listed(identity));
    }
    if (is_fork_ || first_) parts.files[1].origin = origin();
    if (is_fork_ && !first_) parts.annotations.parent = ParentPoint{"/parent", kParentPoint.step};
    const std::vector<ManifestFile> here = parts.files;
    identity.part.file = 0;
    Manifest saved = conclude_attempt(disk_, make_request(identity), parts, here).value();
    if (!first_) first_ = saved;
    return saved;
  }
  // With nothing in common.
  Manifest save_alone() {
    const std::uint64_t step = ++saves_;
    return save_attempt(disk_, make_identity(run_id_, {1, step, step, 0xc000 + step})).value();
  }
  [[nodiscard]] const std::string& run_id() const { return run_id_; }

 private:
  static constexpr Point kParentPoint{1, 77, 1, 0xdd};

  [[nodiscard]] Origin origin() const {
    return is_fork_ ? Origin{"00000000000000dd", kParentPoint} : Origin{run_id_, first_->point};
  }
  void bring_cold(const Identity& identity) {
    const std::string path =
        join_name(attempt_dir_name(name_of(identity)), part_file_name(identity.part));
    if (first_) {
      EXPECT_TRUE(disk_.link_file(path_in_run(*first_, sealed_file_name(identity.part)), path));
    } else {
      const Identity writer =
          is_fork_ ? make_identity(origin().run_id, kParentPoint, identity.part) : identity;
      const auto data = make_data(writer, kColdBytes);
      EXPECT_TRUE(write_part(disk_, path, make_header(writer, data), data));
    }
    EXPECT_TRUE(seal_parts(disk_, name_of(identity), std::span(&identity.part, 1)));
  }
  [[nodiscard]] ManifestFile listed(const Identity& identity) {
    const std::string name = sealed_file_name(identity.part);
    const PartHeader part =
        read_part_header(disk_, join_name(attempt_dir_name(name_of(identity)), name)).value();
    return {.name = name, .bytes = part.file_bytes, .header_crc = part.crc};
  }

  SimDisk& disk_;
  const bool is_fork_;
  std::string run_id_;
  std::optional<Manifest> first_;
  std::uint64_t saves_ = 0;
};

class SharedFiles : public testing::Test {
 protected:
  SharedFiles() {
    set_log_sink([](std::string_view) {});
  }
  ~SharedFiles() override { set_log_sink({}); }

  // As the flusher does it: with the tier as it was listed before, or with an older listing.
  Status flush(const Manifest& manifest, TierStore& far, const RunListing* listing = nullptr) {
    return flush_from(near_, manifest, far, listing);
  }
  Status flush_from(Vfs& near, const Manifest& manifest, TierStore& far,
                    const RunListing* listing = nullptr) {
    RateLimit unlimited(0);
    const std::atomic<bool> never{false};
    DF_TRY(const RunListing own, read_run(near));
    DF_TRY(const RunListing there, copy_history(own, near, far));
    sent_ = 0;
    const CopySettings settings = {
        .rate = unlimited,
        .stop = never,
        .on_bytes = [&](std::uint64_t, std::uint64_t sent) { sent_ += sent; },
        .there = listing != nullptr ? listing : &there};
    return flush_attempt(near, manifest, far, settings, &near);
  }
  [[nodiscard]] bool sent_cold() const { return sent_ > kColdBytes; }
  static std::string cold_of(const Manifest& manifest) {
    return path_in_run(manifest, manifest.files[1].name);
  }

  SimDisk near_;
  SharingRun run_{near_};
  std::uint64_t sent_ = 0;  // by the last flush
};

class ReferredInAStore : public SharedFiles {
 protected:
  struct Far {
    FakeTime time;
    std::shared_ptr<FakeS3> store = std::make_shared<FakeS3>(time);
    std::unique_ptr<TierStore> tier = open(store);

    std::unique_ptr<TierStore> open(const std::shared_ptr<HttpTransport>& transport) {
      return make_object_tier(std::make_shared<S3Client>(FakeS3::settings(transport, time)));
    }
    // Of another process, which no fault and no hook meets.
    std::unique_ptr<TierStore> other() { return open(std::make_shared<UnharmedS3>(store)); }
    [[nodiscard]] std::size_t shared_keys() const {
      return static_cast<std::size_t>(std::ranges::count_if(
          store->keys(), [](const std::string& key) { return key.starts_with("shared/"); }));
    }
  };

  std::string broken(Far& far) { return broken_tier(far.other()->view(), run_.run_id()); }
  static bool is_committed(Far& far, const Manifest& saved) {
    return has_committed(far.other()->view(), saved);
  }
  // With nothing known of before: it reads all.
  static Status sweep(TierStore& store) { return sweep_shared_files(store, RunListing{}); }
  static Status remove(TierStore& store, const Manifest& saved) {
    return remove_attempt(store.view(), name_of(saved));
  }
};

}  // namespace deepfreeze
