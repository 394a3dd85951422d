#include "inspect/catalogue.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <memory>
#include <new>
#include <thread>
#include <utility>

#include "base/bounded_queue.h"
#include "base/cores.h"
#include "base/named_threads.h"
#include "base/try.h"
#include "inspect/run_index.h"
#include "manifest/find_runs.h"
#include "manifest/given_tags.h"
#include "manifest/history.h"
#include "manifest/ranking.h"
#include "object/open_object.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kReadersMax = 8;

CataloguedStep catalogued(const Manifest& manifest, const CurrentLine& line, Tags tags) {
  return {.step = manifest.point.step,
          .wall_micros = manifest.annotations.wall_micros,
          .bytes = stored_bytes(manifest),
          .shared_bytes = shared_bytes(manifest),
          .abandoned = !line.contains(manifest.point),
          .metrics = manifest.annotations.metrics,
          .tags = std::move(tags)};
}

std::size_t faults_of(const RunListing& listing) {
  std::size_t faults = listing.run_rebuilt ? 1 : 0;
  for (const AttemptState& attempt : listing.attempts) {
    if (attempt.fault || (attempt.given && attempt.given->fault)) ++faults;
  }
  for (const Claim& claim : listing.claims) faults += claim.record ? 0 : 1;
  return faults;
}

Result<CataloguedRun> read_run_at(const std::filesystem::path& path, UseIndex use) {
  DF_TRY(const auto vfs, open_vfs(path.string()));
  if (use == UseIndex::kYes) return look_up(*vfs);
  DF_TRY(const RunListing listing, read_run(*vfs));
  return catalogued(listing);
}

std::unexpected<Error> no_memory(const std::filesystem::path& path) {
  return fail(ErrorCode::kNoSpace, path.string() + ": too little memory is left to list it");
}

// An exception would end the program, since threads have no caller.
void read_row(CatalogueRow& row, UseIndex use) {
  try {
    row.run = read_run_at(row.path, use);
  } catch (const std::bad_alloc&) {
    row.run = no_memory(row.path);
  }
}

// Threads that wait for rows are joined, so they must end however this function is left.
class CloseAtEnd {
 public:
  explicit CloseAtEnd(BoundedQueue<CatalogueRow*>& queue) : queue_(queue) {}
  ~CloseAtEnd() { queue_.close(); }
  CloseAtEnd(const CloseAtEnd&) = delete;
  CloseAtEnd& operator=(const CloseAtEnd&) = delete;

 private:
  BoundedQueue<CatalogueRow*>& queue_;
};

// Runs are read while others are still looked for, by this thread, which then helps.
Result<std::vector<CatalogueRow>> read_rows(const std::filesystem::path& tree, UseIndex use) {
  std::deque<CatalogueRow> rows;  // one that is added moves none of the others
  BoundedQueue<CatalogueRow*> waiting(kRunsFoundMax);
  const auto read = [&] {
    while (const auto row = waiting.pop()) read_row(**row, use);
  };
  std::vector<std::jthread> others;
  const CloseAtEnd close_at_end(waiting);  // behind the threads, so that it comes before their end
  const std::size_t readers = std::min(kReadersMax, cores_of_this_process());
  others.reserve(readers);
  // One by one: those of a call that fails for want of memory would be joined in it.
  for (std::size_t i = 1; i < readers; ++i) {
    std::vector<std::jthread> one = start_threads(1, "df-catalogue", read);
    if (one.empty()) break;
    others.push_back(std::move(one.front()));
  }
  const Status found = find_each_run(
      tree,
      [&](const std::filesystem::path& path) {
        waiting.push(&rows.emplace_back(CatalogueRow{.path = path}));
      },
      [&](const std::filesystem::path& path, const Error& error) {
        rows.push_back({.path = path, .run = std::unexpected(error)});
      });
  waiting.close();
  read();
  others.clear();  // joined: their rows can be seen now
  DF_TRY_VOID(found);
  return std::vector<CatalogueRow>(std::move_iterator(rows.begin()),
                                   std::move_iterator(rows.end()));
}

}  // namespace

CataloguedRun catalogued(const RunListing& listing) {
  CataloguedRun run{.run_id = listing.run.run_id, .parent = listing.run.parent, .steps = {}};
  run.faults = faults_of(listing);
  std::map<std::uint64_t, const AttemptState*> attempts;
  for (const AttemptState& attempt : listing.attempts) {
    if (attempt.committed()) attempts[attempt.name.attempt_id] = &attempt;
  }
  const CurrentLine line(listing);
  const std::vector<Manifest> manifests = newest_first(listing);
  for (const Manifest& manifest : manifests) {
    const AttemptState& attempt = *attempts.at(manifest.point.attempt_id);
    run.steps.push_back(catalogued(manifest, line, tags_of(attempt)));
  }
  if (const auto rule = recorded_keep(listing).value_or(Keep{}).best) {
    const auto best = place_of_best(measured(manifests, listing), {}, rule);
    if (best) run.best = *best;
  }
  for (const Claim& claim : listing.claims) {
    if (claim.record) run.claimed_micros = claim.record->wall_micros;
  }
  return run;
}

std::uint64_t bytes_of(const CataloguedRun& run) {
  std::uint64_t sum = 0;
  for (const CataloguedStep& step : run.steps) sum += step.bytes;
  return sum;
}

std::uint64_t shared_bytes_of(const CataloguedRun& run) {
  std::uint64_t sum = 0;
  for (const CataloguedStep& step : run.steps) sum += step.shared_bytes;
  return sum;
}

bool is_active(const CataloguedRun& run, std::int64_t now_micros) {
  std::int64_t last = run.claimed_micros;
  if (!run.steps.empty()) last = std::max(last, run.steps.front().wall_micros);
  return now_micros - last < kActiveMicros;
}

Result<std::vector<CatalogueRow>> read_catalogue(const std::filesystem::path& tree, UseIndex use) {
  try {
    return read_rows(tree, use);
  } catch (const std::bad_alloc&) {
    return no_memory(tree);
  }
}

}  // namespace deepfreeze
