#include "cli/run_ref.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/try.h"
#include "manifest/history.h"
#include "manifest/ranking.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kStepsNamedMax = 8;

std::string steps_text(const std::vector<Manifest>& manifests) {
  std::vector<std::uint64_t> steps;
  for (const Manifest& manifest : manifests) {
    if (steps.size() == kStepsNamedMax) break;
    steps.push_back(manifest.point.step);
  }
  const char* more = manifests.size() > steps.size() ? ", …" : "";
  return fmt::format("{}{}", fmt::join(steps, ", "), more);
}

// The last '@' that follows an existing directory, because a metric's name may contain one too;
// else the last of all.
std::size_t place_of_at(const std::string& text) {
  const std::size_t last = text.rfind('@');
  std::error_code ignored;
  for (std::size_t at = last; at != std::string::npos && at != 0; at = text.rfind('@', at - 1)) {
    if (std::filesystem::is_directory(text.substr(0, at), ignored)) return at;
  }
  return last;
}

Result<Manifest> choose_best(const OpenedRun& run, const std::vector<Manifest>& manifests,
                             const BestBy& by) {
  const auto rule = recorded_keep(run.listing).value_or(Keep{}).best;
  const auto place = place_of_best(measured(manifests, run.listing), by, rule);
  if (!place) return std::unexpected(place.error().within(run.path));
  return manifests[*place];
}

}  // namespace

Result<RunRef> parse_run_ref(const std::string& text) {
  const std::size_t at = place_of_at(text);
  std::error_code ignored;  // a path that can't be looked at is not an existing directory
  if (at == std::string::npos || std::filesystem::is_directory(text, ignored)) {
    return RunRef{.path = text, .step = {}};
  }
  RunRef ref{.path = text.substr(0, at), .step = {}, .at = true};
  const std::string_view tail = std::string_view(text).substr(at + 1);
  if (tail == "latest") return ref;
  if (const auto best = parse_best(tail)) {
    ref.best = *best;
    return ref;
  }
  std::uint64_t step = 0;
  const auto [end, code] = std::from_chars(tail.data(), tail.data() + tail.size(), step);
  if (code != std::errc{} || end != tail.data() + tail.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: '{}' is neither a step nor 'latest', 'best', 'best:METRIC' or "
                            "'best:METRIC:min|max'",
                            text, tail));
  }
  ref.step = step;
  return ref;
}

Result<std::string> whole_run_path(const std::string& text) {
  DF_TRY(const RunRef ref, parse_run_ref(text));
  if (!ref.at) return ref.path;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: this verb takes a whole run, without '@'", text));
}

Result<OpenedRun> open_whole_run(const std::string& text) {
  DF_TRY(const std::string path, whole_run_path(text));
  return open_run(path);
}

Result<Manifest> choose(const OpenedRun& run, const RunRef& ref) {
  const std::vector<Manifest> manifests = newest_first(run.listing);
  if (manifests.empty()) {
    return fail(ErrorCode::kNotFound, fmt::format("{} holds no checkpoint", run.path));
  }
  if (ref.best) return choose_best(run, manifests, *ref.best);
  if (!ref.step) return manifests.front();
  const auto found =
      std::ranges::find(manifests, *ref.step, [](const Manifest& m) { return m.point.step; });
  if (found != manifests.end()) return *found;
  return fail(ErrorCode::kNotFound,
              fmt::format("{} holds no checkpoint of step {}; newest first, it holds {}", run.path,
                          *ref.step, steps_text(manifests)));
}

Result<OpenedCheckpoint> open_checkpoint(const std::string& text) {
  DF_TRY(const RunRef ref, parse_run_ref(text));
  return list_anew_while_gone([&]() -> Result<OpenedCheckpoint> {
    DF_TRY(OpenedRun run, open_run(ref.path));
    DF_TRY(const Manifest manifest, choose(run, ref));
    DF_TRY(auto snapshot, Snapshot::open(*run.vfs, manifest));
    return OpenedCheckpoint{.run = std::move(run), .snapshot = std::move(snapshot)};
  });
}

}  // namespace deepfreeze
