#include "restore/snapshot.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>

#include "base/try.h"
#include "restore/run_fixture.h"
#include "restore/shard_file.h"
#include "support/code_of.h"
#include "support/deny_syscall.h"
#include "support/passing_file.h"
#include "support/passing_vfs.h"
#include "tensor/region.h"

namespace deepfreeze {
namespace {

using Path = std::filesystem::path;

// Two ranks, tensors that share blocks and ones that span several.
FixtureSave two_ranks(std::uint64_t step) {
  FixtureSave save{.step = step, .ranks = {}, .tree = {}};
  save.ranks.push_back({random_tensor("a.weight", DType::kF32, {300, 100}, step * 10 + 1),
                        random_tensor("a.bias", DType::kF32, {7}, step * 10 + 2),
                        random_tensor("a.empty", DType::kF64, {0, 4}, 0)});
  save.ranks.push_back({random_tensor("@rank00001.rng", DType::kU8, {5001}, step * 10 + 3),
                        random_tensor("b.weight", DType::kBF16, {64, 65}, step * 10 + 4)});
  return save;
}

std::shared_ptr<const Snapshot> open(RunFixture& run, const Manifest& manifest) {
  return must(Snapshot::open(run.vfs(), manifest));
}

// Reads one tensor into fresh memory.
Result<std::vector<std::byte>> read_one(const Snapshot& snapshot, const std::string& key) {
  const TensorSpec* spec = snapshot.find(key);
  std::vector<std::byte> bytes(spec == nullptr ? 0 : must(spec_bytes(*spec)));
  const std::vector<ReadTarget> targets{{key, bytes}};
  const Status status = snapshot.read(targets, {.on_progress = {}});
  if (!status) return std::unexpected(status.error());
  return bytes;
}

// Every tensor of `save` as it was saved, or the error of the first that is not given back.
Status read_all(RunFixture& run, const Manifest& manifest, const FixtureSave& save) {
  const auto snapshot = Snapshot::open(run.vfs(), manifest);
  if (!snapshot) return std::unexpected(snapshot.error());
  for (const auto& rank : save.ranks) {
    for (const OwnedTensor& tensor : rank) {
      const auto bytes = read_one(**snapshot, tensor.spec.key);
      if (!bytes) return std::unexpected(bytes.error());
      EXPECT_EQ(*bytes, tensor.data) << tensor.spec.key;
    }
  }
  return {};
}

ErrorCode code_of(const Status& status) {
  return status ? ErrorCode::kInternal : status.error().code();
}

TEST(Snapshot, GivesBackWhatWasSavedByAllRanks) {
  RunFixture run;
  FixtureSave save = two_ranks(7);
  save.tree = "{}";
  const Manifest manifest = run.save(save);
  const auto snapshot = open(run, manifest);
  ASSERT_EQ(snapshot->tensors().size(), 5U);
  EXPECT_TRUE(std::ranges::is_sorted(snapshot->tensors(), {}, &TensorSpec::key));
  EXPECT_EQ(snapshot->bytes(), 120000U + 28U + 5001U + 8320U);
  EXPECT_EQ(snapshot->tree(), "{}");
  EXPECT_EQ(snapshot->find("b.weigh"), nullptr);
  EXPECT_TRUE(read_all(run, manifest, save).has_value());
}

TEST(Snapshot, ReadsSeveralTargetsOfSeveralFilesAndReportsProgress) {
  RunFixture run;
  const FixtureSave save = two_ranks(1);
  const auto snapshot = open(run, run.save(save));
  std::vector<std::byte> a(120000);
  std::vector<std::byte> b(8320);
  const std::vector<ReadTarget> targets{{"b.weight", b}, {"a.weight", a}, {"a.empty", {}}};
  std::uint64_t last = 0;
  bool forward = true;
  const ReadSettings settings{.on_progress = [&](std::uint64_t bytes) {
    forward = forward && bytes >= last;
    last = bytes;
  }};
  ASSERT_TRUE(snapshot->read(targets, settings).has_value());
  EXPECT_EQ(a, save.ranks[0][0].data);
  EXPECT_EQ(b, save.ranks[1][1].data);
  EXPECT_TRUE(forward);
  EXPECT_LE(last, a.size() + b.size());
  EXPECT_GT(last, 0U);
}

TEST(Snapshot, RefusesUnknownKeysAndWrongSizesBeforeItWrites) {
  RunFixture run;
  const auto snapshot = open(run, run.save(two_ranks(1)));
  const std::vector<std::byte> untouched(28, std::byte{0xAA});
  std::vector<std::byte> bias = untouched;
  std::vector<std::byte> other(3);
  const std::vector<ReadTarget> unknown{{"a.bias", bias}, {"nothing", other}};
  const Status missing = snapshot->read(unknown, {.on_progress = {}});
  EXPECT_EQ(code_of(missing), ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message().find("nothing"), std::string::npos);
  const std::vector<ReadTarget> wrong{{"a.bias", bias}, {"b.weight", other}};
  EXPECT_EQ(code_of(snapshot->read(wrong, {.on_progress = {}})), ErrorCode::kMismatch);
  EXPECT_EQ(bias, untouched);
}

// The promise: a flipped bit is found, or it was in a byte that no reader looks at.
TEST(Snapshot, AnyFlippedBitIsAnErrorOrChangesNothing) {
  RunFixture run;
  const FixtureSave save = two_ranks(3);
  const Manifest manifest = run.save(save);
  constexpr std::uint64_t kSeed = 20261121;
  SCOPED_TRACE(testing::Message() << "seed=" << kSeed);
  std::mt19937_64 random(kSeed);
  int detected = 0;
  constexpr int kFlips = 400;
  for (int i = 0; i < kFlips; ++i) {
    const ManifestFile& file = manifest.files[random() % manifest.files.size()];
    const Path path = run.file_path(manifest, file.name);
    // Every other flip goes to the header, which is the smaller part.
    const std::uint64_t bit = random() % ((i % 2 == 0 ? 4096 : file.bytes) * 8);
    flip_bit(path, bit);
    const Status status = read_all(run, manifest, save);  // expects equal bytes if it is good
    if (!status) {
      ++detected;
      EXPECT_EQ(status.error().code(), ErrorCode::kCorrupt) << status.error().message();
      EXPECT_NE(status.error().message().find(file.name), std::string::npos);
    }
    flip_bit(path, bit);
  }
  EXPECT_EQ(detected, kFlips) << "every byte of these files is covered by a checksum";
  EXPECT_TRUE(read_all(run, manifest, save).has_value());
}

TEST(Snapshot, NamesStepFileBlockAndTensors) {
  RunFixture run;
  const FixtureSave save = two_ranks(7);
  const Manifest manifest = run.save(save);
  const std::string& name = manifest.files[0].name;
  const auto shard = must(open_shard_file(run.vfs(), manifest, manifest.files[0]));
  flip_bit(run.file_path(manifest, name), (shard.header_bytes + kBlockBytes + 5) * 8);
  const auto bytes = read_one(*open(run, manifest), "a.weight");
  ASSERT_FALSE(bytes.has_value());
  const std::string& message = bytes.error().message();
  EXPECT_NE(message.find("checkpoint step 7: file " + name +
                         ": block 1 (bytes 65536..120028) of "
                         "tensors a.weight, a.bias: "),
            std::string::npos)
      << message;
}

TEST(Snapshot, UnverifiedReadGivesBytesAsTheyAre) {
  RunFixture run;
  const FixtureSave save = two_ranks(7);
  const Manifest manifest = run.save(save);
  const auto shard = must(open_shard_file(run.vfs(), manifest, manifest.files[0]));
  flip_bit(run.file_path(manifest, manifest.files[0].name), shard.header_bytes * 8);
  std::vector<std::byte> bytes(120000);
  const std::vector<ReadTarget> targets{{"a.weight", bytes}};
  const auto snapshot = open(run, manifest);
  ASSERT_TRUE(snapshot->read(targets, {.verify = false, .on_progress = {}}).has_value());
  EXPECT_NE(bytes, save.ranks[0][0].data);
  EXPECT_EQ(code_of(snapshot->read(targets, {.on_progress = {}})), ErrorCode::kCorrupt);
}

TEST(Snapshot, MissingFileIsIncompleteButARemovedCheckpointIsNotFound) {
  RunFixture run;
  const FixtureSave save = two_ranks(2);
  const Manifest manifest = run.save(save);
  const auto opened = open(run, manifest);
  std::filesystem::remove(run.file_path(manifest, manifest.files[1].name));
  const auto lost = Snapshot::open(run.vfs(), manifest);
  ASSERT_FALSE(lost.has_value());
  EXPECT_EQ(lost.error().code(), ErrorCode::kIncomplete);
  EXPECT_NE(lost.error().message().find(manifest.files[1].name), std::string::npos);
  EXPECT_EQ(read_one(*opened, "b.weight").error().code(), ErrorCode::kIncomplete);

  std::filesystem::remove(run.file_path(manifest, std::string(kManifestFile)));
  EXPECT_EQ(Snapshot::open(run.vfs(), manifest).error().code(), ErrorCode::kGone);
  EXPECT_EQ(read_one(*opened, "b.weight").error().code(), ErrorCode::kGone);
}

class SilentVfs final : public PassingVfs {
 public:
  explicit SilentVfs(Vfs& vfs, Error error = {ErrorCode::kTimeout, "no answer"})
      : PassingVfs(vfs), error_(std::move(error)) {}
  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override {
    if (!is_silent) return PassingVfs::open_read(name, access);
    return std::unexpected(error_);
  }
  bool is_silent = true;

