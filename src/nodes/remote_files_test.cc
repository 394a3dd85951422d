// Two real endpoints: one gives the files of a directory, the other one reads them.
#include "nodes/remote_files.h"

#include <atomic>
#include <future>
#include <latch>

#include "nodes/remote_fixture.h"

namespace deepfreeze::nodes_test {
namespace {

// Rank 1 gives its directory's files, rank 0 reads them.
struct TwoProcesses {
  explicit TwoProcesses(AskTimes times = kNever)
      : serving(std::make_unique<Serving>(one, std::vector{zero.dialed()}, directory.vfs())),
        reading(zero, {one.awaited()}, times) {}
  void serve_again() {
    serving = std::make_unique<Serving>(one, std::vector{zero.dialed()}, directory.vfs());
  }

  NodeDirectory directory;
  Node zero{0};
  Node one{1};
  std::unique_ptr<Serving> serving;
  Reading reading;
  std::unique_ptr<Vfs> files = reading.files_of(1);
};

using RemoteFilesTest = LinkTest;

TEST_F(RemoteFilesTest, FilesOfAllSizesComeWhole) {
  TwoProcesses scene;
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1}, kMiB - 1, kMiB, kMiB + 1,
                                   4 * kMiB, 5 * kMiB, 5 * kMiB + 1}) {
    const std::string whole = some_bytes(size);
    scene.directory.write(sealed_path(), whole);
    const auto file = scene.files->open_read(sealed_path(), Access::kDirect);
    ASSERT_TRUE(file) << file.error().message();
    EXPECT_EQ((*file)->access(), Access::kBuffered);
    EXPECT_EQ(*(*file)->size(), size);
    EXPECT_TRUE(*read_range(**file, 0, size) == whole) << size;
    EXPECT_TRUE(*read_range(**file, 0, size + 4096) == whole) << "and no bytes after the end";
    EXPECT_EQ(*read_range(**file, size, 1), "");
    EXPECT_EQ(*read_range(**file, size + 1, 1), "");
    EXPECT_EQ(*read_range(**file, ~0ULL, 1), "");
    EXPECT_TRUE((*file)->close());
  }
}

TEST_F(RemoteFilesTest, RangesAnywhereAreThoseOfTheFile) {
  TwoProcesses scene;
  const std::string whole = some_bytes(3 * kMiB + 77);
  scene.directory.write(sealed_path(), whole);
  const auto file = scene.files->open_read(sealed_path(), Access::kDirect);
  ASSERT_TRUE(file);
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{1}, kMiB - 1, 2 * kMiB + 5}) {
    for (const std::uint64_t size : {std::uint64_t{1}, std::uint64_t{4096}, kMiB + 1, 2 * kMiB}) {
      EXPECT_TRUE(*read_range(**file, offset, size) == whole.substr(offset, size))
          << offset << " " << size;
    }
  }
}

TEST_F(RemoteFilesTest, SeveralThreadsReadOneFileAndOthers) {
  TwoProcesses scene;
  constexpr std::uint32_t kFiles = 3;
  for (std::uint32_t rank = 0; rank < kFiles; ++rank) {
    scene.directory.write(sealed_path(rank), some_bytes(6 * kMiB + rank, rank));
  }
  std::vector<std::future<bool>> all;
  for (std::uint32_t thread = 0; thread < 9; ++thread) {
    all.push_back(std::async(std::launch::async, [&scene, rank = thread % kFiles] {
      const auto bytes = read_whole(*scene.files, sealed_path(rank));
      return bytes && *bytes == some_bytes(6 * kMiB + rank, rank);
    }));
  }
  const auto shared = scene.files->open_read(sealed_path(0), Access::kDirect);
  ASSERT_TRUE(shared);
  for (std::uint64_t part = 0; part < 6; ++part) {
    all.push_back(std::async(std::launch::async, [&shared, part] {
      const auto bytes = read_range(**shared, part * kMiB, kMiB);
      return bytes && *bytes == some_bytes(6 * kMiB, 0).substr(part * kMiB, kMiB);
    }));
  }
  for (auto& one : all) EXPECT_TRUE(one.get());
}

