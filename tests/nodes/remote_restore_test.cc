// A whole checkpoint is restored from the files of another node, as from a tier.
#include <atomic>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "manifest/run_directory.h"
#include "nodes/remote_fixture.h"
#include "restore/run_fixture.h"
#include "restore/shard_file.h"
#include "restore/snapshot.h"

namespace deepfreeze::nodes_test {
namespace {

// Two ranks' files, one of more than four ranges, tensors that share blocks and ones that span
// some.
FixtureSave two_ranks() {
  FixtureSave save{.step = 7, .ranks = {}, .tree = R"({"a":1})"};
  save.ranks.push_back({random_tensor("a.weight", DType::kF32, {1300, 1000}, 1),
                        random_tensor("a.bias", DType::kF32, {7}, 2),
                        random_tensor("a.empty", DType::kF64, {0, 4}, 0)});
  save.ranks.push_back({random_tensor("@rank00001.rng", DType::kU8, {5001}, 3),
                        random_tensor("b.weight", DType::kBF16, {640, 65}, 4)});
  return save;
}

// Rank 1's near directory has the run; rank 0 has an empty one and reads over the link.
class RemoteRestore : public LinkTest {
 protected:
  RemoteRestore() {
    serve([](std::string_view /*name*/) {});
  }

  void serve(HeldVfs::Hook before_read) {
    serving_.reset();
    serving_ = std::make_unique<Serving>(
        one_, std::vector{zero_dialed_},
        std::make_unique<HeldVfs>(open_posix_vfs(run_.path()).value(), std::move(before_read)));
  }

  // The first thing that differs, or fails; nothing if all tensors are bit for bit as saved.
  [[nodiscard]] Status read_all(std::vector<Vfs*> places, std::vector<MendedRead>* mended = {}) {
    const auto snapshot = Snapshot::open(std::move(places), manifest_);
    if (!snapshot) return std::unexpected(snapshot.error());
    EXPECT_EQ((*snapshot)->tree(), save_.tree);
    std::vector<std::vector<std::byte>> memory;
    std::vector<ReadTarget> targets;
    std::vector<const OwnedTensor*> tensors;
    for (const auto& rank : save_.ranks) {
      for (const OwnedTensor& tensor : rank) {
        memory.emplace_back(tensor.data.size());
        tensors.push_back(&tensor);
      }
    }
    for (std::size_t i = 0; i < memory.size(); ++i) {
      targets.push_back({tensors[i]->spec.key, memory[i]});
    }
    const Status done = (*snapshot)->read(targets, {.thread_count = 4, .on_progress = {}});
    if (mended != nullptr) *mended = (*snapshot)->mended();
    for (std::size_t i = 0; done && i < memory.size(); ++i) {
      EXPECT_TRUE(memory[i] == tensors[i]->data) << tensors[i]->spec.key;
    }
    return done;
  }
  [[nodiscard]] std::filesystem::path path_of(std::size_t file) const {
    return run_.file_path(manifest_, manifest_.files[file].name);
  }

