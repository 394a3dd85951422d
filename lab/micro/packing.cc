// Packing of real checkpoints, and their flushes over links of several rates; one JSON document.
// `deepfreeze_packing RUN SCRATCH ROUNDS SEED GB/S...`: lab/experiments/packing calls it.
//
// The link is a tier whose uploads take as long as a line of that rate does: bytes leave one after
// the other, and nothing is saved up while none come. They are written to `SCRATCH` meanwhile,
// which is emptied before each flush.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/try.h"
#include "codec/crc32c.h"
#include "manifest/history.h"
#include "manifest/sealed_parts.h"
#include "packed/block_packer.h"
#include "restore/opened_run.h"
#include "storage/posix_vfs.h"
#include "storage/vfs_tier_store.h"
#include "tiering/flush.h"
#include "tiering/history_copy.h"

namespace deepfreeze {
namespace {

double seconds_of(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}
double thread_seconds() { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }
double wall_seconds() { return seconds_of(CLOCK_MONOTONIC); }

class Line {
 public:
  explicit Line(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}
  void take(std::size_t bytes) {
    free_at_ = std::max(free_at_, wall_seconds()) + static_cast<double>(bytes) / bytes_per_second_;
  }
  // Until the line has taken all bytes. A sleep would overshoot the last stretch: a loop spends it.
  void wait() const {
    const double left = free_at_ - wall_seconds() - 0.0002;
    if (left > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left));
    while (wall_seconds() < free_at_) std::this_thread::yield();
  }

 private:
  const double bytes_per_second_;
  double free_at_ = 0;
};

// A tier behind the line.
class LinkedStore final : public TierStore {
 public:
  LinkedStore(Vfs& vfs, double bytes_per_second) : below_(vfs), line_(bytes_per_second) {}
  Result<std::unique_ptr<Upload>> begin(std::string_view name, std::uint64_t bytes,
                                        IfTaken if_taken) override {
    DF_TRY(auto upload, below_.begin(name, bytes, if_taken));
    return std::make_unique<Linked>(*this, std::move(upload));
  }
  Status settle(std::string_view directory) override { return below_.settle(directory); }
  [[nodiscard]] Vfs& view() override { return below_.view(); }

 private:
  class Linked final : public Upload {
   public:
    Linked(LinkedStore& store, std::unique_ptr<Upload> below)
        : store_(store), below_(std::move(below)) {}
    Status append(std::span<const std::byte> bytes, std::optional<std::uint32_t> crc) override {
      store_.line_.take(bytes.size());
      const Status appended = below_->append(bytes, crc);
      store_.line_.wait();
      return appended;
    }
    void end_here() override { below_->end_here(); }
    Status finish() override { return below_->finish(); }

   private:
    LinkedStore& store_;
    const std::unique_ptr<Upload> below_;
  };

  VfsTierStore below_;
  Line line_;
};

struct Packed {
  std::uint64_t plain = 0;
  std::uint64_t stored = 0;
  double pack_seconds = 0;    // of a core; unpacking and comparing included, as in a flush
  double unpack_seconds = 0;  // of a core
};

Status pack_file(Vfs& vfs, const std::string& path, Packed& sum) {
  DF_TRY(const PartHeader part, read_part_header(vfs, path));
  DF_TRY(const auto file, vfs.open_read(path, Access::kBuffered));
  std::vector<std::byte> data(part.header.data_bytes);
  DF_TRY(const std::size_t count, file->read_at(part.file_bytes - data.size(), data));
  if (count != data.size()) return fail(ErrorCode::kIo, path + " is too short");
  DF_TRY(BlockPacker packer, BlockPacker::make(part.header));
  DF_TRY(Unpacker unpacker, Unpacker::make());
  std::vector<std::byte> stored;
  std::vector<std::byte> back(kBlockBytes);
  for (std::uint64_t at = 0; at < data.size(); at += kBlockBytes) {
    const std::uint64_t block = at / kBlockBytes;
    const auto plain = std::span(data).subspan(at, std::min(kBlockBytes, data.size() - at));
    const double begun = thread_seconds();
    const auto packed = packer.store(block, plain, part.header.block_crcs[block]);
    const double ended = thread_seconds();
    sum.pack_seconds += ended - begun;
    sum.plain += plain.size();
    sum.stored += packed.bytes.size();
    if (packed.bytes.size() == plain.size()) continue;
    DF_TRY_VOID(unpacker.unpack(packed.bytes, std::span(back).first(plain.size())));
    sum.unpack_seconds += thread_seconds() - ended;
  }
  return {};
}

// The time of a flush of all checkpoints to a new tier, by one judge, as one program has it.
Result<double> flush_all(const OpenedRun& run, const std::string& scratch, double rate,
                         PackingJudge* judge, std::uint64_t& sent) {
  std::error_code ignored;
  std::filesystem::remove_all(scratch, ignored);
  std::filesystem::create_directories(scratch);
  DF_TRY(const auto far, open_posix_vfs(scratch));
  LinkedStore store(*far, rate);
  DF_TRY_VOID(copy_history(run.listing, *run.vfs, store));
  RateLimit unlimited(0);
  const std::atomic<bool> never{false};
  const double begun = wall_seconds();
  for (const Manifest& manifest : newest_first(run.listing)) {
    DF_TRY_VOID(flush_attempt(*run.vfs, manifest, store,
                              {.rate = unlimited,
                               .stop = never,
                               .on_bytes = [&](std::uint64_t, std::uint64_t more) { sent += more; },
                               .packing = judge},
                              run.vfs.get()));
  }
  return wall_seconds() - begun;
}

Status measure(const std::vector<std::string>& arguments) {
  DF_TRY(const OpenedRun run, open_run(arguments[0]));
  Packed sum;
  for (const Manifest& manifest : newest_first(run.listing)) {
    for (const ManifestFile& file : manifest.files) {
      DF_TRY_VOID(pack_file(*run.vfs, path_in_run(manifest, file.name), sum));
    }
  }
  fmt::print("{{\"plain\": {}, \"stored\": {}, \"pack_seconds\": {}, \"unpack_seconds\": {},\n",
             sum.plain, sum.stored, sum.pack_seconds, sum.unpack_seconds);
  fmt::print("\"flushes\": [");
  std::mt19937_64 random(std::stoull(arguments[3]));
  const char* separator = "\n";
  for (std::size_t at = 4; at < arguments.size(); ++at) {
    for (int round = 0; round < std::stoi(arguments[2]); ++round) {
      const bool is_first_packed = random() % 2 == 0;
      for (const bool packs : {is_first_packed, !is_first_packed}) {
        PackingJudge judge;
        std::uint64_t sent = 0;
        DF_TRY(const double seconds, flush_all(run, arguments[1], std::stod(arguments[at]) * 1e9,
                                               packs ? &judge : nullptr, sent));
        fmt::print(
            "{}{{\"link\": {}, \"round\": {}, \"compress\": {}, \"seconds\": {}, "
            "\"sent\": {}}}",
            separator, arguments[at], round, packs ? "\"auto\"" : "null", seconds, sent);
        separator = ",\n";
      }
    }
  }
  fmt::print("]}}\n");
  return {};
}

}  // namespace
}  // namespace deepfreeze

int main(int count, char** values) {
  const std::vector<std::string> arguments(values + 1, values + count);
  if (arguments.size() < 5) {
    std::fputs("deepfreeze_packing RUN SCRATCH ROUNDS SEED GB/S...\n", stderr);
    return 2;
  }
  const deepfreeze::Status done = deepfreeze::measure(arguments);
  if (!done) std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return done ? 0 : 1;
}