 private:
  const Error error_;
};

// It may have the good copy, so its error must not end in an older checkpoint.
TEST(Snapshot, OfATierThatDoesNotAnswerNothingIsKnown) {
  RunFixture run;
  const Manifest manifest = run.save(two_ranks(2));
  const auto shard = must(open_shard_file(run.vfs(), manifest, manifest.files[0]));
  flip_bit(run.file_path(manifest, manifest.files[0].name), shard.header_bytes * 8);
  SilentVfs silent(run.vfs());
  const std::vector<Vfs*> tiers = {&run.vfs(), &silent};
  const auto snapshot = must(Snapshot::open(tiers, manifest));
  EXPECT_EQ(code_of(read_one(*snapshot, "a.weight")), ErrorCode::kTimeout);
  EXPECT_TRUE(read_one(*snapshot, "b.weight"));
  EXPECT_TRUE(snapshot->mended().empty());
}

class SilentFile final : public PassingFile {
 public:
  using PassingFile::PassingFile;
  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) override {
    if (!is_silent) return PassingFile::read_at(offset, into);
    return std::unexpected(Error(ErrorCode::kTimeout, "no answer"));
  }
  static inline bool is_silent = false;
};

class SilentFiles final : public PassingVfs {
 public:
  using PassingVfs::PassingVfs;
  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override {
    auto file = PassingVfs::open_read(name, access);
    if (!file) return file;
    return std::make_unique<SilentFile>(*std::move(file));
  }
};

// Its blocks are not bad: nobody has seen them.
TEST(Snapshot, OfATierThatEndsAnsweringNothingIsKnown) {
  RunFixture run;
  const Manifest manifest = run.save(two_ranks(2));
  SilentFiles silent(run.vfs());
  const std::vector<Vfs*> tiers = {&silent};
  const auto snapshot = must(Snapshot::open(tiers, manifest));
  SilentFile::is_silent = true;
  EXPECT_EQ(code_of(read_one(*snapshot, "a.weight")), ErrorCode::kTimeout);
  SilentFile::is_silent = false;
  EXPECT_TRUE(read_one(*snapshot, "a.weight"));
}

// It has refused the keys, or this process may not read there, or has too many files open.
TEST(Snapshot, OfATierThatRefusesNothingIsKnown) {
  RunFixture run;
  const Manifest manifest = run.save(two_ranks(2));
  const auto shard = must(open_shard_file(run.vfs(), manifest, manifest.files[0]));
  for (const Error& refusal :
       {Error(ErrorCode::kInvalidArgument, "403"), Error(ErrorCode::kIo, "denied", EACCES),
        Error(ErrorCode::kIo, "too many files", EMFILE), Error(ErrorCode::kNoSpace, "no memory")}) {
    SilentVfs refusing(run.vfs(), refusal);
    const std::vector<Vfs*> tiers = {&run.vfs(), &refusing};
    const auto path = run.file_path(manifest, manifest.files[0].name);
    flip_bit(path, shard.header_bytes * 8);
    const auto snapshot = must(Snapshot::open(tiers, manifest));
    EXPECT_EQ(code_of(read_one(*snapshot, "a.weight")), refusal.code()) << refusal.message();
    flip_bit(path, 0);
    EXPECT_EQ(code_of(Snapshot::open(tiers, manifest)), refusal.code()) << refusal.message();
    flip_bit(path, 0);
    flip_bit(path, shard.header_bytes * 8);
    const std::vector<Vfs*> first = {&refusing, &run.vfs()};
    const auto behind = must(Snapshot::open(first, manifest));
    EXPECT_TRUE(read_one(*behind, "a.weight"));
    EXPECT_TRUE(behind->mended().empty()) << "its copy is not to be replaced";
  }
}

// A damaged copy, and one that is missing or can't be read from its disk: both are bad.
TEST(Snapshot, OfTwoBadCopiesTheNearestOnesErrorCounts) {
  RunFixture run;
  const Manifest manifest = run.save(two_ranks(2));
  flip_bit(run.file_path(manifest, manifest.files[0].name), 0);
  for (const Error& bad : {Error(ErrorCode::kIo, "dead sector", EIO),
                           Error(ErrorCode::kNotFound, "no file", ENOENT)}) {
    SilentVfs farther(run.vfs(), bad);
    const std::vector<Vfs*> tiers = {&run.vfs(), &farther};
    EXPECT_EQ(code_of(Snapshot::open(tiers, manifest)), ErrorCode::kCorrupt) << bad.message();
  }
}

TEST(Snapshot, BehindATierThatDoesNotAnswerAnotherIsAsked) {
  RunFixture run;
  const Manifest manifest = run.save(two_ranks(2));
  SilentVfs silent(run.vfs());
  const std::vector<Vfs*> tiers = {&silent, &run.vfs()};
  const auto snapshot = must(Snapshot::open(tiers, manifest));
  EXPECT_TRUE(read_one(*snapshot, "a.weight"));
  silent.is_silent = false;
  const auto before = must(Snapshot::open(tiers, manifest));
  silent.is_silent = true;
  EXPECT_TRUE(read_one(*before, "a.weight"));
  EXPECT_TRUE(before->mended().empty());
  const std::vector<Vfs*> none = {&silent, &silent};
  EXPECT_EQ(code_of(Snapshot::open(none, manifest)), ErrorCode::kTimeout);
  std::filesystem::remove(run.file_path(manifest, manifest.files[0].name));
  const std::vector<Vfs*> missing = {&run.vfs(), &silent};
  EXPECT_EQ(code_of(Snapshot::open(missing, manifest)), ErrorCode::kTimeout);
}

TEST(Snapshot, TruncatedAndGrownFilesAreCorrupt) {
  RunFixture run;
  const Manifest manifest = run.save(two_ranks(2));
  const Path path = run.file_path(manifest, manifest.files[0].name);
  const std::uint64_t whole = manifest.files[0].bytes;
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{7}, std::uint64_t{4096}, whole - 1, whole + 1}) {
    std::filesystem::resize_file(path, bytes);
    const auto snapshot = Snapshot::open(run.vfs(), manifest);
    ASSERT_FALSE(snapshot.has_value()) << bytes;
    EXPECT_EQ(snapshot.error().code(), ErrorCode::kCorrupt) << bytes;
    std::filesystem::resize_file(path, whole);
  }
}

