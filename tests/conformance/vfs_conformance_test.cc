// The behaviour that all Vfs share, so that a test over the simulated disk holds for the real one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "storage/posix_vfs.h"
#include "storage/vfs.h"
#include "support/aligned_bytes.h"
#include "support/code_of.h"
#include "support/scoped_dir.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kBytesMax = 1U << 20;
constexpr std::size_t kAligned = 4096;

// A Vfs with an empty root, and the owner of its directory.
struct Mounted {
  std::unique_ptr<ScopedDir> dir;  // removed after the Vfs is gone
  std::unique_ptr<Vfs> vfs;
};

Mounted mount_posix() {
  auto dir = std::make_unique<ScopedDir>();
  auto vfs = open_posix_vfs(dir->path());
  return {.dir = std::move(dir), .vfs = *std::move(vfs)};
}

Mounted mount_sim() { return {.dir = nullptr, .vfs = std::make_unique<SimDisk>()}; }

struct Backend {
  const char* name;
  Mounted (*mount)();
};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class VfsConformance : public testing::TestWithParam<Backend> {
 protected:
  void put(std::string_view name, std::string_view text) {
    const auto written = write_new_file(vfs(), name, text);
    ASSERT_TRUE(written) << written.error().message();
  }
  [[nodiscard]] std::string get(std::string_view name) {
    auto text = read_file(vfs(), name, kBytesMax);
    return text ? *text : "(" + std::string(to_string(text.error().code())) + ")";
  }
  [[nodiscard]] Vfs& vfs() { return *mounted_.vfs; }

 private:
  Mounted mounted_ = GetParam().mount();
};

TEST_P(VfsConformance, AFileReadsAsItWasWritten) {
  put("a", "text");
  put("empty", "");
  EXPECT_EQ(get("a"), "text");
  EXPECT_EQ(get("empty"), "");
}

TEST_P(VfsConformance, CreatingATakenNameIsRefusedAndChangesNothing) {
  put("a", "old");
  ASSERT_TRUE(vfs().make_dir("d"));
  EXPECT_EQ(code_of(vfs().create("a", Access::kBuffered)), ErrorCode::kExists);
  EXPECT_EQ(code_of(vfs().create("d", Access::kBuffered)), ErrorCode::kExists);
  EXPECT_EQ(code_of(vfs().make_dir("a")), ErrorCode::kExists);
  EXPECT_EQ(code_of(vfs().make_dir("d")), ErrorCode::kExists);
  EXPECT_EQ(get("a"), "old");
}

TEST_P(VfsConformance, WhatIsMissingIsNotFound) {
  EXPECT_EQ(code_of(vfs().open_read("none", Access::kBuffered)), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(vfs().open_read("none/a", Access::kBuffered)), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(vfs().create("none/a", Access::kBuffered)), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(vfs().make_dir("none/a")), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(vfs().rename_no_replace("none", "a")), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(vfs().remove_file("none")), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(vfs().remove_dir("none")), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(vfs().sync_dir("none")), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(vfs().list("none")), ErrorCode::kNotFound);
}

TEST_P(VfsConformance, FilesAndDirectoriesAreNotTakenForEachOther) {
  put("a", "text");
  ASSERT_TRUE(vfs().make_dir("d"));
  const auto cause = [](const auto& result) { return result ? 0 : result.error().os_errno(); };
  EXPECT_EQ(cause(vfs().open_read("d", Access::kBuffered)), EISDIR);
  EXPECT_EQ(cause(vfs().open_read("a/b", Access::kBuffered)), ENOTDIR);
  EXPECT_EQ(cause(vfs().create("a/b", Access::kBuffered)), ENOTDIR);
  EXPECT_EQ(cause(vfs().make_dir("a/b")), ENOTDIR);
  EXPECT_EQ(cause(vfs().remove_file("d")), EISDIR);
  EXPECT_EQ(cause(vfs().remove_dir("a")), ENOTDIR);
  EXPECT_EQ(cause(vfs().sync_dir("a")), ENOTDIR);
  EXPECT_EQ(cause(vfs().list("a")), ENOTDIR);
  EXPECT_EQ(code_of(vfs().list("a")), ErrorCode::kIo);
}

