#include "nodes/served_files.h"

#include "nodes/remote_fixture.h"

namespace deepfreeze::nodes_test {
namespace {

const Monotonic::time_point kStart{};

LinkRead read_of(std::string file, std::uint64_t offset, std::uint64_t size) {
  return {
      .number = 5, .attempt = kAttempt, .file = std::move(file), .offset = offset, .size = size};
}

// The bytes of a whole and right answer; else its error.
Result<std::string> bytes_of(const LinkMessage& answer) {
  if (const auto* error = std::get_if<LinkError>(&answer)) {
    EXPECT_EQ(error->number, 5U);
    return std::unexpected(error->error);
  }
  EXPECT_EQ(std::get<LinkBytes>(answer).number, 5U);
  return std::get<LinkBytes>(answer).bytes;
}

class ServedFilesTest : public testing::Test {
 protected:
  Result<std::string> ask(const LinkRead& read, Monotonic::time_point now = kStart) {
    return bytes_of(files_.answer(read, now));
  }
  NodeDirectory directory_;
  ServedFiles files_{directory_.vfs()};
};

TEST_F(ServedFilesTest, GivesRangesAndTheSize) {
  directory_.write(sealed_path(), "0123456789");
  const LinkMessage opened = files_.answer(read_of(sealed_file(), 0, 0), kStart);
  EXPECT_EQ(std::get<LinkBytes>(opened).file_bytes, 10U);
  EXPECT_EQ(*ask(read_of(sealed_file(), 0, 10)), "0123456789");
  EXPECT_EQ(*ask(read_of(sealed_file(), 3, 4)), "3456");
  EXPECT_EQ(*ask(read_of(sealed_file(), 10, 0)), "");
  directory_.write(path_in_run(kAttempt, "manifest.json"), "{}");
  EXPECT_EQ(*ask(read_of("manifest.json", 0, 2)), "{}");
}

TEST_F(ServedFilesTest, ARangeBeyondTheEndIsAnErrorThatSaysSo) {
  directory_.write(sealed_path(), "0123456789");
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges = {
      {0, 11}, {10, 1}, {11, 0}, {~0ULL, 2}, {~0ULL - 1, 2}, {~0ULL, 0}};
  for (const auto& [offset, size] : ranges) {
    const auto bytes = ask(read_of(sealed_file(), offset, size));
    ASSERT_EQ(code_of(bytes), ErrorCode::kInvalidArgument) << offset << " " << size;
    EXPECT_TRUE(bytes.error().message().contains("beyond the end")) << bytes.error().message();
  }
}

TEST_F(ServedFilesTest, ARangeIsBounded) {
  directory_.write(sealed_path(), some_bytes(kRangeBytesMax + 1));
  EXPECT_EQ(ask(read_of(sealed_file(), 1, kRangeBytesMax))->size(), kRangeBytesMax);
  EXPECT_EQ(code_of(ask(read_of(sealed_file(), 0, kRangeBytesMax + 1))),
            ErrorCode::kInvalidArgument);
}

TEST_F(ServedFilesTest, GivesNoOtherFilesAndFollowsNoLink) {
  const ScopedDir outside;
  std::ofstream(outside.path() / sealed_file()) << "secret";
  std::ofstream(outside.path() / "manifest.json") << "secret";
  std::ofstream(directory_.path() / "deepfreeze.json") << "{}";
  const std::string part = part_file_name({.rank = 0, .world_size = 100});
  directory_.write(path_in_run(kAttempt, part), "half");
  for (const std::string& file : {std::string(".."), std::string("../deepfreeze.json"), part,
                                  std::string("manifest.0123456789abcdef.tmp")}) {
    EXPECT_EQ(code_of(ask(read_of(file, 0, 1))), ErrorCode::kInvalidArgument) << file;
  }
  std::filesystem::create_symlink(outside.path() / sealed_file(),
                                  directory_.path() / sealed_path());
  EXPECT_EQ(code_of(ask(read_of(sealed_file(), 0, 1))), ErrorCode::kIo);
  LinkRead other = read_of(sealed_file(), 0, 1);
  other.attempt.attempt_id = 0xbb;  // a link to a directory
  std::filesystem::create_directory_symlink(outside.path(),
                                            directory_.path() / attempt_dir_name({7, 0xbb}));
  EXPECT_EQ(code_of(ask(other)), ErrorCode::kIo);
}

TEST_F(ServedFilesTest, AFileThatIsNotThereIsNotFound) {
  EXPECT_EQ(code_of(ask(read_of(sealed_file(), 0, 1))), ErrorCode::kNotFound);
  EXPECT_EQ(files_.open_count(), 0U);
}

TEST_F(ServedFilesTest, AnOpenFileIsReadToItsEndAfterItWasDeletedAndOpenedAnewIsNotFound) {
  directory_.write(sealed_path(), "0123456789");
  ASSERT_TRUE(ask(read_of(sealed_file(), 0, 0)));
  std::filesystem::remove(directory_.path() / sealed_path());
  EXPECT_EQ(*ask(read_of(sealed_file(), 2, 3)), "234");
  EXPECT_EQ(code_of(ask(read_of(sealed_file(), 0, 0))), ErrorCode::kNotFound);
}

TEST_F(ServedFilesTest, AFileThatWasReplacedIsSeenWhenItIsOpened) {
  directory_.write(sealed_path(), "damaged");
  ASSERT_TRUE(ask(read_of(sealed_file(), 0, 0)));
  directory_.write(sealed_path(1), "mended!");
  std::filesystem::rename(directory_.path() / sealed_path(1), directory_.path() / sealed_path());
  ASSERT_TRUE(ask(read_of(sealed_file(), 0, 0)));
  EXPECT_EQ(*ask(read_of(sealed_file(), 0, 7)), "mended!");
  EXPECT_EQ(files_.open_count(), 1U);
}

TEST_F(ServedFilesTest, HoldsFewFilesOpenAndClosesTheOneThatWasReadLeastRecently) {
  for (std::uint32_t rank = 0; rank <= kServedFilesMax; ++rank) {
    directory_.write(sealed_path(rank), "0123");
  }
  const auto at = [](std::uint32_t rank) { return kStart + std::chrono::milliseconds(rank); };
  for (std::uint32_t rank = 0; rank < kServedFilesMax; ++rank) {
    ASSERT_TRUE(ask(read_of(sealed_file(rank), 0, 1), at(rank)));
  }
  ASSERT_TRUE(ask(read_of(sealed_file(0), 0, 1), at(kServedFilesMax)));  // 1 is the oldest now
  ASSERT_TRUE(ask(read_of(sealed_file(kServedFilesMax), 0, 1), at(kServedFilesMax + 1)));
  EXPECT_EQ(files_.open_count(), kServedFilesMax);
  std::filesystem::remove(directory_.path() / sealed_path(0));
  std::filesystem::remove(directory_.path() / sealed_path(1));
  EXPECT_TRUE(ask(read_of(sealed_file(0), 0, 1), at(kServedFilesMax + 1)));
  EXPECT_EQ(code_of(ask(read_of(sealed_file(1), 0, 1))), ErrorCode::kNotFound);
}

TEST_F(ServedFilesTest, ClosesFilesThatNobodyReads) {
  directory_.write(sealed_path(0), "0123");
  directory_.write(sealed_path(1), "0123");
  ASSERT_TRUE(ask(read_of(sealed_file(0), 0, 1), kStart));
  ASSERT_TRUE(ask(read_of(sealed_file(1), 0, 1), kStart));
  ASSERT_TRUE(ask(read_of(sealed_file(1), 0, 1), kStart + kServedIdleMax / 2));
  files_.close_idle(kStart + kServedIdleMax - std::chrono::milliseconds(1));
  EXPECT_EQ(files_.open_count(), 2U);
  files_.close_idle(kStart + kServedIdleMax);
  EXPECT_EQ(files_.open_count(), 1U);
  EXPECT_TRUE(ask(read_of(sealed_file(0), 0, 1))) << "and opens them again";
}

TEST_F(ServedFilesTest, ADirectoryThatWasMadeAnewIsRead) {
  const auto old = directory_.path().string() + ".old";
  std::filesystem::rename(directory_.path(), old);
  std::filesystem::create_directories(directory_.path() / attempt_dir_name({7, 0xaa}));
  directory_.write(sealed_path(), "0123");
  EXPECT_EQ(*ask(read_of(sealed_file(), 0, 4)), "0123");
  std::filesystem::remove_all(old);
}

TEST_F(ServedFilesTest, AFileThatIsCutWhileItIsReadIsAnError) {
  directory_.write(sealed_path(), "0123456789");
  ServedFiles held(std::make_unique<HeldVfs>(directory_.vfs(), [&](std::string_view /*name*/) {
    std::filesystem::resize_file(directory_.path() / sealed_path(), 4);
  }));
  const auto bytes = bytes_of(held.answer(read_of(sealed_file(), 0, 10), kStart));
  ASSERT_EQ(code_of(bytes), ErrorCode::kIo);
  EXPECT_TRUE(bytes.error().message().contains("was cut")) << bytes.error().message();
}

}  // namespace
}  // namespace deepfreeze::nodes_test
