// The behaviour that all ways of writing share: io_uring, O_DIRECT threads and the page cache over
// real files, and the threads over a simulated disk.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <thread>

#include "base/fail_point.h"
#include "base/unique_fd.h"
#include "pipeline/part_files.h"
#include "pipeline/part_fixture.h"
#include "pipeline/uring_part_writer.h"
#include "pipeline/write_engine.h"
#include "storage/posix_vfs.h"
#include "support/code_of.h"
#include "support/passing_file.h"
#include "support/refuse_direct.h"
#include "support/scoped_dir.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kFileBytesMax = 1ULL << 30;

struct Mode {
  const char* name;
  IoMode io;
  bool is_real_disk = true;
};

// Counts the freed slabs, and lets a copier wait for one.
class FreedSlabs {
 public:
  explicit FreedSlabs(std::size_t slab_count) : counts_(slab_count) {}
  [[nodiscard]] std::function<void(std::size_t)> callback() {
    return [this](std::size_t slab) {
      const std::lock_guard lock(mutex_);
      ++counts_.at(slab);
      changed_.notify_all();
    };
  }
  void wait_for(std::size_t slab) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return counts_.at(slab) > 0; });
  }
  [[nodiscard]] std::vector<int> counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<int> counts_;
};

class PartWriterModes : public testing::TestWithParam<Mode> {
 protected:
  void SetUp() override {
    auto engine = WriteEngine::open({.mode = GetParam().io, .writes_in_flight = 3});
    if (!engine) {
      ASSERT_EQ(engine.error().code(), ErrorCode::kUnsupported) << engine.error().message();
      GTEST_SKIP() << "LEFT OUT: " << engine.error().message();
    }
    engine_ = *std::move(engine);
    if (GetParam().is_real_disk) {
      vfs_ = open_posix_vfs(dir_.path()).value();
    } else {
      vfs_ = std::make_unique<SimDisk>();
    }
  }
  void TearDown() override { fail_points::disarm(); }

  [[nodiscard]] std::unique_ptr<PartWriter> start(PartSpec spec) {
    auto writer = engine_->start(*vfs_, std::move(spec));
    EXPECT_TRUE(writer) << writer.error().message();
    return *std::move(writer);
  }
  [[nodiscard]] Status write(const Data& data) {
    const auto writer = start(spec_of(data));
    push_all(*writer, data.slabs());
    return writer->finish(make_header);
  }
  [[nodiscard]] std::string file(const std::string& name = kName) {
    return read_file(*vfs_, name, kFileBytesMax).value();
  }
  [[nodiscard]] bool is_headerless() {
    return file().substr(0, kHeader).find_first_not_of('\0') == std::string::npos;
  }

  ScopedDir dir_;
  std::unique_ptr<Vfs> vfs_;
  std::unique_ptr<WriteEngine> engine_;
};

TEST_P(PartWriterModes, WritesDataAndHeaderOfAnySize) {
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, kPageBytes, kPageBytes + 1,
                                    kSlabBytes - 1, kSlabBytes, kSlabBytes + 1, kThreeSlabs}) {
    SCOPED_TRACE(bytes);
    const Data data(bytes);
    engine_->use_memory(data.memory());
    const auto writer = start(spec_of(data));
    push_all(*writer, data.slabs());
    const Status finished = writer->finish(make_header);
    ASSERT_TRUE(finished) << finished.error().message();
    EXPECT_TRUE(file() == expected_file(data));
    EXPECT_EQ(writer->bytes_written(), kHeader + bytes);
    EXPECT_EQ(writer->write_seconds() > 0, bytes > 0);
    ASSERT_TRUE(vfs_->remove_file(kName));
    engine_->use_memory({});
  }
}

TEST_P(PartWriterModes, ItsModeIsTheOneAskedFor) {
  ASSERT_TRUE(write(Data(kThreeSlabs)));
  EXPECT_EQ(engine_->mode(), GetParam().io);
}