// A file that shrinks after opening gives an error, not old memory.
TEST(Snapshot, FileTruncatedAfterOpeningIsCorrupt) {
  RunFixture run;
  const Manifest manifest = run.save(two_ranks(2));
  const auto snapshot = open(run, manifest);
  std::filesystem::resize_file(run.file_path(manifest, manifest.files[0].name), 8192);
  EXPECT_EQ(read_one(*snapshot, "a.weight").error().code(), ErrorCode::kCorrupt);
}

TEST(Snapshot, ABoxOfAnotherNumberOfDimensionsIsAMismatch) {
  RunFixture run;
  const auto snapshot = open(run, run.save(two_ranks(1)));
  const TensorSpec& spec = snapshot->tensors().front();
  std::vector<std::byte> into(spec_bytes(spec).value());
  const Box whole = stored_box(spec);
  Box fewer = whole;
  fewer.extent.pop_back();
  EXPECT_EQ(code_of(snapshot->read(std::vector<ReadTarget>{{spec.key, into, fewer}}, {})),
            ErrorCode::kMismatch);
  fewer = whole;
  fewer.offset.pop_back();
  EXPECT_EQ(code_of(snapshot->read(std::vector<ReadTarget>{{spec.key, into, fewer}}, {})),
            ErrorCode::kMismatch);
}

