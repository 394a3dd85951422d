// deepfreeze rebuild RUN PLACE...: makes a checkpoint whole from the near directories of the nodes
// that are left.
#include <fmt/ostream.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <ostream>
#include <system_error>

#include "base/clock.h"
#include "base/try.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/run_ref.h"
#include "inspect/left_places.h"
#include "manifest/history.h"
#include "object/open_object.h"
#include "tiering/flush_plan.h"

namespace deepfreeze {
namespace {

struct RebuildArguments {
  std::string run;  // with @STEP, if not the newest that can be had
  std::vector<std::string> places;
};

// A newer checkpoint that can't be had.
struct Passed {
  std::uint64_t step = 0;
  Error why;
};

struct Rebuilt {
  Manifest manifest;
  std::vector<LeftPlaces::Copied> files;
  std::vector<Passed> passed;
  double seconds = 0;
};

Status check_apart(const std::string& run, std::span<const std::string> places) {
  for (const std::string& place : places) {
    std::error_code ignored;  // one that is not there is another one
    if (place != run && !std::filesystem::equivalent(place, run, ignored)) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is to be made whole, and a place to read from: name a new "
                            "directory as RUN",
                            run));
  }
  return {};
}

Result<std::vector<LeftPlaces::Copied>> rebuild_one(const LeftPlaces& places,
                                                    const Manifest& manifest, TierStore& to,
                                                    const Console& console) {
  RateLimit unlimited(0);
  const std::atomic<bool> never{false};
  Progress bar(console, fmt::format("step {}", manifest.point.step), stored_bytes(manifest));
  std::uint64_t done = 0;
  return places.rebuild(
      manifest, to,
      {.rate = unlimited,
       .stop = never,
       .on_bytes = [&](std::uint64_t more, std::uint64_t) { bar.update(done += more); },
       .shares = false});
}

// The one that was named, or all, newest first.
Result<std::vector<Manifest>> candidates(const LeftPlaces& places, const RunRef& ref) {
  if (!ref.step && !ref.best) return newest_first(places.listing());
  DF_TRY(Manifest named, choose({.path = ref.path, .vfs = {}, .listing = places.listing()}, ref));
  return std::vector<Manifest>{std::move(named)};
}

Result<Rebuilt> rebuild_newest(const LeftPlaces& places, const RunRef& ref, TierStore& to,
                               const Console& console) {
  Rebuilt rebuilt;
  const auto start = Monotonic::now();
  DF_TRY(const std::vector<Manifest> wanted, candidates(places, ref));
  for (const Manifest& manifest : wanted) {
    auto files = rebuild_one(places, manifest, to, console);
    if (!files && files.error().code() != ErrorCode::kIncomplete) {
      return std::unexpected(files.error());
    }
    if (files) {
      rebuilt.manifest = manifest;
      rebuilt.files = *std::move(files);
      rebuilt.seconds = seconds_since(start);
      return rebuilt;
    }
    rebuilt.passed.push_back({.step = manifest.point.step, .why = files.error()});
  }
  if (rebuilt.passed.empty()) return fail(ErrorCode::kNotFound, "no place has a checkpoint");
  return std::unexpected(rebuilt.passed.front().why.within("no checkpoint can be made whole"));
}

void print_rebuilt(const Rebuilt& rebuilt, const std::string& run, Console& console) {
  const Manifest& manifest = rebuilt.manifest;
  if (console.json) {
    JsonWriter document = json_document("rebuild");
    document.members("run", run, "step", manifest.point.step, "directory",
                     attempt_dir_name(name_of(manifest)), "bytes", stored_bytes(manifest), "files",
                     json_array(rebuilt.files,
                                [](JsonWriter& json, const LeftPlaces::Copied& file) {
                                  json.object("file", file.file, "bytes", file.bytes, "from",
                                              file.place, "calculated", file.is_calculated);
                                }),
                     "passed",
                     json_array(rebuilt.passed,
                                [](JsonWriter& json, const Passed& passed) {
                                  json.object("step", passed.step, "why", passed.why.message());
                                }),
                     "seconds", rebuilt.seconds);
    return print_json(console.out, std::move(document));
  }
  for (const Passed& passed : rebuilt.passed) {
    fmt::print(console.out, "step {} can't be made whole: {}\n", passed.step,
               readable(passed.why.message()));
  }
  const auto calculated =
      std::ranges::count(rebuilt.files, true, &LeftPlaces::Copied::is_calculated);
  fmt::print(console.out, "{} has step {}, {}: {} of {} files calculated from parity\n",
             readable(run), manifest.point.step, human_bytes(stored_bytes(manifest)), calculated,
             rebuilt.files.size());
}

Result<ExitCode> run_rebuild(const RebuildArguments& arguments, Console& console) {
  DF_TRY(const RunRef ref, parse_run_ref(arguments.run));
  DF_TRY_VOID(check_apart(ref.path, arguments.places));
  DF_TRY(const LeftPlaces places, LeftPlaces::open(arguments.places));
  DF_TRY(const auto store, open_store(ref.path, false));
  DF_TRY_VOID(places.copy_claims(*store));
  DF_TRY(const Rebuilt rebuilt, rebuild_newest(places, ref, *store, console));
  print_rebuilt(rebuilt, ref.path, console);
  return kExitGood;
}

}  // namespace

Command add_rebuild(Program& program) {
  Verb verb = program.add_verb("rebuild", "Make a checkpoint whole from the nodes that are left");
  const auto arguments = std::make_shared<RebuildArguments>();  // also held by the parser
  verb.value("RUN", arguments->run,
             "The directory that gets it, made if there is none; or RUN@STEP. Without a step, the\n"
             "newest checkpoint that can be had")
      .required();
  verb.values("PLACE", arguments->places,
              "A directory of the same run that is left: of a node, or of a farther tier")
      .required();
  verb.footer(
      "Each file comes from the first place that has it whole, or is calculated from the others\n"
      "and from parity. Every block is checked. A job that goes on with near=\"node\" does not "
      "need\n"
      "this: its restore() reads in the same way.\n"
      "--json: {run, step, directory, bytes, files: [{file, bytes, from: path, calculated}],\n"
      "  passed: [{step, why}], seconds}; passed are newer checkpoints that can't be made whole,\n"
      "  \"from\" is empty for a file that was there already");
  return {verb, [arguments](Console& console) { return run_rebuild(*arguments, console); }};
}

}  // namespace deepfreeze
