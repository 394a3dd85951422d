// RankGroup over MPI, by the C interface of MPI 3. Header-only: the library itself knows no MPI.
//
//   MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
//   auto ranks = deepfreeze::MpiRanks::over(MPI_COMM_WORLD);
//   auto run = deepfreeze::Checkpointer::open("runs/heat", {.ranks = *ranks});
//
// Belongs to the thread that may call MPI. The last owner goes before MPI_Finalize(), on all ranks.
#pragma once

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1  // MPI's own C++ interface needs a library of its own
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "deepfreeze/ranks.h"
#include "deepfreeze/result.h"

static_assert(MPI_VERSION >= 3, "MpiRanks needs the non-blocking collectives of MPI 3");

namespace deepfreeze {

// All ranks must give equal values.
struct MpiBounds {
  std::chrono::milliseconds wait_max{600'000};  // for the other ranks, in each call
  std::uint64_t bytes_max = INT_MAX;            // of all ranks in one call; MPI counts in int
};

// Nothing waits inside MPI: each collective is started, and polled until it is done or the deadline
// passes. If the bytes are too many, every rank gets kInvalidArgument and the group stays usable.
// Any other error is the group's last: later calls return it at once. MPI can't cancel a
// collective, so end such a job by MPI_Abort().
class MpiRanks final : public RankGroup {
  struct Key {  // make_shared() needs a public constructor; nobody else can call it
    explicit Key() = default;
  };

 public:
  // Collective over `comm`, an intra-communicator, which is duplicated. kInvalidArgument: not one,
  // or MPI is not running. kTimeout: not all ranks came. kIo: MPI's own error.
  [[nodiscard]] static Result<std::shared_ptr<MpiRanks>> over(MPI_Comm comm,
                                                              const MpiBounds& bounds = {}) {
    if (const auto usable = check_usable(comm); !usable) return std::unexpected(usable.error());
    auto ranks = std::make_shared<MpiRanks>(Key{}, bounds);
    const Status joined = ranks->join(comm);
    if (!joined) return std::unexpected(joined.error());
    return ranks;
  }

  MpiRanks(Key /*over()'s*/, const MpiBounds& bounds)
      : wait_max_(bounds.wait_max),
        bytes_max_(std::min<std::uint64_t>(bounds.bytes_max, INT_MAX)),
        lent_(std::make_unique<Lent>()) {}

  ~MpiRanks() override {
    if (broken_) {
      static_cast<void>(lent_.release());  // MPI may write there as long as the process lives
    } else if (is_running()) {
      MPI_Comm_free(&lent_->comm);
    }
  }

  [[nodiscard]] std::uint32_t rank() const override { return rank_; }
  [[nodiscard]] std::uint32_t world_size() const override { return world_size_; }

  [[nodiscard]] Result<std::vector<std::string>> gather(std::string bytes) override {
    if (broken_) return std::unexpected(*broken_);
    const auto deadline = deadline_from_now();
    lent_->own_size = bytes.size();
    lent_->own = std::move(bytes);
    // All ranks learn all sizes, so that all refuse alike.
    if (auto known = exchange_sizes(deadline); !known) return std::unexpected(known.error());
    if (const auto total = total_size(); total > bytes_max_) {
      return std::unexpected(too_many("gather", total));
    }
    if (auto moved = gather_bytes(deadline); !moved) return std::unexpected(moved.error());
    return rank_ == 0 ? split() : std::vector<std::string>();
  }

  [[nodiscard]] Result<std::string> scatter(std::vector<std::string> bytes) override {
    if (broken_) return std::unexpected(*broken_);
    const auto deadline = deadline_from_now();
    const std::optional<Error> refusal = rank_ == 0 ? join_up(bytes) : std::nullopt;
    if (auto known = scatter_sizes(deadline); !known) return std::unexpected(known.error());
    if (refusal) return std::unexpected(*refusal);
    if (lent_->own_size == kRefused) {
      return std::unexpected(Error(ErrorCode::kInvalidArgument,
                                   "scatter over MPI: rank 0 gave no "
                                   "message that could be sent"));
    }
    lent_->own.resize(lent_->own_size);
    if (auto moved = scatter_bytes(deadline); !moved) return std::unexpected(moved.error());
    return std::move(lent_->own);
  }

 private:
  using Deadline = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::microseconds kPauseMin{20};
  static constexpr std::chrono::microseconds kPauseMax{2'000};
  static constexpr std::uint64_t kRefused = ~std::uint64_t{0};  // in the place of a size

  // The memory that MPI reads and writes until a collective is done.
  struct Lent {
    MPI_Comm comm = MPI_COMM_NULL;
    std::uint64_t own_size = 0;
    std::vector<std::uint64_t> sizes;  // by rank
    std::vector<int> counts;           // the same, as MPI counts
    std::vector<int> places;           // of each rank's bytes in `all`
    std::string own;
    std::string all;
  };

  [[nodiscard]] static bool is_running() {
    int initialized = 0;
    int finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    return initialized != 0 && finalized == 0;
  }

  [[nodiscard]] static Status check_usable(MPI_Comm comm) {
    const auto refuse = [](std::string why) -> Status {
      return std::unexpected(Error(ErrorCode::kInvalidArgument, "ranks over MPI: " + why));
    };
    if (!is_running()) return refuse("MPI is not initialised, or finalised already");
    if (comm == MPI_COMM_NULL) return refuse("there is no communicator");
    int inter = 0;
    MPI_Comm_test_inter(comm, &inter);
    return inter == 0 ? Status() : refuse("an inter-communicator has no rank 0 of all");
  }

  [[nodiscard]] Status join(MPI_Comm comm) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int started = MPI_Comm_idup(comm, &lent_->comm, &request);
    const Status joined = finish("MPI_Comm_idup", started, request, deadline_from_now());
    if (!joined) return joined;
    MPI_Comm_set_errhandler(lent_->comm, MPI_ERRORS_RETURN);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(lent_->comm, &rank);
    MPI_Comm_size(lent_->comm, &size);
    rank_ = static_cast<std::uint32_t>(rank);
    world_size_ = static_cast<std::uint32_t>(size);
    lent_->sizes.resize(world_size_);
    return {};
  }

