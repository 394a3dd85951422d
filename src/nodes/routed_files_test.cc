#include "nodes/routed_files.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "storage/os_error.h"
#include "support/code_of.h"
#include "support/sim_disk.h"

namespace deepfreeze::routed_files_test {
namespace {

constexpr std::string_view kFile = "step-1/a";

std::string text_at(Vfs& vfs, std::string_view name) {
  return read_file(vfs, name, 100).value_or("none");
}

TEST(RoutedFiles, EachFileComesFromANodeThatHasIt) {
  SimDisk one;
  SimDisk two;
  one.plant("step-1/a", "one's");
  two.plant("step-1/b", "two's");
  const auto files = route_files({{"step-1/a", {&two, &one}}, {"step-1/b", {&two}}});
  EXPECT_EQ(text_at(*files, "step-1/a"), "one's") << "the first node has lost it";
  EXPECT_EQ(text_at(*files, "step-1/b"), "two's");
  EXPECT_EQ(files->path_of("step-1/b"), two.path_of("step-1/b"));
  EXPECT_EQ(files->path_of("step-1"), two.path_of("step-1"));
  EXPECT_EQ(files->path_of("step-2"), "step-2");
}

// Whether the file is lost is not known then.
TEST(RoutedFiles, ANodeThatMayHaveItCountsMoreThanOneThatHasNot) {
  SimDisk refusing;
  SimDisk empty;
  refusing.plant(kFile, "one's");
  refusing.fail_read_at(refusing.read_count(), EACCES);
  const auto files = route_files({{std::string(kFile), {&refusing, &empty}}});
  const auto opened = files->open_read(kFile, Access::kBuffered);
  ASSERT_FALSE(opened);
  EXPECT_TRUE(may_have_good_copy(opened.error())) << opened.error().message();
}

TEST(RoutedFiles, ANameWithoutARouteAsksNobody) {
  SimDisk one;
  one.plant("step-1/a", "one's");
  one.plant("step-1/c", "not routed");
  const auto files = route_files({{std::string(kFile), {&one}}});
  const std::size_t before = one.read_count();
  EXPECT_EQ(code_of(files->open_read("step-1/c", Access::kBuffered)), ErrorCode::kNotFound);
  EXPECT_EQ(one.read_count(), before);
}

TEST(RoutedFiles, NothingIsChanged) {
  SimDisk one;
  one.plant(kFile, "one's");
  const auto files = route_files({{std::string(kFile), {&one}}});
  for (const Status& refused : {files->make_dir("d"), files->rename_no_replace(kFile, "step-1/b"),
                                files->rename_replacing(kFile, "step-1/b"),
                                files->remove_file(kFile), files->remove_dir("step-1"),
                                files->sync_dir(""), files->make_root(), files->check_writable()}) {
    EXPECT_EQ(code_of(refused), ErrorCode::kUnsupported);
  }
  EXPECT_EQ(code_of(files->create("f", Access::kBuffered)), ErrorCode::kUnsupported);
  EXPECT_EQ(code_of(files->list("step-1")), ErrorCode::kUnsupported);
  EXPECT_EQ(text_at(one, kFile), "one's");
}

}  // namespace
}  // namespace deepfreeze::routed_files_test