TEST_P(VfsConformance, BadNamesAreRefusedByEveryOperation) {
  put("a", "text");
  const std::string with_nul("a\0b", 3);
  const std::string too_long(129, 'x');
  for (const std::string_view name :
       {std::string_view(".."), std::string_view("."), std::string_view("a/../b"),
        std::string_view("/x"), std::string_view("a//b"), std::string_view("a/"),
        std::string_view("a b"), std::string_view(with_nul), std::string_view(too_long)}) {
    constexpr auto kBad = ErrorCode::kInvalidArgument;
    EXPECT_EQ(code_of(vfs().create(name, Access::kBuffered)), kBad) << name;
    EXPECT_EQ(code_of(vfs().open_read(name, Access::kBuffered)), kBad) << name;
    EXPECT_EQ(code_of(vfs().make_dir(name)), kBad) << name;
    EXPECT_EQ(code_of(vfs().rename_no_replace(name, "b")), kBad) << name;
    EXPECT_EQ(code_of(vfs().rename_no_replace("a", name)), kBad) << name;
    EXPECT_EQ(code_of(vfs().remove_file(name)), kBad) << name;
    EXPECT_EQ(code_of(vfs().remove_dir(name)), kBad) << name;
    EXPECT_EQ(code_of(vfs().sync_dir(name)), kBad) << name;
    EXPECT_EQ(code_of(vfs().list(name)), kBad) << name;
  }
}

TEST_P(VfsConformance, TheEmptyNameIsTheRootForListAndSyncOnly) {
  EXPECT_TRUE(vfs().list(""));
  EXPECT_TRUE(vfs().sync_dir(""));
  constexpr auto kBad = ErrorCode::kInvalidArgument;
  EXPECT_EQ(code_of(vfs().create("", Access::kBuffered)), kBad);
  EXPECT_EQ(code_of(vfs().open_read("", Access::kBuffered)), kBad);
  EXPECT_EQ(code_of(vfs().make_dir("")), kBad);
  EXPECT_EQ(code_of(vfs().remove_dir("")), kBad);
}

TEST_P(VfsConformance, RenameMovesAndNeverReplaces) {
  put("a", "new");
  put("b", "old");
  ASSERT_TRUE(vfs().make_dir("d"));
  EXPECT_EQ(code_of(vfs().rename_no_replace("a", "b")), ErrorCode::kExists);
  EXPECT_EQ(code_of(vfs().rename_no_replace("a", "d")), ErrorCode::kExists);
  EXPECT_EQ(code_of(vfs().rename_no_replace("a", "a")), ErrorCode::kExists);
  EXPECT_EQ(get("b"), "old");
  ASSERT_TRUE(vfs().rename_no_replace("a", "d/c"));
  EXPECT_EQ(get("d/c"), "new");
  EXPECT_EQ(get("a"), "(not_found)");
}

TEST_P(VfsConformance, AReplacingRenameTakesTheNameOver) {
  put("a", "new");
  put("b", "old");
  ASSERT_TRUE(vfs().make_dir("d"));
  EXPECT_FALSE(vfs().rename_replacing("a", "d")) << "a directory is not replaced";
  ASSERT_TRUE(vfs().rename_replacing("a", "b"));
  EXPECT_EQ(get("a"), "(not_found)");
  EXPECT_EQ(get("b"), "new");
  ASSERT_TRUE(vfs().rename_replacing("b", "d/c")) << "nor does the name have to be taken";
  EXPECT_EQ(get("d/c"), "new");
  EXPECT_EQ(code_of(vfs().rename_replacing("none", "d/c")), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(vfs().rename_replacing("d/c", "../x")), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(vfs().rename_replacing("../x", "d/c")), ErrorCode::kInvalidArgument);
  ASSERT_TRUE(vfs().rename_replacing("d/c", "d/c")) << "itself";
  EXPECT_EQ(get("d/c"), "new");
}