// Its second reading of a file gives a byte less than there is.
class ShrinkingFile final : public PassingFile {
 public:
  using PassingFile::PassingFile;
  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) override {
    DF_TRY(const std::size_t count, file_->read_at(offset, into));
    return into.size() > 8 ? count - 1 : count;
  }
};

class ShrinkingVfs final : public PassingVfs {
 public:
  using PassingVfs::PassingVfs;
  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override {
    DF_TRY(auto file, disk_.open_read(name, access));
    return std::make_unique<ShrinkingFile>(std::move(file));
  }
};

TEST(Snapshot, AFileThatShrinksWhileItsHeaderIsReadIsCorrupt) {
  RunFixture run;
  const Manifest manifest = run.save(two_ranks(1));
  ShrinkingVfs vfs(run.vfs());
  const auto opened = Snapshot::open(vfs, manifest);
  ASSERT_EQ(code_of(opened), ErrorCode::kCorrupt);
  EXPECT_TRUE(opened.error().message().contains("shrank")) << opened.error().message();
}

TEST(Snapshot, RefusesAFileOfAnotherStep) {
  RunFixture run;
  const Manifest first = run.save(two_ranks(1));
  const Manifest second = run.save(two_ranks(2));
  const Path here = run.file_path(first, first.files[1].name);
  const Path there = run.file_path(second, second.files[1].name);
  std::filesystem::copy_file(there, here, std::filesystem::copy_options::overwrite_existing);
  const auto mixed = Snapshot::open(run.vfs(), first);
  ASSERT_FALSE(mixed.has_value());
  EXPECT_EQ(mixed.error().code(), ErrorCode::kCorrupt);

  // Even if the manifest is made to fit the foreign header, its identity does not.
  Manifest forged = first;
  forged.files[1] = second.files[1];
  const auto deceived = Snapshot::open(run.vfs(), forged);
  ASSERT_FALSE(deceived.has_value());
  EXPECT_NE(deceived.error().message().find("step 2"), std::string::npos);
}