TEST_P(PartWriterModes, AcceptsSlabsFromManyThreadsInAnyOrder) {
  const Data data(5 * kSlabBytes + 1);
  const auto writer = start(spec_of(data));
  {
    std::vector<std::jthread> pushers;
    for (const std::size_t slab : {3U, 0U, 5U, 1U, 4U, 2U}) {
      pushers.emplace_back([&writer, slab] { writer->push(slab); });
    }
  }
  ASSERT_TRUE(writer->finish(make_header));
  EXPECT_TRUE(file() == expected_file(data));
}

// A copier fills a slot again only after its slab was freed: a writer that still read it, or
// that never freed it, would show.
TEST_P(PartWriterModes, ARingOfSlabsGivesTheSameFile) {
  const Data data(11 * kSlabBytes + 4'321);
  for (const std::size_t slots : {1U, 2U, 3U}) {
    SCOPED_TRACE(slots);
    const Data ring(slots * kSlabBytes);
    engine_->use_memory(ring.memory());
    FreedSlabs freed(data.slabs());
    const Image image(ring.bytes(), data.bytes().size(), kSlabBytes);
    const auto writer =
        start({.files = {{kName, kHeader}}, .image = image, .on_slab_free = freed.callback()});
    for (std::size_t slab = 0; slab < data.slabs(); ++slab) {
      if (slab >= slots) freed.wait_for(slab - slots);
      std::ranges::copy(data.image().slab(slab), image.slab(slab).begin());
      writer->push(slab);
    }
    ASSERT_TRUE(writer->finish(make_header));
    EXPECT_TRUE(file() == expected_file(data));
    EXPECT_EQ(freed.counts(), std::vector<int>(data.slabs(), 1));
    ASSERT_TRUE(vfs_->remove_file(kName));
    engine_->use_memory({});
  }
}

// Three files of 2 slabs and a bit, 1 slab, and nothing; in all of the image's memory, and in a
// ring.
TEST_P(PartWriterModes, EachFileGetsItsSectionOfTheImage) {
  const std::array<std::uint64_t, 3> bytes{kThreeSlabs, kSlabBytes, 0};
  const std::vector<Section> sections = lay_sections(bytes, kSlabBytes);
  const Data data(sections.back().end);
  const Image whole(data.bytes(), sections, kSlabBytes);
  for (const std::size_t slots : {2U, 4U}) {
    SCOPED_TRACE(slots);
    const Data memory(slots * kSlabBytes);
    const Image image(memory.bytes(), sections, kSlabBytes);
    FreedSlabs freed(image.slab_count());
    const auto writer = start({.files = {{"a", kHeader}, {"b", kPageBytes}, {"c", kHeader}},
                               .image = image,
                               .on_slab_free = freed.callback()});
    for (std::size_t slab = 0; slab < image.slab_count(); ++slab) {
      if (slab >= slots) freed.wait_for(slab - slots);
      std::ranges::copy(whole.slab(slab), image.slab(slab).begin());
      writer->push(slab);
    }
    ASSERT_TRUE(writer->finish([](std::size_t file) -> Result<std::vector<std::byte>> {
      return std::vector<std::byte>(file == 1 ? kPageBytes : kHeader, std::byte('0' + file));
    }));
    EXPECT_EQ(writer->bytes_written(), 2 * kHeader + kPageBytes + kThreeSlabs + kSlabBytes);
    EXPECT_TRUE(file("a") == std::string(kHeader, '0') + text_of(data, 0, kThreeSlabs));
    EXPECT_TRUE(file("b") ==
                std::string(kPageBytes, '1') + text_of(data, sections[1].begin, kSlabBytes));
    EXPECT_TRUE(file("c") == std::string(kHeader, '2'));
    for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(vfs_->remove_file(name));
  }
}

// As on file systems that take the flag and refuse the write: each file comes down by itself.
TEST_P(PartWriterModes, EachOfSeveralFilesComesDownToThePageCache) {
  if (!GetParam().is_real_disk) return;  // a simulated disk takes every write
  const std::array<std::uint64_t, 3> bytes{kSlabBytes + 5, 10, kSlabBytes};
  const std::vector<Section> sections = lay_sections(bytes, kSlabBytes);
  const Data data(sections.back().end);
  const auto write_all = [&] {
    FreedSlabs freed(4);
    const auto writer = start({.files = {{"a", kHeader}, {"b", kHeader}, {"c", kHeader}},
                               .image = Image(data.bytes(), sections, kSlabBytes),
                               .on_slab_free = freed.callback()});
    for (std::size_t slab = 0; slab < 4; ++slab) {
      writer->push(slab);
      freed.wait_for(slab);  // the next slab meets an earlier file that has come down
    }
    const Status finished = writer->finish(make_header);
    EXPECT_TRUE(finished) << finished.error().message();
  };
  if (!run_with_direct_access_refused(write_all)) {
    GTEST_SKIP() << "LEFT OUT: this machine filters no system calls";
  }
  const std::string header(kHeader, 'h');
  EXPECT_TRUE(file("a") == header + text_of(data, 0, bytes[0]));
  EXPECT_TRUE(file("b") == header + text_of(data, sections[1].begin, bytes[1]));
  EXPECT_TRUE(file("c") == header + text_of(data, sections[2].begin, bytes[2]));
}

// Step 3 of no file before step 2 of all.
TEST_P(PartWriterModes, NoFileHasAHeaderBeforeTheDataOfAllIsSynced) {
  const std::array<std::uint64_t, 2> bytes{kSlabBytes, 10};
  const Data data(kSlabBytes + 10);
  const auto writer =
      start({.files = {{"a", kHeader}, {"b", kHeader}},
             .image = Image(data.bytes(), lay_sections(bytes, kSlabBytes), kSlabBytes)});
  push_all(*writer, 2);
  ASSERT_TRUE(fail_points::arm("part.data_synced=error@2"));
  EXPECT_FALSE(writer->finish(make_header));
  for (const char* name : {"a", "b"})
    EXPECT_EQ(file(name).substr(0, kHeader), std::string(kHeader, '\0'));
}

TEST_P(PartWriterModes, EverySlabIsReleasedOnceWhateverFails) {
  const Data data(8 * kSlabBytes + 5);
  std::vector<std::string> armed = {"part.write=error:ENOSPC@1", "part.write=error:EIO@4"};
  if (GetParam().io == IoMode::kUring) {
    armed.insert(armed.end(), {"part.complete=error:ENOSPC@1", "part.complete=error:EIO@8"});
  }
  for (const std::string& failure : armed) {
    SCOPED_TRACE(failure);
    FreedSlabs freed(data.slabs());
    PartSpec spec = spec_of(data);
    spec.on_slab_free = freed.callback();
    const auto writer = start(std::move(spec));
    ASSERT_TRUE(fail_points::arm(failure));
    push_all(*writer, data.slabs());
    const Status finished = writer->finish(make_header);
    fail_points::disarm();
    ASSERT_FALSE(finished);
    const bool full = failure.find("ENOSPC") != failure.npos;
    EXPECT_EQ(finished.error().os_errno(), full ? ENOSPC : EIO);
    EXPECT_EQ(freed.counts(), std::vector<int>(data.slabs(), 1));
    EXPECT_TRUE(is_headerless());
    ASSERT_TRUE(vfs_->remove_file(kName));
    EXPECT_TRUE(write(data));  // the next one works
    ASSERT_TRUE(vfs_->remove_file(kName));
  }
}

TEST_P(PartWriterModes, CancelReleasesWhatCameAndWhatComes) {
  const Data data(6 * kSlabBytes);
  FreedSlabs freed(data.slabs());
  PartSpec spec = spec_of(data);
  spec.on_slab_free = freed.callback();
  const auto writer = start(std::move(spec));
  for (std::size_t slab = 0; slab < 4; ++slab) writer->push(slab);
  std::jthread([&writer] { writer->cancel(); }).join();
  writer->push(4);  // given up
  const Status finished = writer->finish(make_header);
  EXPECT_EQ(code_of(finished), ErrorCode::kCancelled);
  EXPECT_EQ(freed.counts(), (std::vector{1, 1, 1, 1, 1, 0}));
  EXPECT_TRUE(is_headerless());
}

// Memory that is still written from when its writer is gone would be freed, or filled anew.
TEST_P(PartWriterModes, DestroyedUnfinishedItHasReleasedAllThatWasPushed) {
  const Data data(6 * kSlabBytes + 1);
  FreedSlabs freed(data.slabs());
  for (int round = 0; round < 5; ++round) {
    {
      PartSpec spec = spec_of(data);
      spec.on_slab_free = freed.callback();
      const auto writer = start(std::move(spec));
      for (std::size_t slab = 0; slab < 6; ++slab) writer->push(slab);
    }
    EXPECT_EQ(freed.counts(),
              (std::vector{round + 1, round + 1, round + 1, round + 1, round + 1, round + 1, 0}));
    EXPECT_TRUE(is_headerless());
    ASSERT_TRUE(vfs_->remove_file(kName));
  }
}

TEST_P(PartWriterModes, ASlabThatNeverCameOrCameTwiceOrIsUnknownIsAnInternalError) {
  const Data data(kThreeSlabs);
  for (const std::vector<std::size_t>& pushed :
       std::vector<std::vector<std::size_t>>{{0, 2}, {0, 1, 2, 1}, {0, 1, 2, 3}, {}}) {
    const auto writer = start(spec_of(data));
    for (const std::size_t slab : pushed) writer->push(slab);
    EXPECT_EQ(code_of(writer->finish(make_header)), ErrorCode::kInternal);
    EXPECT_TRUE(is_headerless());
    ASSERT_TRUE(vfs_->remove_file(kName));
  }
}

TEST_P(PartWriterModes, EveryFailPointStopsTheSaveAndTheNextOneWorks) {
  const Data data(kThreeSlabs);
  for (const std::string name : {"part.created", "part.write", "part.data_written",
                                 "part.data_synced", "part.header_written", "part.header_synced"}) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(fail_points::arm(name + "=error:EIO@1"));
    const auto writer = engine_->start(*vfs_, spec_of(data));
    EXPECT_EQ(writer.has_value(), name != "part.created");
    if (writer) {
      push_all(**writer, data.slabs());
      const Status failed = (*writer)->finish(make_header);
      ASSERT_FALSE(failed);
      EXPECT_NE(failed.error().message().find(name), std::string::npos);
    }
    fail_points::disarm();
    EXPECT_TRUE(vfs_->remove_file(kName));
    EXPECT_TRUE(write(data));
    EXPECT_TRUE(vfs_->remove_file(kName));
  }
}