  [[nodiscard]] Status exchange_sizes(Deadline deadline) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int started = MPI_Iallgather(&lent_->own_size, 1, MPI_UINT64_T, lent_->sizes.data(), 1,
                                       MPI_UINT64_T, lent_->comm, &request);
    return finish("MPI_Iallgather", started, request, deadline);
  }

  [[nodiscard]] Status gather_bytes(Deadline deadline) {
    if (rank_ == 0) lay_out();
    MPI_Request request = MPI_REQUEST_NULL;
    const int started = MPI_Igatherv(lent_->own.data(), static_cast<int>(lent_->own.size()),
                                     MPI_BYTE, lent_->all.data(), lent_->counts.data(),
                                     lent_->places.data(), MPI_BYTE, 0, lent_->comm, &request);
    return finish("MPI_Igatherv", started, request, deadline);
  }

  [[nodiscard]] Status scatter_sizes(Deadline deadline) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int started = MPI_Iscatter(lent_->sizes.data(), 1, MPI_UINT64_T, &lent_->own_size, 1,
                                     MPI_UINT64_T, 0, lent_->comm, &request);
    return finish("MPI_Iscatter", started, request, deadline);
  }

  [[nodiscard]] Status scatter_bytes(Deadline deadline) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int started = MPI_Iscatterv(
        lent_->all.data(), lent_->counts.data(), lent_->places.data(), MPI_BYTE, lent_->own.data(),
        static_cast<int>(lent_->own.size()), MPI_BYTE, 0, lent_->comm, &request);
    return finish("MPI_Iscatterv", started, request, deadline);
  }

  // Rank 0's messages end to end, or why they can't be sent: the others then get kRefused.
  [[nodiscard]] std::optional<Error> join_up(std::span<const std::string> bytes) {
    lent_->sizes.assign(world_size_, kRefused);
    if (bytes.size() != world_size_) {
      return Error(ErrorCode::kInvalidArgument,
                   "scatter over MPI: " + std::to_string(bytes.size()) + " messages for " +
                       std::to_string(world_size_) + " ranks");
    }
    std::uint64_t total = 0;
    for (const std::string& each : bytes) total += each.size();
    if (total > bytes_max_) return too_many("scatter", total);
    std::ranges::transform(bytes, lent_->sizes.begin(), &std::string::size);
    lay_out();
    lent_->all.clear();
    for (const std::string& each : bytes) lent_->all += each;
    return std::nullopt;
  }

  [[nodiscard]] std::uint64_t total_size() const {
    return std::accumulate(lent_->sizes.begin(), lent_->sizes.end(), std::uint64_t{0});
  }

  // Memory for all, at most bytes_max_, so that int holds every count and place.
  void lay_out() {
    lent_->counts.assign(lent_->sizes.begin(), lent_->sizes.end());
    lent_->places.resize(world_size_);
    std::exclusive_scan(lent_->counts.begin(), lent_->counts.end(), lent_->places.begin(), 0);
    lent_->all.resize(total_size());
  }

  [[nodiscard]] std::vector<std::string> split() {
    const std::string all = std::exchange(lent_->all, {});
    std::vector<std::string> parts;
    parts.reserve(world_size_);
    std::size_t place = 0;
    for (const std::uint64_t size : lent_->sizes) {
      parts.push_back(all.substr(place, size));
      place += size;
    }
    return parts;
  }

  [[nodiscard]] Deadline deadline_from_now() const {
    return std::chrono::steady_clock::now() + wait_max_;
  }

  [[nodiscard]] Status finish(std::string_view call, int started, MPI_Request& request,
                              Deadline deadline) {
    if (started != MPI_SUCCESS) return break_off(call, started);
    auto pause = kPauseMin;
    for (;;) {
      int done = 0;
      const int tested = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (tested != MPI_SUCCESS) return break_off(call, tested);
      if (done != 0) return {};
      if (std::chrono::steady_clock::now() >= deadline) return give_up(call);
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kPauseMax);
    }
  }

  [[nodiscard]] Status break_off(std::string_view call, int code) {
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) length = 0;
    std::string cause(text.data(), static_cast<std::size_t>(length));
    if (cause.empty()) cause = "MPI error " + std::to_string(code);
    broken_ = Error(ErrorCode::kIo, std::string(call) + ": " + cause);
    return std::unexpected(*broken_);
  }

  [[nodiscard]] Status give_up(std::string_view call) {
    broken_ = Error(ErrorCode::kTimeout, std::string(call) + ": not all ranks came within " +
                                             std::to_string(wait_max_.count()) + " ms");
    return std::unexpected(*broken_);
  }

  [[nodiscard]] Error too_many(std::string_view call, std::uint64_t total) const {
    return {ErrorCode::kInvalidArgument, std::string(call) + " over MPI: " + std::to_string(total) +
                                             " bytes of all ranks, " + std::to_string(bytes_max_) +
                                             " at most"};
  }

  std::chrono::milliseconds wait_max_;
  std::uint64_t bytes_max_;
  std::uint32_t rank_ = 0;
  std::uint32_t world_size_ = 1;
  std::optional<Error> broken_;  // the ranks may be out of step, and MPI still at its work
  std::unique_ptr<Lent> lent_;
};

}  // namespace deepfreeze
