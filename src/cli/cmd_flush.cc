// deepfreeze flush RUN TIER: brings checkpoints to a farther tier, as a Checkpointer with tiers
// does. deepfreeze fetch TIER RUN: brings one back.
#include <fmt/ostream.h>

#include <algorithm>
#include <memory>
#include <ostream>

#include "base/clock.h"
#include "base/try.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/run_ref.h"
#include "manifest/history.h"
#include "object/open_object.h"
#include "tiering/flush.h"
#include "tiering/flush_plan.h"
#include "tiering/history_copy.h"
#include "tiering/merged_run.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kMiB = 1024 * 1024;
constexpr std::uint64_t kRateMax = 1'000'000;  // MiB per second; nothing copies that fast

struct FlushArguments {
  std::string from;  // RUN, or for fetch TIER@STEP
  std::string to;
  std::uint64_t every = 0;  // 0: all steps
  std::uint64_t rate = 0;   // MiB per second; 0: no limit
  bool compresses = false;  // fetch never does
  bool sends_all = false;   // always, by fetch
};

struct Transfer {
  std::vector<Manifest> copied;
  std::uint64_t bytes = 0;
  std::uint64_t sent = 0;  // for them
  double seconds = 0;
};

struct Destination {
  TierStore& store;
  RunListing listing;  // of it
};

Result<Transfer> copy_all(Vfs& from, const std::vector<Manifest>& wanted, Destination to,
                          const FlushArguments& arguments, Vfs* near, const Console& console) {
  Transfer transfer;
  const auto start = Monotonic::now();
  RateLimit limit(arguments.rate * kMiB);
  const std::atomic<bool> never{false};
  PackingJudge judge;
  for (const Manifest& manifest : wanted) {
    const std::uint64_t bytes = stored_bytes(manifest);
    Progress bar(console, fmt::format("step {}", manifest.point.step), bytes);
    std::uint64_t done = 0;
    const CopySettings settings = {.rate = limit,
                                   .stop = never,
                                   .on_bytes =
                                       [&](std::uint64_t more, std::uint64_t sent) {
                                         bar.update(done += more);
                                         transfer.sent += sent;
                                       },
                                   .packing = arguments.compresses ? &judge : nullptr,
                                   .there = &to.listing,
                                   .shares = !arguments.sends_all};
    DF_TRY_VOID(flush_attempt(from, manifest, to.store, settings, near));
    to.listing.attempts.push_back({.name = name_of(manifest), .manifest = manifest, .fault = {}});
    transfer.copied.push_back(manifest);
    transfer.bytes += bytes;
  }
  transfer.seconds = seconds_since(start);
  return transfer;
}

void print_transfer(const Transfer& transfer, const char* verb, const FlushArguments& arguments,
                    Console& console) {
  if (console.json) {
    JsonWriter document = json_document(verb);
    document.members("from", arguments.from, "to", arguments.to, "copied",
                     json_array(transfer.copied,
                                [](JsonWriter& json, const Manifest& manifest) {
                                  json.object("step", manifest.point.step, "directory",
                                              attempt_dir_name(name_of(manifest)), "bytes",
                                              stored_bytes(manifest));
                                }),
                     "bytes", transfer.bytes, "sent", transfer.sent, "seconds", transfer.seconds);
    return print_json(console.out, std::move(document));
  }
  for (const Manifest& manifest : transfer.copied) {
    fmt::print(console.out, "copied step {}, {}\n", manifest.point.step,
               human_bytes(stored_bytes(manifest)));
  }
  if (transfer.copied.empty()) {
    fmt::print(console.out, "{} has all that it is to have\n", readable(arguments.to));
  }
}

Result<ExitCode> run_flush(const FlushArguments& arguments, Console& console) {
  if (arguments.compresses) DF_TRY_VOID(check_packing());
  DF_TRY(const OpenedRun run, open_whole_run(arguments.from));
  DF_TRY(const auto store, open_store(arguments.to, false));
  DF_TRY(RunListing there, copy_history(run.listing, *run.vfs, *store));
  std::vector<TierSeen> tiers = {{{}, {}, std::make_shared<RunListing>(run.listing)},
                                 {{}, {}, std::make_shared<RunListing>(there)}};
  if (arguments.every > 0) tiers.back().every = arguments.every;
  DF_TRY(const Transfer transfer,
         copy_all(*run.vfs, waiting_for(tiers, 1), {*store, std::move(there)}, arguments,
                  run.vfs.get(), console));
  print_transfer(transfer, "flush", arguments, console);
  return kExitGood;
}

Result<ExitCode> run_fetch(const FlushArguments& arguments, Console& console) {
  DF_TRY(const RunRef ref, parse_run_ref(arguments.from));
  DF_TRY(const OpenedRun tier, open_run(ref.path));
  DF_TRY(const Manifest wanted, choose(tier, ref));
  DF_TRY(const auto store, open_store(arguments.to, false));
  DF_TRY_VOID(adopt_history(store->view(), *tier.vfs));
  DF_TRY(RunListing there, read_run(store->view()));
  DF_TRY(const Transfer transfer,
         copy_all(*tier.vfs, {wanted}, {*store, std::move(there)}, arguments, nullptr, console));
  print_transfer(transfer, "fetch", arguments, console);
  return kExitGood;
}

Argument rate_of(Verb& verb, FlushArguments& arguments) {
  return verb.value("--rate", arguments.rate, "At most so many MiB per second; 0: no limit")
      .between(0, kRateMax);
}

}  // namespace

Command add_flush(Program& program) {
  Verb verb = program.add_verb("flush", "Copy the checkpoints that a farther tier lacks");
  const auto arguments = std::make_shared<FlushArguments>();  // also held by the parser
  verb.value("RUN", arguments->from, "The run's directory").required();
  verb.value("TIER", arguments->to, "The tier's directory; made if there is none").required();
  verb.value("--every", arguments->every, "Only steps that are a multiple of K").positive();
  rate_of(verb, *arguments);
  verb.flag("--compress", arguments->compresses,
            "Pack files, without loss, where that is faster than to send them as they are");
  verb.flag("--send-all", arguments->sends_all,
            "Also the files that another checkpoint has on the tier already");
  verb.footer(
      "The newest goes first. Every block is checked while it is copied, and a checkpoint counts\n"
      "on the tier only when all of it is there. What an earlier flush has copied stays, and "
      "files\n"
      "that checkpoints share are not sent again.\n"
      "--json: {from, to, copied: [{step, directory, bytes}], bytes, sent, seconds}; sent are the\n"
      "  bytes that were sent for them: fewer if files were packed or shared");
  return {verb, [arguments](Console& console) { return run_flush(*arguments, console); }};
}

Command add_fetch(Program& program) {
  Verb verb = program.add_verb("fetch", "Copy a checkpoint from a tier into a run's directory");
  const auto arguments = std::make_shared<FlushArguments>();  // also held by the parser
  arguments->sends_all = true;
  verb.value("TIER", arguments->from, "The tier, TIER@STEP, TIER@best or TIER@latest").required();
  verb.value("RUN", arguments->to, "The run's directory; made if there is none").required();
  rate_of(verb, *arguments);
  verb.footer(
      "The run's directory may be new, or hold the same run. Every block is checked, and packed\n"
      "files are unpacked.\n"
      "--json: {from, to, copied: [{step, directory, bytes}], bytes, sent, seconds}");
  return {verb, [arguments](Console& console) { return run_fetch(*arguments, console); }};
}

}  // namespace deepfreeze