// The header verifies by itself, but it is not the one that was committed.
TEST(Snapshot, RefusesAHeaderThatTheManifestDoesNotVouchFor) {
  RunFixture run;
  const Manifest manifest = run.save(two_ranks(1));
  Manifest other_crc = manifest;
  other_crc.files[1].header_crc ^= 1U;
  const auto by_crc = Snapshot::open(run.vfs(), other_crc);
  ASSERT_FALSE(by_crc.has_value());
  EXPECT_EQ(by_crc.error().code(), ErrorCode::kCorrupt);
  Manifest other_size = manifest;
  other_size.files[1].bytes += 1;
  const auto by_size = Snapshot::open(run.vfs(), other_size);
  ASSERT_FALSE(by_size.has_value());
  EXPECT_EQ(by_size.error().code(), ErrorCode::kCorrupt);
}

TEST(Snapshot, RefusesRanksSwappedOrLeftOut) {
  RunFixture run;
  const Manifest manifest = run.save(two_ranks(1));
  Manifest without = manifest;
  without.files.pop_back();
  EXPECT_EQ(Snapshot::open(run.vfs(), without).error().code(), ErrorCode::kCorrupt);
  without.world_size = 1;
  EXPECT_TRUE(
      Snapshot::open(run.vfs(), without).error().message().contains("its header says 2 ranks"));
  Manifest twice = manifest;
  twice.files.push_back(manifest.files[0]);
  EXPECT_EQ(Snapshot::open(run.vfs(), twice).error().code(), ErrorCode::kCorrupt);

  const Path a = run.file_path(manifest, manifest.files[0].name);
  const Path b = run.file_path(manifest, manifest.files[1].name);
  std::filesystem::rename(a, a.string() + ".moved");
  std::filesystem::rename(b, a);
  std::filesystem::rename(a.string() + ".moved", b);
  Manifest swapped = manifest;
  std::swap(swapped.files[0].bytes, swapped.files[1].bytes);
  std::swap(swapped.files[0].header_crc, swapped.files[1].header_crc);
  const auto snapshot = Snapshot::open(run.vfs(), swapped);
  ASSERT_FALSE(snapshot.has_value());
  EXPECT_NE(snapshot.error().message().find("another rank"), std::string::npos);
}

