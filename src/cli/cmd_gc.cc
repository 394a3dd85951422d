// deepfreeze gc RUN: deletes the checkpoints that no rule keeps, the given or the recorded one.
#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include <charconv>
#include <iterator>
#include <memory>
#include <ostream>
#include <set>

#include "base/try.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/output.h"
#include "cli/run_ref.h"
#include "cli/tier_listing.h"
#include "manifest/history.h"
#include "manifest/retention.h"
#include "object/object_place.h"
#include "object/open_object.h"
#include "storage/vfs_tier_store.h"
#include "tiering/flush_plan.h"
#include "tiering/shared_files.h"

namespace deepfreeze {
namespace {

struct GcArguments {
  std::string run;
  std::size_t keep_last = 0;     // 0: not given
  std::uint64_t keep_every = 0;  // 0: no such rule
  std::string keep_best;
  std::vector<std::string> tiers;
  std::uint64_t tier_every = 0;  // 0: all steps
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

// The rules to go by, and whether the run had them recorded.
struct Rules {
  Keep keep;
  bool recorded = false;
};

Result<Keep> given_keep(const GcArguments& arguments) {
  Keep keep;
  if (arguments.keep_last == 0) {
    return fail(ErrorCode::kInvalidArgument,
                "--keep-every and --keep-best are given beside --keep-last");
  }
  keep.last = arguments.keep_last;
  if (arguments.keep_every > 0) keep.every = arguments.keep_every;
  if (arguments.keep_best.empty()) return keep;
  DF_TRY(keep.best, parse_best(arguments.keep_best));
  return keep;
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

Result<Rules> rules_of(const GcArguments& arguments, const OpenedRun& run) {
  const bool given =
      arguments.keep_last > 0 || arguments.keep_every > 0 || !arguments.keep_best.empty();
  if (given) {
    DF_TRY(const Keep keep, given_keep(arguments));
    DF_TRY_VOID(check_metric(run.listing, keep));
    return Rules{.keep = keep};
  }
  if (const auto keep = recorded_keep(run.listing)) return Rules{.keep = *keep, .recorded = true};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: no rule can be read, because its newest claim is damaged or it has "
                          "none; give --keep-last",
                          run.path));
}

// The given tiers as they are now. A copy counts only if its name would survive a power cut.
Result<std::vector<TierSeen>> look_at_tiers(const GcArguments& arguments, const OpenedRun& run) {
  std::vector<TierSeen> tiers;
  for (const std::string& path : arguments.tiers) {
    DF_TRY(ListedTier tier, list_tier(path, run.listing.run, run.path));
    if (tier.vfs) {
      VfsTierStore store(std::move(tier.vfs));
      std::erase_if(tier.listing.attempts, [&](const AttemptState& attempt) {
        return is_committed_in(run.listing, attempt.name) &&
               !store.settle(attempt_dir_name(attempt.name));
      });
    }
    tiers.push_back({.every = {},
                     .keep = {},
                     .listing = std::make_shared<RunListing>(std::move(tier.listing))});
    if (arguments.tier_every > 0) tiers.back().every = arguments.tier_every;
  }
  return tiers;
}

// The attempts of the run that one of the tiers lacks, and no tier before it has.
std::vector<AttemptName> held_for(const std::vector<TierSeen>& tiers, const RunListing& near) {
  std::vector<TierSeen> all = {{{}, {}, std::make_shared<RunListing>(near)}};
  all.insert(all.end(), tiers.begin(), tiers.end());
  return held_on(all, 0);
}

std::string recorded_text(const Keep& keep) {
  std::vector<std::string> rules;
  if (keep.last) rules.push_back(fmt::format("the newest {}", *keep.last));
  if (keep.every) rules.push_back(fmt::format("every multiple of {}", *keep.every));
  if (keep.best) {
    rules.push_back(fmt::format("the best {} by {}:{}", keep.best->count, keep.best->metric,
                                keep.best->better == Keep::Better::kMin ? "min" : "max"));
  }
  if (rules.empty()) return "the run records no rule, so all stay; --keep-last gives one";
  return fmt::format("by the rule that the run records: keep {}", fmt::join(rules, ", "));
}

void write_best(JsonWriter& json, const Keep::Best& best) {
  json.object("metric", best.metric, "better", best.better == Keep::Better::kMin ? "min" : "max",
              "count", best.count);
}

struct GcOutcome {
  const GarbageReport& report;
  const std::vector<AttemptName>& waiting;  // for a tier
};

void print_report_json(const OpenedRun& run, const Rules& rules, const GcOutcome& outcome,
                       bool dry_run, Console& console) {
  JsonWriter document = json_document("gc", run);
  document.members("dry_run", dry_run);
  document.key("keep");
  document.begin_object();
  document.members("last", rules.keep.last, "every", rules.keep.every);
  document.key("best");
  rules.keep.best ? write_best(document, *rules.keep.best) : document.value(nullptr);
  document.end_object();
  const auto write_name = [](JsonWriter& json, const AttemptName& name) {
    json.value(attempt_dir_name(name));
  };
  document.members("keep_recorded", rules.recorded, "removed",
                   json_array(outcome.report.removed, write_name), "bytes_freed",
                   outcome.report.bytes_freed, "waiting_for_tier",
                   json_array(outcome.waiting, write_name));
  print_json(console.out, std::move(document));
}

void print_report(const GarbageReport& report, const std::vector<AttemptName>& waiting,
                  bool dry_run, Console& console) {
  for (const AttemptName& name : waiting) {
    fmt::print(console.out, "kept {}: a tier waits for it\n", attempt_dir_name(name));
  }
  for (const AttemptName& name : report.removed) {
    fmt::print(console.out, "{} {}\n", dry_run ? "would remove" : "removed",
               attempt_dir_name(name));
  }
  fmt::print(console.out, "{} {} checkpoints, {}\n", dry_run ? "would remove" : "removed",
             report.removed.size(), human_bytes(report.bytes_freed));
}

// A store's files that the deleted checkpoints shared with no other.
Status sweep(const std::string& run) {
  DF_TRY(const std::string place, whole_run_path(run));
  if (!is_object_url(place)) return {};
  DF_TRY(const auto store, open_store(place, false));
  return sweep_shared_files(*store, RunListing{});
}

Result<ExitCode> run_gc(const GcArguments& arguments, Console& console) {
  DF_TRY(const OpenedRun run, open_whole_run(arguments.run));
  DF_TRY(const Rules rules, rules_of(arguments, run));
  // With the recorded rule, gc deletes no more than the run's own process does when it collects.
  const EarlierLines earlier = rules.recorded ? EarlierLines::kStay : EarlierLines::kGo;
  DF_TRY(const std::vector<TierSeen> tiers, look_at_tiers(arguments, run));
  std::vector<AttemptName> waiting;
  const auto held = [&](const RunListing& listing) {
    const std::vector<AttemptName> names = held_for(tiers, listing);
    waiting = expired(listing, rules.keep, earlier);
    std::erase_if(waiting, [&](const AttemptName& name) { return !is_among(names, name); });
    return names;
  };
  DF_TRY(const GarbageReport report,
         collect_garbage(*run.vfs, rules.keep,
                         {.dry_run = arguments.dry_run, .earlier = earlier, .held = held}));
  if (console.json) {
    print_report_json(run, rules, {report, waiting}, arguments.dry_run, console);
  } else {
    if (rules.recorded) fmt::print(console.out, "{}\n", readable(recorded_text(rules.keep)));
    print_report(report, waiting, arguments.dry_run, console);
  }
  if (!arguments.dry_run) DF_TRY_VOID(sweep(arguments.run));
  return kExitGood;
}

}  // namespace

Command add_gc(Program& program) {
  Verb verb = program.add_verb("gc", "Delete the checkpoints that no rule keeps");
  const auto arguments = std::make_shared<GcArguments>();  // also held by the parser
  verb.value("RUN", arguments->run, "The run's directory").required();
  verb.value("--keep-last", arguments->keep_last, "Keep the newest N of the current line")
      .positive();
  verb.value("--keep-every", arguments->keep_every, "And steps that are a multiple of K")
      .positive();
  verb.value("--keep-best", arguments->keep_best, "And the best: METRIC:min|max[:COUNT]");
  verb.values("--tier", arguments->tiers,
              "Directories of farther tiers, nearest first: what they wait for stays");
  verb.value("--tier-every", arguments->tier_every,
             "They wait only for steps that are a multiple of K")
      .positive();
  verb.flag("--dry-run", arguments->dry_run, "Only say which checkpoints would be deleted");
  verb.footer(
      "Without rules, the rules of the process that claimed the run last apply; checkpoints of\n"
      "an earlier line then stay, as they do beside that process. The newest checkpoint, one\n"
      "with a fault and one in flight are never deleted. The run does not record its tiers:\n"
      "without --tier a checkpoint goes although a farther tier still waits for it.\n"
      "--json: {run, dry_run, keep: {last | null, every | null, best: {metric, better, count} |\n"
      "  null}, keep_recorded, removed: [directory], bytes_freed, waiting_for_tier: [directory]}");
  return {verb, [arguments](Console& console) { return run_gc(*arguments, console); }};
}

}  // namespace deepfreeze