  RunFixture run_;
  const FixtureSave save_ = two_ranks();
  const Manifest manifest_ = run_.save(save_);
  ScopedDir empty_;
  const std::unique_ptr<Vfs> near_ = open_posix_vfs(empty_.path()).value();
  Node zero_{0};
  Node one_{1};
  const LinkPeer zero_dialed_ = zero_.dialed();
  std::unique_ptr<Serving> serving_;
  Reading reading_{zero_, {one_.awaited()}};
  const std::unique_ptr<Vfs> remote_ = reading_.files_of(1);
};

TEST_F(RemoteRestore, IsBitForBitAsItWasSaved) {
  EXPECT_TRUE(read_all({remote_.get()}));
  const Status near_first = read_all({near_.get(), remote_.get()});
  EXPECT_TRUE(near_first) << near_first.error().message();
}

TEST_F(RemoteRestore, TheManifestComesFromThereToo) {
  const AttemptName name{manifest_.point.step, manifest_.point.attempt_id};
  const auto manifest = read_manifest(*remote_, name, manifest_.run_id);
  ASSERT_TRUE(manifest) << manifest.error().message();
  EXPECT_EQ(manifest->point, manifest_.point);
  EXPECT_EQ(manifest->files.size(), 2U);
}

TEST_F(RemoteRestore, AFlippedBitIsFound) {
  const auto shard = open_shard_file(run_.vfs(), manifest_, manifest_.files[0]);
  ASSERT_TRUE(shard);
  flip_bit(path_of(0), (shard->header_bytes + 3 * kBlockBytes + 17) * 8);
  const Status read = read_all({remote_.get()});
  ASSERT_EQ(code_of(read), ErrorCode::kCorrupt);
  EXPECT_TRUE(read.error().message().contains("block 3 ")) << read.error().message();
  EXPECT_TRUE(read.error().message().contains("a.weight")) << read.error().message();
  const auto faults = Snapshot::open(*remote_, manifest_).value()->verify({.on_progress = {}});
  ASSERT_TRUE(faults);
  ASSERT_EQ(faults->size(), 1U);
  EXPECT_EQ((*faults)[0].blocks, (std::vector<std::uint64_t>{3}));
}

TEST_F(RemoteRestore, AFlippedBitOfAHeaderIsFound) {
  flip_bit(path_of(1), 100 * 8);
  EXPECT_EQ(code_of(read_all({remote_.get()})), ErrorCode::kCorrupt);
}

TEST_F(RemoteRestore, ABadBlockComesFromThePlaceBehindIt) {
  const ScopedDir far;
  std::filesystem::copy(run_.path(), far.path() / "run", std::filesystem::copy_options::recursive);
  const auto far_vfs = open_posix_vfs(far.path() / "run").value();
  flip_bit(path_of(0), (std::filesystem::file_size(path_of(0)) - 5) * 8);
  std::vector<MendedRead> mended;
  EXPECT_TRUE(read_all({remote_.get(), far_vfs.get()}, &mended));
  ASSERT_EQ(mended.size(), 1U);
  EXPECT_EQ(mended[0].tier, 0U);
  EXPECT_EQ(mended[0].file, manifest_.files[0].name);
}

TEST_F(RemoteRestore, AMissingFileIsIncompleteWhileItsManifestIsThere) {
  std::filesystem::remove(path_of(1));
  const Status read = read_all({remote_.get()});
  ASSERT_EQ(code_of(read), ErrorCode::kIncomplete);
  EXPECT_TRUE(read.error().message().contains("rank 1 at host7")) << read.error().message();
}

TEST_F(RemoteRestore, ADeletedCheckpointIsGoneSoThatTheReaderListsAnew) {
  std::filesystem::remove_all(path_of(0).parent_path());
  EXPECT_EQ(code_of(read_all({remote_.get()})), ErrorCode::kGone);
}

// The server forgets its open files in the middle of the read.
TEST_F(RemoteRestore, ACheckpointThatIsDeletedWhileItIsReadIsGone) {
  const auto snapshot = Snapshot::open(*remote_, manifest_);
  ASSERT_TRUE(snapshot);
  std::vector<std::byte> memory(save_.ranks[0][0].data.size());
  const std::vector<ReadTarget> targets{{"a.weight", memory}};
  const auto directory = path_of(0).parent_path();
  std::atomic<bool> is_deleted{false};
  const ReadSettings settings{.thread_count = 1, .on_progress = [&](std::uint64_t /*bytes*/) {
                                if (is_deleted.exchange(true)) return;
                                std::filesystem::remove_all(directory);
                                serve([](std::string_view /*name*/) {});
                              }};
  const Status read = (*snapshot)->read(targets, settings);
  ASSERT_EQ(code_of(read), ErrorCode::kGone) << (read ? "read" : read.error().message());
}

TEST_F(RemoteRestore, GoesOnAfterALostLink) {
  std::atomic<int> reads{0};
  serve([&](std::string_view /*name*/) { ++reads; });
  auto got = std::async(std::launch::async, [&] { return read_all({remote_.get()}); });
  ASSERT_TRUE(await([&] { return reads >= 4; }));
  serve([](std::string_view /*name*/) {});
  EXPECT_TRUE(got.get());
}

TEST_F(RemoteRestore, ANodeThatIsGoneForGoodIsPassedOver) {
  const ScopedDir far;
  std::filesystem::copy(run_.path(), far.path() / "run", std::filesystem::copy_options::recursive);
  const auto far_vfs = open_posix_vfs(far.path() / "run").value();
  serving_.reset();
  Node third(3);
  const Reading reading(third, {one_.awaited()}, kSoon);
  const auto gone = reading.files_of(1);
  std::vector<MendedRead> mended;
  EXPECT_TRUE(read_all({gone.get(), far_vfs.get()}, &mended));
  EXPECT_EQ(mended.size(), 0U) << "its copies may be good";
  EXPECT_EQ(code_of(read_all({gone.get()})), ErrorCode::kTimeout);
}

TEST_F(RemoteRestore, ClosingEndsIt) {
  std::atomic<int> reads{0};
  serve([&](std::string_view /*name*/) {
    if (++reads == 4) reading_.asks->close();
  });
  EXPECT_EQ(code_of(read_all({remote_.get()})), ErrorCode::kCancelled);
}

}  // namespace
}  // namespace deepfreeze::nodes_test