TEST(Verify, GoodCheckpointHasNoFaultsAndIsReadWhole) {
  RunFixture run;
  const Manifest manifest = run.save(two_ranks(1));
  std::uint64_t last = 0;
  const ReadSettings settings{.on_progress = [&](std::uint64_t bytes) { last = bytes; }};
  EXPECT_TRUE(must(verify_attempt(run.vfs(), manifest, settings)).empty());
  EXPECT_EQ(last, open(run, manifest)->bytes());
}

TEST(Verify, ListsEveryBadBlockWithItsTensorsAndGoesOn) {
  RunFixture run;
  FixtureSave save = two_ranks(1);
  save.ranks[0].push_back(random_tensor("z", DType::kU8, {4 * kBlockBytes}, 9));
  const Manifest manifest = run.save(save);
  const auto first = must(open_shard_file(run.vfs(), manifest, manifest.files[0]));
  const auto second = must(open_shard_file(run.vfs(), manifest, manifest.files[1]));
  const Path path = run.file_path(manifest, manifest.files[0].name);
  flip_bit(path, first.header_bytes * 8);
  flip_bit(path, (first.header_bytes + 3 * kBlockBytes) * 8);
  flip_bit(run.file_path(manifest, manifest.files[1].name), second.header_bytes * 8);
  const auto faults = must(open(run, manifest)->verify({.on_progress = {}}));
  ASSERT_EQ(faults.size(), 2U);
  EXPECT_EQ(faults[0].file, manifest.files[0].name);
  EXPECT_EQ(faults[0].blocks, (std::vector<std::uint64_t>{0, 3}));
  EXPECT_EQ(faults[0].tensors, (std::vector<std::string>{"z"}));
  EXPECT_NE(faults[0].cause.find("and 1 more block"), std::string::npos) << faults[0].cause;
  EXPECT_EQ(faults[1].blocks, (std::vector<std::uint64_t>{0}));
}

