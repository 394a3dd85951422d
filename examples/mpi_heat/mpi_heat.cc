// The heat of a plate over MPI, with checkpoints: killed at any moment, it continues from the
// newest one, with as many ranks as there are then, and ends with the same plate to the bit.
//
//   mpirun -n 3 mpi_heat --run DIR [--steps N] [--every K] [--rows R] [--columns C]
//
// Rank 0 prints "starts STEP", "durable STEP" for each save, and "plate HASH" at the end.
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "deepfreeze/deepfreeze.h"
#include "deepfreeze/mpi_ranks.h"
#include "plate.h"

namespace {

using deepfreeze::Checkpointer;
using deepfreeze::Error;
using deepfreeze::ErrorCode;
using deepfreeze::Level;
using deepfreeze::MpiRanks;
using deepfreeze::Result;
using deepfreeze::Status;

constexpr std::string_view kField = "field";
constexpr std::uint32_t kGuard = 1;  // the plate is captured while the next one is computed

struct Arguments {
  std::string run;
  std::uint64_t steps = 1'000;
  std::uint64_t every = 100;
  Size size{.rows = 512, .columns = 512};
};

std::optional<Arguments> parse(std::span<char*> words) {
  Arguments arguments;
  const std::map<std::string_view, std::uint64_t*> numbers = {
      {"--steps", &arguments.steps},
      {"--every", &arguments.every},
      {"--rows", &arguments.size.rows},
      {"--columns", &arguments.size.columns}};
  for (std::size_t i = 1; i + 1 < words.size(); i += 2) {
    const std::string_view value = words[i + 1];
    if (std::string_view(words[i]) == "--run") {
      arguments.run = value;
    } else if (const auto found = numbers.find(words[i]); found != numbers.end()) {
      const auto end = value.data() + value.size();
      if (std::from_chars(value.data(), end, *found->second).ptr != end) return std::nullopt;
    } else {
      return std::nullopt;
    }
  }
  const bool complete = words.size() % 2 == 1 && !arguments.run.empty() && arguments.every > 0;
  return complete ? std::optional(arguments) : std::nullopt;
}

void say(std::string_view what, std::uint64_t step) {
  std::printf("%.*s %llu\n", static_cast<int>(what.size()), what.data(),
              static_cast<unsigned long long>(step));
  std::fflush(stdout);
}

// This rank's rows as a part of the whole plate.
deepfreeze::Box box_of(const Plate& plate) {
  return {.offset = {plate.strip().first, 0},
          .extent = {plate.strip().count, plate.size().columns}};
}

// All that is no tensor, the same on every rank. Whole numbers stand for themselves.
std::string objects_of(std::uint64_t step, Size size) {
  return "{\"step\":" + std::to_string(step) + ",\"rows\":" + std::to_string(size.rows) +
         ",\"columns\":" + std::to_string(size.columns) + "}";
}

deepfreeze::SaveRequest request_of(std::uint64_t step, Plate& plate) {
  const deepfreeze::Box box = box_of(plate);
  deepfreeze::Tensor field{.spec = {.key = std::string(kField),
                                    .dtype = deepfreeze::DType::kF64,
                                    .shape = box.extent,
                                    .box = box,
                                    .global_shape = {plate.size().rows, plate.size().columns}},
                           .data = std::as_bytes(plate.rows()),
                           .guard = kGuard};
  return {.step = step, .tensors = {std::move(field)}, .objects = objects_of(step, plate.size())};
}

// The step from which the run continues; 0 if nothing was saved yet.
Result<std::uint64_t> restore(Checkpointer& run, Plate& plate) {
  const deepfreeze::RestoreTarget field{.key = std::string(kField),
                                        .into = std::as_writable_bytes(plate.rows()),
                                        .box = box_of(plate)};
  const auto report = deepfreeze::restore_newest(run, std::span(&field, 1));
  if (!report && report.error().code() == ErrorCode::kNotFound) return 0;
  if (!report) return std::unexpected(report.error());
  // A box can lie in a larger plate too.
  const auto opened = deepfreeze::open_checkpoint(report->restored);
  if (!opened) return std::unexpected(opened.error());
  if (opened->objects() != objects_of(report->restored.step, plate.size())) {
    return std::unexpected(Error(ErrorCode::kMismatch, "another plate: " + opened->objects()));
  }
  return report->restored.step;
}

// The save in flight. One that fails is reported, and the solver goes on: the next may succeed.
class Saving {
 public:
  Saving(Checkpointer& run, bool speaks) : run_(run), speaks_(speaks) {}

  [[nodiscard]] Status start(std::uint64_t step, Plate& plate) {
    settle();
    auto saved = run_.save(request_of(step, plate));
    if (!saved) return std::unexpected(saved.error());
    handle_ = std::move(*saved);
    return {};
  }

  void settle() {
    if (!handle_) return;
    const Status durable = handle_->wait(Level::kDurable);
    if (!durable) std::fprintf(stderr, "mpi_heat: %s\n", durable.error().message().c_str());
    if (durable && speaks_) say("durable", handle_->status().step);
    handle_.reset();
  }

 private:
  Checkpointer& run_;
  bool speaks_;
  std::optional<deepfreeze::SaveHandle> handle_;
};

Status solve(const Arguments& arguments, Checkpointer& run, Plate& plate, bool speaks) {
  const auto start = restore(run, plate);
  if (!start) return std::unexpected(start.error());
  if (speaks) say("starts", *start);
  Saving saving(run, speaks);
  for (std::uint64_t step = *start + 1; step <= arguments.steps; ++step) {
    plate.compute_next();
    run.fence(kGuard);  // the old plate is overwritten from now on
    plate.show_next();
    if (step % arguments.every != 0 && step != arguments.steps) continue;
    if (const Status saved = saving.start(step, plate); !saved) return saved;
  }
  saving.settle();
  return run.close();
}

Status carry_out(const Arguments& arguments) {
  const auto ranks = MpiRanks::over(MPI_COMM_WORLD);
  if (!ranks) return std::unexpected(ranks.error());
  const std::uint32_t rank = (*ranks)->rank();
  const std::uint32_t world_size = (*ranks)->world_size();
  if (arguments.size.rows < world_size || arguments.size.columns == 0) {
    return std::unexpected(Error(ErrorCode::kInvalidArgument, "fewer rows than ranks"));
  }
  auto run = Checkpointer::open(arguments.run, {.ranks = *ranks, .keep = {.last = 3}});
  if (!run) return std::unexpected(run.error());

  Plate plate(arguments.size, static_cast<int>(rank), static_cast<int>(world_size));
  if (const Status solved = solve(arguments, *run, plate, rank == 0); !solved) return solved;
  const auto hash = static_cast<unsigned long long>(plate.hash());
  if (rank == 0) std::printf("plate %016llx\n", hash);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;  // the main thread alone calls MPI, which every MPI allows
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  const auto arguments = parse(std::span(argv, static_cast<std::size_t>(argc)));
  const Status done = arguments
                          ? carry_out(*arguments)
                          : std::unexpected(Error(ErrorCode::kInvalidArgument,
                                                  "--run DIR [--steps N] [--every K] [--rows R] "
                                                  "[--columns C]"));
  if (!done) {
    std::fprintf(stderr, "mpi_heat: %s\n", done.error().message().c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);  // the others may wait for this rank
  }
  MPI_Finalize();
  return 0;
}