TEST_P(VfsConformance, ALinkIsOneMoreNameOfTheFile) {
  put("a", "text");
  put("taken", "other");
  ASSERT_TRUE(vfs().make_dir("d"));
  EXPECT_EQ(code_of(vfs().link_file("a", "taken")), ErrorCode::kExists);
  EXPECT_EQ(code_of(vfs().link_file("none", "b")), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(vfs().link_file("a", "none/b")), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(vfs().link_file("d", "e")), ErrorCode::kUnsupported) << "a directory has none";
  EXPECT_EQ(code_of(vfs().link_file("a", "../b")), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(vfs().link_file("../a", "b")), ErrorCode::kInvalidArgument);
  ASSERT_TRUE(vfs().link_file("a", "d/b"));
  EXPECT_EQ(get("d/b"), "text");
  ASSERT_TRUE(vfs().remove_file("a"));
  EXPECT_EQ(get("d/b"), "text");
  ASSERT_TRUE(vfs().link_file("d/b", "a"));
  ASSERT_TRUE(vfs().rename_no_replace("a", "c"));
  EXPECT_EQ(get("c"), get("d/b"));
}

TEST_P(VfsConformance, ADirectoryIsRenamedWithWhatIsInItButNotIntoItself) {
  ASSERT_TRUE(vfs().make_dir("d"));
  put("d/a", "text");
  ASSERT_TRUE(vfs().rename_no_replace("d", "e"));
  EXPECT_EQ(get("e/a"), "text");
  EXPECT_FALSE(vfs().rename_no_replace("e", "e/f"));
  EXPECT_EQ(get("e/a"), "text");
}

TEST_P(VfsConformance, ListingIsSortedAndTellsDirectoriesFromFiles) {
  EXPECT_TRUE(vfs().list("").value().empty());
  put("b", "");
  ASSERT_TRUE(vfs().make_dir("c"));
  put("c/inside", "");
  put(".a", "");
  const auto entries = vfs().list("").value();
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(entries[0].name, ".a");
  EXPECT_EQ(entries[1].name, "b");
  EXPECT_EQ(entries[2].name, "c");
  EXPECT_FALSE(entries[1].is_directory);
  EXPECT_TRUE(entries[2].is_directory);
  EXPECT_EQ(vfs().list("c").value().at(0).name, "inside");
}

TEST_P(VfsConformance, RemovedNamesAreFreeAgainAndFullDirectoriesStay) {
  ASSERT_TRUE(vfs().make_dir("d"));
  put("d/a", "text");
  EXPECT_EQ(vfs().remove_dir("d").error().os_errno(), ENOTEMPTY);
  ASSERT_TRUE(vfs().remove_file("d/a"));
  EXPECT_EQ(get("d/a"), "(not_found)");
  put("d/a", "again");
  ASSERT_TRUE(vfs().remove_file("d/a"));
  ASSERT_TRUE(vfs().remove_dir("d"));
  EXPECT_TRUE(vfs().list("").value().empty());
}

TEST_P(VfsConformance, ReadsStopAtTheEndOfTheFile) {
  put("a", "0123456789");
  auto file = vfs().open_read("a", Access::kBuffered).value();
  std::string into(8, '.');
  EXPECT_EQ(file->read_at(4, std::as_writable_bytes(std::span(into))).value(), 6U);
  EXPECT_EQ(into, "456789..");
  EXPECT_EQ(file->read_at(10, std::as_writable_bytes(std::span(into))).value(), 0U);
  EXPECT_EQ(file->read_at(1000, std::as_writable_bytes(std::span(into))).value(), 0U);
  EXPECT_EQ(file->read_at(0, {}).value(), 0U);
}

TEST_P(VfsConformance, WritesGoWhereTheyAreToldAndHolesReadAsZeros) {
  auto file = vfs().create("a", Access::kBuffered).value();
  ASSERT_TRUE(file->write_at(6, bytes_of("data")));
  ASSERT_TRUE(file->write_at(0, bytes_of("head")));
  ASSERT_TRUE(file->write_at(100, {}));  // of nothing changes nothing
  EXPECT_EQ(file->size().value(), 10U);
  std::string back(10, '.');  // the writer may read, too
  EXPECT_EQ(file->read_at(0, std::as_writable_bytes(std::span(back))).value(), 10U);
  EXPECT_EQ(back, std::string("head\0\0data", 10));
}