TEST(Verify, UnreadableHeaderIsAFaultAndTheOtherFilesAreStillRead) {
  RunFixture run;
  const Manifest manifest = run.save(two_ranks(1));
  const auto second = must(open_shard_file(run.vfs(), manifest, manifest.files[1]));
  flip_bit(run.file_path(manifest, manifest.files[0].name), 8 * 100);
  flip_bit(run.file_path(manifest, manifest.files[1].name), second.header_bytes * 8);
  const auto faults = must(verify_attempt(run.vfs(), manifest, {.on_progress = {}}));
  ASSERT_EQ(faults.size(), 2U);
  EXPECT_EQ(faults[0].file, manifest.files[0].name);
  EXPECT_TRUE(faults[0].blocks.empty());
  EXPECT_EQ(faults[1].blocks.size(), 1U);
}

TEST(Verify, WithoutMemoryToReadIntoIsAnErrorAndNoFault) {
  constexpr std::uint32_t kBytes = 3U << 20;
  RunFixture run;
  const OwnedTensor tensor = random_tensor("t", DType::kU8, {kBytes}, 1);
  const Manifest manifest = run.save({.ranks = {{tensor}}});
  std::optional<ErrorCode> code;
  const DeniedCall denied{
      .number = SYS_mmap, .os_errno = ENOMEM, .argument = 1, .least = kBytes, .most = 2 * kBytes};
  const bool ran = run_with_denied(
      denied, [&] { code = code_of(verify_attempt(run.vfs(), manifest, {.on_progress = {}})); });
  if (!ran) GTEST_SKIP() << "LEFT OUT: this machine allows no seccomp filter";
  EXPECT_EQ(code, ErrorCode::kNoSpace);
  EXPECT_TRUE(must(verify_attempt(run.vfs(), manifest, {.on_progress = {}})).empty());
}

TEST(Verify, MissingFileIsAFaultButARemovedCheckpointIsNot) {
  RunFixture run;
  const Manifest manifest = run.save(two_ranks(1));
  std::filesystem::remove(run.file_path(manifest, manifest.files[0].name));
  const auto faults = must(verify_attempt(run.vfs(), manifest, {.on_progress = {}}));
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].file, manifest.files[0].name);
  std::filesystem::remove_all(run.path() / attempt_dir_name({1, manifest.point.attempt_id}));
  const auto gone = verify_attempt(run.vfs(), manifest, {.on_progress = {}});
  ASSERT_FALSE(gone.has_value());
  EXPECT_EQ(gone.error().code(), ErrorCode::kGone);
}

TEST(Verify, ATreeOfAnyRankThatIsNoneIsAFault) {
  RunFixture run;
  FixtureSave save = two_ranks(1);
  save.tree_of_others = R"({"$":"nonsense","v":1})";
  const Manifest manifest = run.save(save);
  EXPECT_TRUE(must(verify_attempt(run.vfs(), manifest, {.on_progress = {}})).empty());
  const auto faults =
      must(verify_attempt(run.vfs(), manifest, {.check_tree = true, .on_progress = {}}));
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].file, manifest.files[1].name);
  EXPECT_TRUE(faults[0].cause.starts_with("state tree: ")) << faults[0].cause;
}

TEST(Verify, ACheckpointThatIsRemovedBetweenItsFilesIsNoFault) {
  RunFixture run;
  const Manifest manifest = run.save(two_ranks(1));
  const Path directory = run.path() / attempt_dir_name({1, manifest.point.attempt_id});
  const ReadSettings settings{
      .on_progress = [&](std::uint64_t) { std::filesystem::remove_all(directory); }};
  const auto gone = verify_attempt(run.vfs(), manifest, settings);
  ASSERT_FALSE(gone.has_value());
  EXPECT_EQ(gone.error().code(), ErrorCode::kGone);
}

TEST(Verify, ManifestThatLeavesARankOutIsAFault) {
  RunFixture run;
  Manifest manifest = run.save(two_ranks(1));
  manifest.files.erase(manifest.files.begin());
  const auto faults = must(verify_attempt(run.vfs(), manifest, {.on_progress = {}}));
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].file, kManifestFile);
}

}  // namespace
}  // namespace deepfreeze