TEST_P(PartWriterModes, TwoWritersOfOneEngineDontMixTheirSlabs) {
  const Data first(7 * kSlabBytes + 1);
  const Data second(5 * kSlabBytes + 2);
  FreedSlabs of_first(first.slabs());
  FreedSlabs of_second(second.slabs());
  PartSpec spec = spec_of(first);
  spec.on_slab_free = of_first.callback();
  PartSpec other = spec_of(second);
  other.files[0].name = "other.part";
  other.on_slab_free = of_second.callback();
  const auto a = start(std::move(spec));
  const auto b = start(std::move(other));
  std::jthread beside([&] { push_all(*b, second.slabs()); });
  push_all(*a, first.slabs());
  beside.join();
  ASSERT_TRUE(b->finish(make_header));
  ASSERT_TRUE(a->finish(make_header));
  EXPECT_TRUE(file() == expected_file(first));
  EXPECT_TRUE(read_file(*vfs_, "other.part", kFileBytesMax).value() == expected_file(second));
  EXPECT_EQ(of_first.counts(), std::vector<int>(first.slabs(), 1));
  EXPECT_EQ(of_second.counts(), std::vector<int>(second.slabs(), 1));
}

INSTANTIATE_TEST_SUITE_P(Modes, PartWriterModes,
                         testing::Values(Mode{"uring", IoMode::kUring},
                                         Mode{"direct", IoMode::kDirect},
                                         Mode{"buffered", IoMode::kBuffered},
                                         Mode{"simulated_direct", IoMode::kDirect, false},
                                         Mode{"simulated_buffered", IoMode::kBuffered, false}),
                         [](const auto& mode) { return std::string(mode.param.name); });

