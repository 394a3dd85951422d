// The order of operations and the effect of an error on it, over a simulated disk. The behaviour of
// every writer over real files is in part_writer_modes_test.cc.
#include "pipeline/part_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include "arena/arena.h"
#include "base/fail_point.h"
#include "base/try.h"
#include "pipeline/part_fixture.h"
#include "pipeline/threaded_part_writer.h"
#include "staging/capture_session.h"
#include "staging/copier_pool.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

Result<std::unique_ptr<PartWriter>> start(Vfs& vfs, PartSpec spec, std::size_t thread_count = 2) {
  DF_TRY(auto part, PartFiles::create(vfs, std::move(spec), Access::kDirect));
  return make_threaded_part_writer(std::move(part), thread_count);
}

Status write_part(Vfs& vfs, const Data& data, std::size_t thread_count = 2) {
  DF_TRY(const auto writer, start(vfs, spec_of(data), thread_count));
  push_all(*writer, data.slabs());
  return writer->finish(make_header);
}

// Nothing is there that a reader would take for a header.
void expect_headerless(const SimDisk& disk) {
  const auto text = disk.contents(kName);
  if (!text) return;
  EXPECT_EQ(text->substr(0, kHeader).find_first_not_of('\0'), std::string::npos);
}

TEST(PartWriter, AcceptsSlabsFromManyThreadsInAnyOrder) {
  for (const std::size_t thread_count : {0U, 1U, 3U, 100U}) {
    SimDisk disk;
    const Data data(5 * kSlabBytes + 1);
    const auto writer = start(disk, spec_of(data), thread_count);
    ASSERT_TRUE(writer);
    {
      std::vector<std::jthread> pushers;
      for (const std::size_t slab : {3U, 0U, 5U, 1U, 4U, 2U}) {
        pushers.emplace_back([&writer, slab] { (*writer)->push(slab); });
      }
    }
    ASSERT_TRUE((*writer)->finish(make_header));
    EXPECT_TRUE(disk.contents(kName) == expected_file(data));
  }
}

// The order on which the commit protocol rests: all data synced before any byte of the header.
TEST(PartWriter, SyncsTheDataBeforeItWritesTheHeader) {
  SimDisk disk;
  ASSERT_TRUE(write_part(disk, Data(kThreeSlabs)));
  std::vector<SimOperationKind> kinds;
  for (const SimOperation& operation : disk.operations()) {
    // Slabs count as one step.
    if (kinds.empty() || kinds.back() != operation.kind) kinds.push_back(operation.kind);
  }
  using enum SimOperationKind;
  EXPECT_EQ(kinds, (std::vector{kCreate, kPreallocate, kWrite, kTruncate, kSync, kWrite, kSync}));
}

// Operations on a disk for three slabs: 0 create, 1 preallocate, then four writes (the odd end is
// one of its own), truncate, sync, header, sync.
TEST(PartWriter, AnErrorAnywhereIsReportedAndLeavesNoHeader) {
  const Data data(kThreeSlabs);
  const std::size_t header_write = [&] {
    SimDisk disk;
    EXPECT_TRUE(write_part(disk, data));
    return disk.operation_count() - 2;
  }();
  ASSERT_EQ(header_write, 8U);
  for (std::size_t index = 0; index <= header_write + 1; ++index) {
    SCOPED_TRACE(testing::Message() << "operation " << index);
    SimDisk disk;
    disk.fail_at(index, EIO);
    const Status failed = write_part(disk, data);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().os_errno(), EIO) << failed.error().message();
    EXPECT_NE(failed.error().message().find(kName), std::string::npos) << failed.error().message();
    if (index <= header_write) expect_headerless(disk);
    // Nothing but writes that were under way, and no sync, comes after the failure.
    for (const SimOperation& later : disk.operations()) {
      EXPECT_TRUE(later.index <= index || later.kind == SimOperationKind::kWrite) << later.index;
    }
    EXPECT_EQ(disk.open_files(), 0U);
  }
}

TEST(PartWriter, TheFirstErrorWins) {
  SimDisk disk;
  disk.fail_at(2, ENOSPC);
  for (std::size_t later = 3; later < 10; ++later) disk.fail_at(later, EIO);
  const Status failed = write_part(disk, Data(kThreeSlabs), 1);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), ErrorCode::kNoSpace) << failed.error().message();
  EXPECT_EQ(disk.operation_count(), 3U);
}

