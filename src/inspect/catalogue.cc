#include "inspect/catalogue.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/cores.h"
#include "base/named_threads.h"
#include "base/try.h"
#include "inspect/run_index.h"
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
  if (use == UseIndex::kYes) return look_up(*vfs, wall_micros());
  DF_TRY(const RunListing listing, read_run(*vfs));
  return catalogued(listing);
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

std::vector<CatalogueRow> read_catalogue(const std::vector<std::filesystem::path>& paths,
                                         UseIndex use) {
  std::vector<CatalogueRow> rows(paths.size());
  std::atomic<std::size_t> next = 0;
  const auto read = [&] {
    // Each row is one thread's; the threads' end makes them visible.
    for (auto i = next.fetch_add(1, std::memory_order_relaxed); i < rows.size();
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      rows[i] = {.path = paths[i], .run = read_run_at(paths[i], use)};
    }
  };
  const std::size_t readers = std::min({kReadersMax, cores_of_this_process(), rows.size()});
  const auto others =
      start_threads(readers - std::min<std::size_t>(readers, 1), "df-catalogue", read);
  read();
  return rows;
}

}  // namespace deepfreeze