// Forwards to a real file, but shows the ring another descriptor.
class MisleadingFile final : public PassingFile {
 public:
  MisleadingFile(std::unique_ptr<File> file, int fd) : PassingFile(std::move(file)), fd_(fd) {}
  [[nodiscard]] std::optional<int> native_fd() const override { return fd_; }

 private:
  const int fd_;
};

class UringCompletions : public testing::Test {
 protected:
  void SetUp() override {
    auto queue = UringQueue::open(4);
    if (!queue) {
      ASSERT_EQ(queue.error().code(), ErrorCode::kUnsupported) << queue.error().message();
      GTEST_SKIP() << "LEFT OUT: " << queue.error().message();
    }
    queue_ = *std::move(queue);
  }
  // A writer whose slabs go to `fd` as far as the ring is concerned.
  [[nodiscard]] std::unique_ptr<PartWriter> start_towards(int fd, PartSpec spec) {
    const std::string& name = spec.files.front().name;
    std::vector<PartFiles::OpenFile> files;
    files.push_back(
        {.file = std::make_unique<MisleadingFile>(vfs_->create(name, Access::kDirect).value(), fd),
         .path = vfs_->path_of(name)});
    auto part = std::make_unique<PartFiles>(std::move(spec), std::move(files));
    return make_uring_part_writer(std::move(part), {queue_.get(), GiveBackQueue{&is_lent_}}, 4);
  }

