// Steps 5 and 6 of the commit protocol by rank 0: every rank's header is read and checked, and the
// manifest published. In memory, so the disk's time is not in it.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "base/try.h"
#include "manifest/commit.h"
#include "samples.h"
#include "storage/posix_vfs.h"
#include "suite.h"

namespace deepfreeze {
namespace {

namespace fs = std::filesystem;

const std::vector<std::int64_t> kRanks{1, 1'024, 10'240};
constexpr std::size_t kTensors = 10;  // of each rank: its shards
constexpr std::uint64_t kRows = 16;   // of each shard

TensorSpec shard_of(std::size_t tensor, std::uint32_t rank, std::uint32_t ranks) {
  return {.key = "layers." + std::to_string(tensor) + ".weight",
          .dtype = DType::kF32,
          .shape = {kRows},
          .box = Box{{rank * kRows}, {kRows}},
          .global_shape = {ranks * kRows}};
}

ShardHeader header_of(const Identity& identity) {
  ShardHeader header{.identity = identity};
  for (std::size_t i = 0; i < kTensors; ++i) {
    const TensorSpec spec = shard_of(i, identity.part.rank, identity.part.world_size);
    const std::uint64_t end = header.data_bytes + kRows * sizeof(float);
    header.entries.push_back({.spec = spec, .extent = {header.data_bytes, end}});
    header.data_bytes = end;
  }
  header.block_crcs.resize(block_count(header.data_bytes));
  return header;
}

// A run of one attempt whose parts are all sealed.
class SealedAttempt {
 public:
  [[nodiscard]] static Result<std::unique_ptr<SealedAttempt>> make(std::uint32_t ranks) {
    auto made = std::make_unique<SealedAttempt>(ranks);
    DF_TRY(made->vfs_, open_posix_vfs(made->place_));
    DF_TRY_VOID(begin_attempt(*made->vfs_, made->name()));
    for (std::uint32_t rank = 0; rank < ranks; ++rank) DF_TRY_VOID(made->write_part(rank));
    return made;
  }

  explicit SealedAttempt(std::uint32_t ranks)
      : place_(fs::path("/dev/shm") / ("deepfreeze-commit-" + std::to_string(::getpid()))),
        identity_(sample_identity()) {
    identity_.part = {.rank = 0, .world_size = ranks};
    fs::remove_all(place_);
    fs::create_directories(place_);
  }
  SealedAttempt(const SealedAttempt&) = delete;
  SealedAttempt& operator=(const SealedAttempt&) = delete;
  ~SealedAttempt() { fs::remove_all(place_); }

  [[nodiscard]] Status commit() const {
    const CommitRequest request{
        .identity = identity_, .world_size = identity_.part.world_size, .own = {}};
    const auto committed = commit_attempt(*vfs_, request);
    return committed ? Status{} : std::unexpected(committed.error());
  }
  void take_back() const { fs::remove(place_ / attempt_dir_name(name()) / kManifestFile); }

 private:
  [[nodiscard]] AttemptName name() const { return {identity_.step, identity_.attempt_id}; }

  [[nodiscard]] Status write_part(std::uint32_t rank) const {
    Identity own = identity_;
    own.part.rank = rank;
    const ShardHeader header = header_of(own);
    DF_TRY(const EncodedHeader encoded, encode_header(header));
    const fs::path path = place_ / attempt_dir_name(name()) / sealed_file_name(own.part);
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(encoded.bytes.data()),
               static_cast<std::streamsize>(encoded.bytes.size()));
    file << std::string(header.data_bytes, '\0');
    if (file.flush()) return {};
    return fail(ErrorCode::kIo, "write " + path.string());
  }

  const fs::path place_;
  Identity identity_;
  std::unique_ptr<Vfs> vfs_;
};

void commit(benchmark::State& state, std::size_t ranks) {
  const auto attempt = SealedAttempt::make(static_cast<std::uint32_t>(ranks));
  if (!attempt) return refuse(state, attempt.error());
  for (auto _ : state) {
    const Status committed = (*attempt)->commit();
    if (!committed) return refuse(state, committed.error());
    state.PauseTiming();
    (*attempt)->take_back();
    state.ResumeTiming();
  }
  count_items(state, ranks);
}

}  // namespace

void add_commit(const Suite& suite) { suite.add("commit/sealed_parts", kRanks, commit); }

}  // namespace deepfreeze