TEST_P(VfsConformance, TruncateCutsAndExtendsWithZeros) {
  auto file = vfs().create("a", Access::kBuffered).value();
  ASSERT_TRUE(file->write_at(0, bytes_of("text")));
  ASSERT_TRUE(file->truncate(2));
  ASSERT_TRUE(file->truncate(4));
  ASSERT_TRUE(file->sync());
  ASSERT_TRUE(file->close());
  EXPECT_EQ(get("a"), std::string("te\0\0", 4));
}

TEST_P(VfsConformance, PreallocationLeavesTheSizeAlone) {
  auto file = vfs().create("a", Access::kBuffered).value();
  ASSERT_TRUE(file->preallocate(0));
  ASSERT_TRUE(file->preallocate(100'000));
  EXPECT_EQ(file->size().value(), 0U);
}

TEST_P(VfsConformance, FlushingARangeChangesNothingThatIsRead) {
  for (const Access access : {Access::kBuffered, Access::kDirect}) {
    const AlignedBytes written(4 * kAligned);
    written.fill_pattern();
    auto file = vfs().create("a", access).value();
    ASSERT_TRUE(file->write_at(0, written.bytes()));
    ASSERT_TRUE(file->flush_range(kAligned, 2 * kAligned));
    ASSERT_TRUE(file->flush_range(0, 100 * kAligned));  // beyond the end
    const AlignedBytes back(4 * kAligned);
    EXPECT_EQ(file->read_at(0, back.bytes()).value(), 4 * kAligned);
    EXPECT_TRUE(std::ranges::equal(back.bytes(), written.bytes()));
    ASSERT_TRUE(vfs().remove_file("a"));
  }
}

TEST_P(VfsConformance, AFileOpenedForReadingCantBeWritten) {
  put("a", "text");
  auto file = vfs().open_read("a", Access::kBuffered).value();
  EXPECT_EQ(code_of(file->write_at(0, bytes_of("x"))), ErrorCode::kIo);
  EXPECT_FALSE(file->truncate(0));
  EXPECT_EQ(get("a"), "text");
}

TEST_P(VfsConformance, AClosedFileAnswersNothing) {
  auto file = vfs().create("a", Access::kBuffered).value();
  ASSERT_TRUE(file->close());
  EXPECT_FALSE(file->write_at(0, bytes_of("x")));
  EXPECT_FALSE(file->sync());
  EXPECT_FALSE(file->size());
}

TEST_P(VfsConformance, AlignedDirectWritesComeBack) {
  const AlignedBytes written(2 * kAligned);
  written.fill_pattern();
  auto file = vfs().create("a", Access::kDirect).value();
  ASSERT_TRUE(file->write_at(kAligned, written.bytes().subspan(kAligned)));
  ASSERT_TRUE(file->write_at(0, written.bytes().first(kAligned)));
  ASSERT_TRUE(file->truncate(kAligned + 10));
  ASSERT_TRUE(file->sync());
  ASSERT_TRUE(file->close());
  const AlignedBytes read(4 * kAligned);
  auto reader = vfs().open_read("a", Access::kDirect).value();
  ASSERT_EQ(reader->read_at(0, read.bytes()).value(), kAligned + 10);
  EXPECT_TRUE(
      std::ranges::equal(read.bytes().first(kAligned + 10), written.bytes().first(kAligned + 10)));
}

TEST_P(VfsConformance, ErrorsNameThePath) {
  const Error error = vfs().open_read("step/none", Access::kBuffered).error();
  EXPECT_NE(error.message().find(vfs().path_of("step/none")), std::string::npos);
  EXPECT_TRUE(vfs().path_of("step/none").ends_with("/step/none"));
  EXPECT_EQ(error.os_errno(), ENOENT);
}

INSTANTIATE_TEST_SUITE_P(Backends, VfsConformance,
                         testing::Values(Backend{"posix", mount_posix}, Backend{"sim", mount_sim}),
                         [](const auto& backend) { return std::string(backend.param.name); });

}  // namespace
}  // namespace deepfreeze