  ScopedDir dir_;
  std::unique_ptr<Vfs> vfs_ = open_posix_vfs(dir_.path()).value();
  std::unique_ptr<UringQueue> queue_;
  std::atomic<bool> is_lent_{false};
};

TEST_F(UringCompletions, AnErrorNamesOperationPathPlaceAndCause) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full.valid());
  const Data data(kSlabBytes);
  const auto writer = start_towards(full.get(), spec_of(data));
  writer->push(0);
  const Status finished = writer->finish(make_header);
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().code(), ErrorCode::kNoSpace);
  EXPECT_EQ(finished.error().message(),
            fmt::format("write {} at {}: No space left on device", vfs_->path_of(kName), kHeader));
}

// A pipe takes as much as it has room for; the file then has all but that.
TEST_F(UringCompletions, TheRestOfAShortWriteGoesToTheFile) {
  int ends[2] = {};
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  const UniqueFd pipe(ends[1]);
  const auto room = static_cast<std::size_t>(::fcntl(pipe.get(), F_GETPIPE_SZ));
  const Data data(kSlabBytes + 17);
  const auto writer = start_towards(pipe.get(), spec_of(data));
  writer->push(0);
  writer->push(1);  // shorter than a page: not for the ring
  const Status finished = writer->finish(make_header);
  ASSERT_TRUE(finished) << finished.error().message();
  std::string expected = expected_file(data);
  std::fill_n(expected.begin() + kHeader, room, '\0');
  EXPECT_TRUE(read_file(*vfs_, kName, kFileBytesMax).value() == expected);
}

// EINVAL, as of a file system that takes no direct writes after all: the plain write knows more.
TEST_F(UringCompletions, WhatAPlainWriteCanDoIsNoError) {
  const UniqueFd takes_numbers(::open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(takes_numbers.valid());
  const Data data(3 * kSlabBytes);
  const auto writer = start_towards(takes_numbers.get(), spec_of(data));
  push_all(*writer, 3);
  const Status finished = writer->finish(make_header);
  ASSERT_TRUE(finished) << finished.error().message();
  EXPECT_TRUE(read_file(*vfs_, kName, kFileBytesMax).value() == expected_file(data));
}

}  // namespace
}  // namespace deepfreeze
