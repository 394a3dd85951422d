// deepfreeze gc RUN --keep-last N: deletes checkpoints that no rule keeps.
#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include <charconv>
#include <memory>
#include <ostream>
#include <set>

#include "base/try.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/output.h"
#include "cli/run_ref.h"
#include "manifest/history.h"
#include "manifest/retention.h"

namespace deepfreeze {
namespace {

struct GcArguments {
  std::string run;
  std::size_t keep_last = 0;
  std::uint64_t keep_every = 0;  // 0: no such rule
  std::string keep_best;
  bool dry_run = false;
};

std::optional<std::size_t> positive_number(std::string_view text) {
  std::size_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size() || value == 0) return std::nullopt;
  return value;
}

// Cuts the last ":part" off `text`; a metric's name may itself hold colons.
std::string_view cut_last(std::string_view& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return {};
  const std::string_view last = text.substr(colon + 1);
  text = text.substr(0, colon);
  return last;
}

// METRIC:min|max[:COUNT]
Result<Keep::Best> parse_best(const std::string& text) {
  Keep::Best best;
  std::string_view rest = text;
  std::string_view last = cut_last(rest);
  if (const auto count = positive_number(last)) {
    best.count = *count;
    last = cut_last(rest);
  }
  if ((last != "min" && last != "max") || rest.empty()) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--keep-best {}: want METRIC:min or METRIC:max, then perhaps :COUNT", text));
  }
  best.metric = std::string(rest);
  best.better = last == "min" ? Keep::Better::kMin : Keep::Better::kMax;
  return best;
}

Result<Keep> keep_of(const GcArguments& arguments) {
  Keep keep;
  keep.last = arguments.keep_last;
  if (arguments.keep_every > 0) keep.every = arguments.keep_every;
  if (arguments.keep_best.empty()) return keep;
  DF_TRY(keep.best, parse_best(arguments.keep_best));
  return keep;
}

void print_report(const GarbageReport& report, bool dry_run, Console& console) {
  for (const AttemptName& name : report.removed) {
    fmt::print(console.out, "{} {}\n", dry_run ? "would remove" : "removed",
               attempt_dir_name(name));
  }
  fmt::print(console.out, "{} {} checkpoints, {}\n", dry_run ? "would remove" : "removed",
             report.removed.size(), human_bytes(report.bytes_freed));
}

// A metric that is misspelt would keep nothing.
Status check_metric(const RunListing& listing, const Keep& keep) {
  if (!keep.best) return {};
  std::set<std::string> known;
  for (const Manifest& manifest : newest_first(listing)) {
    for (const auto& [metric, value] : manifest.annotations.metrics) known.insert(metric);
  }
  if (known.empty() || known.contains(keep.best->metric)) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("--keep-best: no checkpoint has a metric {}; there are {}",
                  readable(keep.best->metric), readable(fmt::to_string(fmt::join(known, ", ")))));
}

Result<ExitCode> run_gc(const GcArguments& arguments, Console& console) {
  DF_TRY(const Keep keep, keep_of(arguments));
  DF_TRY(const OpenedRun run, open_whole_run(arguments.run));
  DF_TRY_VOID(check_metric(run.listing, keep));
  DF_TRY(const GarbageReport report,
         collect_garbage(*run.vfs, keep, arguments.dry_run, EarlierLines::kGo));
  if (!console.json) {
    print_report(report, arguments.dry_run, console);
    return kExitGood;
  }
  nlohmann::ordered_json document = json_document("gc");
  document["run"] = {{"path", run.path}, {"id", run.listing.run.run_id}};
  document["dry_run"] = arguments.dry_run;
  document["removed"] = nlohmann::ordered_json::array();
  for (const AttemptName& name : report.removed) {
    document["removed"].push_back(attempt_dir_name(name));
  }
  document["bytes_freed"] = report.bytes_freed;
  print_json(console.out, document);
  return kExitGood;
}

}  // namespace

Command add_gc(Program& program) {
  Verb verb = program.add_verb("gc", "Delete the checkpoints that no rule keeps");
  const auto arguments = std::make_shared<GcArguments>();  // also held by the parser
  verb.value("RUN", arguments->run, "The run's directory").required();
  verb.value("--keep-last", arguments->keep_last, "Keep the newest N of the current line")
      .required()
      .positive();
  verb.value("--keep-every", arguments->keep_every, "And steps that are a multiple of K")
      .positive();
  verb.value("--keep-best", arguments->keep_best, "And the best: METRIC:min|max[:COUNT]");
  verb.flag("--dry-run", arguments->dry_run, "Only tell what would go");
  verb.footer("--json: {run, dry_run, removed: [directory], bytes_freed}");
  return {verb, [arguments](Console& console) { return run_gc(*arguments, console); }};
}

}  // namespace deepfreeze