TEST_F(RemoteFilesTest, OtherNamesAreRefusedWithoutAsking) {
  TwoProcesses scene;
  scene.directory.write(path_in_run(kAttempt, "other.json"), "{}");
  scene.serving.reset();  // so that an ask would wait for ever
  for (const std::string& name :
       {std::string("deepfreeze.json"), path_in_run(kAttempt, "other.json"),
        path_in_run(kAttempt, "manifest.0123456789abcdef.tmp"),
        path_in_run(kAttempt, part_file_name({})), sealed_file()}) {
    const auto file = scene.files->open_read(name, Access::kBuffered);
    ASSERT_EQ(code_of(file), ErrorCode::kUnsupported) << name;
    EXPECT_TRUE(file.error().message().contains("rank 1 at host7: " + name));
  }
  for (const std::string& name : {std::string(), std::string(".."), "../" + sealed_path(),
                                  "/" + sealed_path(), std::string("a//b")}) {
    EXPECT_EQ(code_of(scene.files->open_read(name, Access::kBuffered)), ErrorCode::kInvalidArgument)
        << name;
  }
}

TEST_F(RemoteFilesTest, CallsThatChangeSomethingAreUnsupported) {
  TwoProcesses scene;
  scene.directory.write(sealed_path(), "0123");
  Vfs& files = *scene.files;
  EXPECT_EQ(code_of(files.create(sealed_path(1), Access::kBuffered)), ErrorCode::kUnsupported);
  for (const Status& status :
       {files.make_dir("a"), files.rename_no_replace(sealed_path(), "b"),
        files.rename_replacing(sealed_path(), "b"), files.remove_file(sealed_path()),
        files.remove_dir("a"), files.sync_dir(""), files.make_root(), files.check_writable()}) {
    EXPECT_EQ(code_of(status), ErrorCode::kUnsupported);
  }
  EXPECT_EQ(code_of(files.list("")), ErrorCode::kUnsupported);
  const auto file = files.open_read(sealed_path(), Access::kBuffered);
  ASSERT_TRUE(file);
  EXPECT_EQ(code_of((*file)->write_at(0, {})), ErrorCode::kUnsupported);
  EXPECT_EQ(code_of((*file)->preallocate(1)), ErrorCode::kUnsupported);
  EXPECT_EQ(code_of((*file)->truncate(0)), ErrorCode::kUnsupported);
  EXPECT_EQ(code_of((*file)->sync()), ErrorCode::kUnsupported);
  EXPECT_EQ(code_of((*file)->modified_micros()), ErrorCode::kUnsupported);
  EXPECT_EQ(*read_whole(files, sealed_path()), "0123");
}

TEST_F(RemoteFilesTest, AFileThatIsNotThereIsNotFoundAndNamesBothSides) {
  TwoProcesses scene;
  const auto file = scene.files->open_read(sealed_path(), Access::kDirect);
  ASSERT_EQ(code_of(file), ErrorCode::kNotFound);
  const std::string& text = file.error().message();
  EXPECT_TRUE(text.contains("open rank 1 at host7: " + sealed_path())) << text;
  EXPECT_TRUE(text.contains(scene.directory.path().string())) << text;
}

TEST_F(RemoteFilesTest, AFileThatIsDeletedAfterItWasOpenedIsGone) {
  TwoProcesses scene;
  scene.directory.write(sealed_path(), "0123");
  const auto file = scene.files->open_read(sealed_path(), Access::kDirect);
  ASSERT_TRUE(file);
  std::filesystem::remove(scene.directory.path() / sealed_path());
  EXPECT_EQ(*read_range(**file, 0, 4), "0123") << "the server has it open, as any reader";
  scene.serving.reset();
  scene.serve_again();
  const auto bytes = read_range(**file, 0, 4);
  ASSERT_EQ(code_of(bytes), ErrorCode::kGone);
  EXPECT_TRUE(bytes.error().message().contains("read rank 1 at host7: " + sealed_path() + " at 0"));
}

TEST_F(RemoteFilesTest, AFileThatIsCutIsNotReadAsIfItWereWhole) {
  TwoProcesses scene;
  scene.directory.write(sealed_path(), some_bytes(2 * kMiB));
  const auto file = scene.files->open_read(sealed_path(), Access::kDirect);
  ASSERT_TRUE(file);
  std::filesystem::resize_file(scene.directory.path() / sealed_path(), kMiB);
  EXPECT_EQ(code_of(read_range(**file, 0, 4096)), ErrorCode::kCorrupt) << "it has another size";
  const auto beyond = read_range(**file, kMiB, 4096);
  ASSERT_EQ(code_of(beyond), ErrorCode::kIo);
  EXPECT_TRUE(beyond.error().message().contains("beyond the end")) << beyond.error().message();
}