TEST(PartWriter, AFullDiskShowsBeforeAnyWrite) {
  SimDisk disk;
  disk.set_bytes_free(kSlabBytes);
  const Data data(kThreeSlabs);
  const auto writer = start(disk, spec_of(data));
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code(), ErrorCode::kNoSpace) << writer.error().message();
  EXPECT_EQ(disk.bytes_written(), 0U);
  EXPECT_EQ(disk.open_files(), 0U);
}

TEST(PartWriter, ATakenNameIsRefusedAndTheFileUntouched) {
  SimDisk disk;
  disk.plant(kName, "of another attempt");
  const Status failed = write_part(disk, Data(100));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), ErrorCode::kExists);
  EXPECT_EQ(disk.contents(kName), "of another attempt");
}

TEST(PartWriter, CancelMakesFinishReturnCancelled) {
  SimDisk disk;
  const Data data(kThreeSlabs);
  const auto writer = start(disk, spec_of(data));
  ASSERT_TRUE(writer);
  (*writer)->push(0);
  std::jthread([&writer] { (*writer)->cancel(); }).join();
  (*writer)->push(1);  // dropped, and does not block
  bool asked_for_header = false;
  const Status finished = (*writer)->finish([&asked_for_header](std::size_t file) {
    asked_for_header = true;
    return make_header(file);
  });
  EXPECT_FALSE(asked_for_header);
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().code(), ErrorCode::kCancelled);
  expect_headerless(disk);
}

TEST(PartWriter, WhatWasGivenUpIsNotSyncedFirst) {
  SimDisk disk;
  const Data data(kThreeSlabs);
  std::atomic<std::size_t> written{0};
  PartSpec spec = spec_of(data);
  spec.on_slab_free = [&written](std::size_t) {
    ++written;
    written.notify_all();
  };
  const auto writer = start(disk, std::move(spec));
  ASSERT_TRUE(writer);
  push_all(**writer, data.slabs());
  for (std::size_t seen = 0; seen < data.slabs(); seen = written) written.wait(seen);
  (*writer)->cancel();
  EXPECT_EQ((*writer)->finish(make_header).error().code(), ErrorCode::kCancelled);
  for (const SimOperation& operation : disk.operations()) {
    EXPECT_NE(operation.kind, SimOperationKind::kSync);
  }
}

TEST(PartWriter, CancelWhileTheHeaderIsMadeStillKeepsItBack) {
  SimDisk disk;
  const Data data(100);
  const auto writer = start(disk, spec_of(data));
  ASSERT_TRUE(writer);
  (*writer)->push(0);
  const Status finished = (*writer)->finish([&writer](std::size_t file) {
    (*writer)->cancel();
    return make_header(file);
  });
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().code(), ErrorCode::kCancelled);
  expect_headerless(disk);
}

TEST(PartWriter, DestroyedUnfinishedItJoinsItsThreadsAndLeavesNoHeader) {
  SimDisk disk;
  const Data data(kThreeSlabs);
  {
    const auto writer = start(disk, spec_of(data));
    ASSERT_TRUE(writer);
    push_all(**writer, data.slabs());
  }
  expect_headerless(disk);
  EXPECT_EQ(disk.open_files(), 0U);
}

TEST(PartWriter, ASlabThatNeverCameOrCameTwiceOrIsUnknownIsAnInternalError) {
  for (const std::vector<std::size_t>& pushed :
       std::vector<std::vector<std::size_t>>{{0, 2}, {0, 1, 2, 1}, {0, 1, 2, 3}, {}}) {
    SimDisk disk;
    const Data data(kThreeSlabs);
    const auto writer = start(disk, spec_of(data));
    ASSERT_TRUE(writer);
    for (const std::size_t slab : pushed) (*writer)->push(slab);
    const Status finished = (*writer)->finish(make_header);
    ASSERT_FALSE(finished);
    EXPECT_EQ(finished.error().code(), ErrorCode::kInternal) << finished.error().message();
    expect_headerless(disk);
  }
}

TEST(PartWriter, AHeaderThatFailsOrHasAnotherSizeIsNotWritten) {
  const Data data(100);
  const auto too_short = [](std::size_t) -> Result<std::vector<std::byte>> {
    return std::vector<std::byte>(kHeader - 1, std::byte{'h'});
  };
  const auto failing = [](std::size_t) -> Result<std::vector<std::byte>> {
    return std::unexpected(Error(ErrorCode::kInternal, "no header"));
  };
  for (const MakeHeader& make : {MakeHeader(too_short), MakeHeader(failing)}) {
    SimDisk disk;
    const auto writer = start(disk, spec_of(data));
    ASSERT_TRUE(writer);
    (*writer)->push(0);
    const Status finished = (*writer)->finish(make);
    ASSERT_FALSE(finished);
    EXPECT_EQ(finished.error().code(), ErrorCode::kInternal);
    expect_headerless(disk);
  }
}

