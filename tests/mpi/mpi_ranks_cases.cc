// The promises of MpiRanks, on the ranks of one job: `mpirun -n 3 mpi_ranks_cases`. Every rank says
// "good CASE" or "bad CASE: WHY"; the job fails if one was bad. At least two ranks.
#include "deepfreeze/mpi_ranks.h"  // first: it includes what it uses

#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

// Counts calls of MPI_Iallgather, with which every gather begins.
int g_refuse_calls = 0;  // the next so many
int g_calls = 0;         // so far

}  // namespace

// In place of MPI's own, by its profiling interface: an error of MPI, to order.
extern "C" int MPI_Iallgather(const void* sent, int sent_count, MPI_Datatype sent_type, void* into,
                              int into_count, MPI_Datatype into_type, MPI_Comm comm,
                              MPI_Request* request) {
  ++g_calls;
  if (g_refuse_calls > 0) {
    --g_refuse_calls;
    return MPI_ERR_NO_MEM;
  }
  return PMPI_Iallgather(sent, sent_count, sent_type, into, into_count, into_type, comm, request);
}

namespace {

using deepfreeze::ErrorCode;
using deepfreeze::MpiBounds;
using deepfreeze::MpiRanks;
using std::chrono::milliseconds;

constexpr milliseconds kWaitMax{30'000};   // if all come
constexpr milliseconds kShortWait{1'000};  // if one does not
constexpr std::uint64_t kSmallBound = 1'000;

struct World {
  int rank = 0;
  int size = 1;
};

// Empty: all was as it should be.
using Verdict = std::string;

std::string message(int from, std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 7 + i / 251);
  if (!text.empty()) text.front() = static_cast<char>(from);
  return text;
}

std::size_t size_of(int round, int rank) {
  constexpr std::array<std::size_t, 5> kSizes = {0, 1, 100, 70'000, 3'000'001};
  return kSizes.at(static_cast<std::size_t>(round + rank) % kSizes.size());
}

std::vector<std::string> all_messages(const World& world, int round) {
  std::vector<std::string> messages;
  for (int rank = 0; rank < world.size; ++rank) {
    messages.push_back(message(rank, size_of(round, rank)));
  }
  return messages;
}

Verdict check_round(MpiRanks& ranks, const World& world, int round) {
  const auto expected = all_messages(world, round);
  const auto& own = expected[static_cast<std::size_t>(world.rank)];
  const auto gathered = ranks.gather(own);
  if (!gathered) return gathered.error().message();
  if (*gathered != (world.rank == 0 ? expected : std::vector<std::string>())) {
    return "gathered other bytes in round " + std::to_string(round);
  }
  const auto scattered = ranks.scatter(*gathered);
  if (!scattered) return scattered.error().message();
  return *scattered == own ? Verdict() : "scattered other bytes in round " + std::to_string(round);
}

template <class T>
Verdict expect_code(const deepfreeze::Result<T>& found, ErrorCode code, std::string_view words) {
  if (found) return "no error where there should be one: " + std::string(words);
  if (found.error().code() != code) return "another code: " + found.error().message();
  const bool says_it = found.error().message().find(words) != std::string::npos;
  return says_it ? Verdict() : "another message: " + found.error().message();
}

Verdict bytes_come_back_by_rank(const World& world) {
  const auto ranks = MpiRanks::over(MPI_COMM_WORLD, {.wait_max = kWaitMax});
  if (!ranks) return ranks.error().message();
  if ((*ranks)->rank() != static_cast<std::uint32_t>(world.rank)) return "another rank";
  if ((*ranks)->world_size() != static_cast<std::uint32_t>(world.size)) return "another size";
  for (int round = 0; round < 10; ++round) {
    if (auto wrong = check_round(**ranks, world, round); !wrong.empty()) return wrong;
  }
  return {};
}

Verdict messages_of_the_caller_stay_apart(const World& world) {
  const auto ranks = MpiRanks::over(MPI_COMM_WORLD, {.wait_max = kWaitMax});
  if (!ranks) return ranks.error().message();
  int sent = 40 + world.rank;
  int received = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  const int from = (world.rank + world.size - 1) % world.size;
  MPI_Irecv(&received, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
  const Verdict wrong = check_round(**ranks, world, 3);
  MPI_Send(&sent, 1, MPI_INT, (world.rank + 1) % world.size, 0, MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  if (!wrong.empty()) return wrong;
  return received == 40 + from ? Verdict() : "received what belongs to the group";
}

Verdict too_many_bytes_are_refused_by_all(const World& world) {
  const auto ranks =
      MpiRanks::over(MPI_COMM_WORLD, {.wait_max = kWaitMax, .bytes_max = kSmallBound});
  if (!ranks) return ranks.error().message();
  const std::string large = message(1, kSmallBound + 1);
  const auto gathered = (*ranks)->gather(world.rank == 1 ? large : "");
  auto wrong = expect_code(gathered, ErrorCode::kInvalidArgument, "1001 bytes of all ranks, 1000");
  if (!wrong.empty()) return wrong;

  std::vector<std::string> messages;
  if (world.rank == 0) messages.assign(static_cast<std::size_t>(world.size), large);
  const auto many = (*ranks)->scatter(messages);
  wrong = expect_code(many, ErrorCode::kInvalidArgument, "scatter over MPI: ");
  if (!wrong.empty()) return wrong;
  const auto too_few = (*ranks)->scatter({});
  wrong = expect_code(too_few, ErrorCode::kInvalidArgument, "scatter over MPI: ");
  if (!wrong.empty()) return wrong;

  const auto after = (*ranks)->gather("x");
  if (!after) return "not usable after a refusal: " + after.error().message();
  return after->size() == (world.rank == 0 ? static_cast<std::size_t>(world.size) : 0)
             ? Verdict()
             : "another number of messages after a refusal";
}

Verdict an_error_of_mpi_is_told_and_is_the_last(const World&) {
  const auto ranks = MpiRanks::over(MPI_COMM_WORLD, {.wait_max = kWaitMax});
  if (!ranks) return ranks.error().message();
  g_refuse_calls = 1;
  auto wrong = expect_code((*ranks)->gather("x"), ErrorCode::kIo, "MPI_Iallgather: MPI_ERR_NO_MEM");
  if (!wrong.empty()) return wrong;
  wrong = expect_code((*ranks)->gather("x"), ErrorCode::kIo, "MPI_Iallgather");
  if (!wrong.empty()) return wrong;
  return expect_code((*ranks)->scatter({}), ErrorCode::kIo, "MPI_Iallgather");
}

// The last rank comes when the others have given up: its messages then go into memory that must
// still be there.
Verdict a_rank_that_does_not_come_is_a_timeout(const World& world) {
  MPI_Barrier(MPI_COMM_WORLD);
  auto ranks = MpiRanks::over(MPI_COMM_WORLD, {.wait_max = kShortWait});
  if (!ranks) return ranks.error().message();
  const bool is_late = world.rank + 1 == world.size;
  Verdict wrong;
  if (!is_late) {
    wrong = expect_code((*ranks)->gather(message(world.rank, 5'000)), ErrorCode::kTimeout,
                        "not all ranks came within 1000 ms");
    const int calls = g_calls;
    if (wrong.empty()) wrong = expect_code((*ranks)->gather("x"), ErrorCode::kTimeout, "not all");
    if (wrong.empty() && g_calls != calls) wrong = "it waits again for who did not come";
    *ranks = nullptr;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (is_late) static_cast<void>((*ranks)->gather(message(world.rank, 5'000)));
  MPI_Barrier(MPI_COMM_WORLD);
  return wrong;
}

Verdict who_does_not_join_is_a_timeout(const World& world) {
  MPI_Comm apart = MPI_COMM_NULL;  // its collectives may come in another order
  MPI_Comm_dup(MPI_COMM_WORLD, &apart);
  const bool is_late = world.rank + 1 == world.size;
  Verdict wrong;
  if (!is_late) {
    wrong = expect_code(MpiRanks::over(apart, {.wait_max = kShortWait}), ErrorCode::kTimeout,
                        "MPI_Comm_idup: not all ranks came");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (is_late) static_cast<void>(MpiRanks::over(apart, {.wait_max = kShortWait}));
  MPI_Barrier(MPI_COMM_WORLD);
  return wrong;
}

Verdict what_is_no_group_is_refused(const World& world) {
  const auto none = MpiRanks::over(MPI_COMM_NULL);
  auto wrong = expect_code(none, ErrorCode::kInvalidArgument, "there is no communicator");
  if (!wrong.empty()) return wrong;
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, world.rank == 0 ? 0 : 1, world.rank, &half);
  MPI_Comm inter = MPI_COMM_NULL;
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, world.rank == 0 ? 1 : 0, 0, &inter);
  wrong = expect_code(MpiRanks::over(inter), ErrorCode::kInvalidArgument, "inter-communicator");
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
  return wrong;
}

struct Case {
  const char* name;
  Verdict (*check)(const World&);
};

constexpr std::array kCases = {
    Case{"bytes come back by rank", bytes_come_back_by_rank},
    Case{"messages of the caller stay apart", messages_of_the_caller_stay_apart},
    Case{"too many bytes are refused by all", too_many_bytes_are_refused_by_all},
    Case{"an error of MPI is told", an_error_of_mpi_is_told_and_is_the_last},
    Case{"what is no group is refused", what_is_no_group_is_refused},
    Case{"a rank that does not come is a timeout", a_rank_that_does_not_come_is_a_timeout},
    Case{"who does not join is a timeout", who_does_not_join_is_a_timeout},
};

bool report(const char* name, const Verdict& wrong) {
  if (wrong.empty()) {
    std::printf("good %s\n", name);
  } else {
    std::printf("bad %s: %s\n", name, wrong.c_str());
  }
  std::fflush(stdout);
  return wrong.empty();
}

Verdict outside_of_mpi() {
  return expect_code(MpiRanks::over(MPI_COMM_NULL), ErrorCode::kInvalidArgument,
                     "MPI is not initialised, or finalised");
}

}  // namespace

int main(int argc, char** argv) {
  bool good = report("before MPI_Init", outside_of_mpi());
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  World world;
  MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world.size);
  for (const Case& each : kCases) good = report(each.name, each.check(world)) && good;
  MPI_Finalize();
  good = report("after MPI_Finalize", outside_of_mpi()) && good;
  return good ? 0 : 1;
}