TEST_F(RemoteFilesTest, AReadGoesOnOverTheNextLink) {
  TwoProcesses scene;
  const std::string whole = some_bytes(64 * kMiB);
  scene.directory.write(sealed_path(), whole);
  std::atomic<int> reads{0};
  const auto held = [&] {
    return std::make_unique<HeldVfs>(scene.directory.vfs(),
                                     [&](std::string_view /*name*/) { ++reads; });
  };
  scene.serving.reset();
  scene.serving = std::make_unique<Serving>(scene.one, std::vector{scene.zero.dialed()}, held());
  auto got =
      std::async(std::launch::async, [&] { return read_whole(*scene.files, sealed_path()); });
  for (const int before : {10, 30}) {
    ASSERT_TRUE(await([&] { return reads >= before; }));
    scene.serving.reset();
    scene.serving = std::make_unique<Serving>(scene.one, std::vector{scene.zero.dialed()}, held());
  }
  const auto bytes = got.get();
  ASSERT_TRUE(bytes) << bytes.error().message();
  EXPECT_TRUE(*bytes == whole);
  EXPECT_GE(state_of(*scene.reading.endpoint, 1).count, 3U);
}

TEST_F(RemoteFilesTest, AServerThatIsGoneForGoodIsAnErrorThatSaysWhy) {
  TwoProcesses scene(kSoon);
  scene.directory.write(sealed_path(), some_bytes(4 * kMiB));
  const auto file = scene.files->open_read(sealed_path(), Access::kDirect);
  ASSERT_TRUE(file);
  scene.serving.reset();
  const auto bytes = read_range(**file, 0, 4 * kMiB);
  ASSERT_EQ(code_of(bytes), ErrorCode::kTimeout);
  const std::string& text = bytes.error().message();
  EXPECT_TRUE(text.contains("read rank 1 at host7: " + sealed_path() + " at 0")) << text;
  EXPECT_TRUE(text.contains("no link with rank 1 since")) << text;
  EXPECT_TRUE(text.contains("127.0.0.1")) << text;
}

TEST_F(RemoteFilesTest, AReaderDialsAPeerThatNobodyHasDialed) {
  NodeDirectory directory;
  directory.write(sealed_path(), "0123");
  Node zero(0);
  Node one(1);
  LinkPeer peer = one.dialed();
  peer.is_dialed = false;
  const Serving serving(one, {zero.awaited()}, directory.vfs());
  const Reading reading(zero, {peer});
  EXPECT_EQ(*read_whole(*reading.files_of(1), sealed_path()), "0123");
}

TEST_F(RemoteFilesTest, TwoNodesReadOfEachOther) {
  NodeDirectory left_directory;
  NodeDirectory right_directory;
  left_directory.write(sealed_path(), some_bytes(3 * kMiB, 1));
  right_directory.write(sealed_path(), some_bytes(3 * kMiB, 2));
  struct Both {
    Both(Node& node, LinkPeer peer, std::unique_ptr<Vfs> run)
        : endpoint(node.start({std::move(peer)})),
          asks(*endpoint, kNever),
          server(FileServer::start(*endpoint, std::move(run)).value()),
          dispatcher(
              LinkDispatcher::start(*endpoint, {.reads = server.get(), .answers = &asks}).value()) {
    }
    std::unique_ptr<Endpoint> endpoint;
    RemoteAsks asks;
    std::unique_ptr<FileServer> server;
    std::unique_ptr<LinkDispatcher> dispatcher;
  };
  Node zero(0);
  Node one(1);
  const LinkPeer peer_zero = zero.dialed();
  Both left(zero, one.awaited(), left_directory.vfs());
  Both right(one, peer_zero, right_directory.vfs());
  const auto right_files = open_remote_files(left.asks, {.rank = 1, .place = "right"}).value();
  const auto left_files = open_remote_files(right.asks, {.rank = 0, .place = "left"}).value();
  auto there =
      std::async(std::launch::async, [&] { return read_whole(*right_files, sealed_path()); });
  EXPECT_TRUE(*read_whole(*left_files, sealed_path()) == some_bytes(3 * kMiB, 1));
  EXPECT_TRUE(*there.get() == some_bytes(3 * kMiB, 2));
}

}  // namespace
}  // namespace deepfreeze::nodes_test