TEST(PartWriter, APlanThatCantBeWrittenDirectlyIsRefused) {
  SimDisk disk;
  const Data data(kPageBytes);
  PartSpec inside_page = spec_of(data);
  inside_page.image = Image(data.bytes().subspan(1), kPageBytes - 1, kSlabBytes);
  PartSpec odd_header = spec_of(data);
  odd_header.files[0].header_bytes = 100;
  PartSpec no_header = spec_of(data);
  no_header.files[0].header_bytes = 0;
  PartSpec huge_header = spec_of(data);
  huge_header.files[0].header_bytes = round_up(kHeaderBytesMax, kPageBytes) + kPageBytes;
  PartSpec odd_slabs = spec_of(data);
  odd_slabs.image = Image(data.bytes(), kPageBytes, kPageBytes - 1);
  PartSpec no_slots = spec_of(data);
  no_slots.image = Image(data.bytes(), 2 * kSlabBytes, kSlabBytes);
  for (const PartSpec& spec :
       {inside_page, odd_header, no_header, huge_header, odd_slabs, no_slots}) {
    const auto refused = start(disk, spec);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument) << refused.error().message();
  }
  EXPECT_TRUE(disk.list_all().empty());
}

TEST(PartWriter, AsManyFilesAsSectionsOrNothingBegins) {
  SimDisk disk;
  const Data data(kPageBytes);
  PartSpec two_files = spec_of(data);
  two_files.files.push_back({"another.part", kHeader});
  for (const PartSpec& spec : {PartSpec{}, two_files}) {
    const auto refused = start(disk, spec);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::kInternal) << refused.error().message();
  }
  EXPECT_TRUE(disk.list_all().empty());
}

TEST(PartWriter, WritesSlabsWhileOthersAreStillCaptured) {
  const Data source(5 * kSlabBytes + 54'321);
  Arena arena;
  ASSERT_TRUE(arena.reserve(source.bytes().size()));
  const auto image = arena.bytes().first(source.bytes().size());
  CopierPool copiers(2);
  for (std::uint64_t round = 0; round < 3; ++round) {
    std::ranges::fill(image, std::byte{0});
    SimDisk disk;
    auto spec = spec_of(source);
    spec.image = Image(image, image.size(), kSlabBytes);
    const auto writer = start(disk, spec);
    ASSERT_TRUE(writer);
    const std::uint64_t middle = 3 * kSlabBytes + 4'711 * round;
    CaptureSession session({.image = Image(image, image.size(), kSlabBytes),
                            .block_bytes = kBlockBytes,
                            .items = {{.source = source.bytes().subspan(middle), .offset = middle},
                                      {.source = source.bytes().first(middle), .offset = 0}},
                            .on_slab = [&writer](std::size_t slab) { (*writer)->push(slab); }});
    session.release_all();
    copiers.run(session, kUnguarded);
    session.wait();
    ASSERT_TRUE((*writer)->finish(make_header));
    EXPECT_TRUE(disk.contents(kName) == expected_file(source));
  }
}

// Names as the code has them; each stops the save there, and the next save works.
TEST(PartWriter, EveryFailPointStopsTheSave) {
  const std::vector<std::string> before_header = {"part.created", "part.write", "part.data_written",
                                                  "part.data_synced"};
  const std::vector<std::string> after_header = {"part.header_written", "part.header_synced"};
  const Data data(kThreeSlabs);
  const auto stop_at = [&](const std::string& name, SimDisk& disk) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(fail_points::arm(name + "=error:EIO@1"));
    const Status failed = write_part(disk, data);
    fail_points::disarm();
    ASSERT_FALSE(failed);
    EXPECT_NE(failed.error().message().find(name), std::string::npos);
    EXPECT_TRUE(disk.remove_file(kName));
    EXPECT_TRUE(write_part(disk, data));
  };
  for (const std::string& name : after_header) {
    SimDisk disk;
    stop_at(name, disk);
  }
  for (const std::string& name : before_header) {
    SimDisk disk;
    stop_at(name, disk);
    const auto operations = disk.operations();
    const auto removed =
        std::ranges::find(operations, SimOperationKind::kRemoveFile, &SimOperation::kind);
    const auto syncs = std::count_if(
        operations.begin(), removed,
        [](const SimOperation& operation) { return operation.kind == SimOperationKind::kSync; });
    EXPECT_LE(syncs, 1) << name;  // the header's sync never happened
  }
}

}  // namespace
}  // namespace deepfreeze
