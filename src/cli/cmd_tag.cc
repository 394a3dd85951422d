// deepfreeze tag RUN@STEP NAME=VALUE...: tags of a checkpoint that exists.
#include <fmt/ostream.h>

#include <memory>
#include <ostream>
#include <set>
#include <utility>

#include "base/try.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/output.h"
#include "cli/run_ref.h"
#include "manifest/given_tags.h"

namespace deepfreeze {
namespace {

struct TagArguments {
  std::string checkpoint;
  std::vector<std::string> set;
  std::vector<std::string> remove;
};

Result<TagChange> change_of(const TagArguments& arguments) {
  TagChange change{.set = {}, .remove = arguments.remove};
  for (const std::string& text : arguments.set) {
    const std::size_t end = text.find('=');
    if (end == std::string::npos) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is not NAME=VALUE", text));
    }
    const std::string name = text.substr(0, end);
    if (!change.set.emplace(name, text.substr(end + 1)).second) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("tag '{}' is given twice", name));
    }
  }
  DF_TRY_VOID(check_tags(change.set));
  std::set<std::string> removed;
  for (const std::string& name : change.remove) {
    if (removed.insert(name).second && !change.set.contains(name)) continue;
    return fail(ErrorCode::kInvalidArgument, fmt::format("tag '{}' is given twice", name));
  }
  return change;
}

Result<AttemptState> attempt_of(const OpenedRun& run, const Manifest& manifest) {
  for (const AttemptState& attempt : run.listing.attempts) {
    if (attempt.committed() && attempt.manifest->point == manifest.point) return attempt;
  }
  return fail(ErrorCode::kInternal, run.path + ": the chosen checkpoint is not listed");
}

void print_tags(const AttemptState& attempt, const TagArguments& arguments, const OpenedRun& run,
                Console& console) {
  const Tags given = attempt.given ? attempt.given->tags : Tags{};
  if (console.json) {
    JsonWriter document = json_document("tag", run);
    document.key("checkpoint");
    write_point(document, attempt.manifest->point);
    document.members("tags", tags_of(attempt), "given", given);
    return print_json(console.out, std::move(document));
  }
  if (given.empty()) {
    fmt::print(console.out, "{} has no tags of its own\n", readable(arguments.checkpoint));
  }
  for (const auto& [name, value] : given) {
    fmt::print(console.out, "{}={}\n", printable(name), printable(value));
  }
}

Result<ExitCode> run_tag(const TagArguments& arguments, Console& console) {
  DF_TRY(const TagChange change, change_of(arguments));
  DF_TRY(const RunRef ref, parse_run_ref(arguments.checkpoint));
  if (!ref.at) {
    return fail(ErrorCode::kInvalidArgument,
                arguments.checkpoint + ": name one checkpoint, such as RUN@STEP or RUN@latest");
  }
  DF_TRY(const OpenedRun run, open_run(ref.path));
  DF_TRY(const Manifest manifest, choose(run, ref));
  DF_TRY(AttemptState attempt, attempt_of(run, manifest));
  if (!change.set.empty() || !change.remove.empty()) {
    DF_TRY(attempt.given, change_tags(*run.vfs, manifest, change));
  } else if (attempt.given && attempt.given->fault) {
    return std::unexpected(*attempt.given->fault);
  }
  print_tags(attempt, arguments, run, console);
  return kExitGood;
}

}  // namespace

Command add_tag(Program& program) {
  Verb verb =
      program.add_verb("tag", "Give tags to a checkpoint, which keep it, or take them away");
  const auto arguments = std::make_shared<TagArguments>();  // also held by the parser
  verb.value("CHECKPOINT", arguments->checkpoint, "RUN@STEP, RUN@latest or RUN@best").required();
  verb.values("TAG", arguments->set, "NAME=VALUE, to set it; without any, they are only printed");
  verb.values("--remove", arguments->remove, "The name of a tag to remove; may come again")
      .one_at_a_time();
  verb.footer(
      "A checkpoint with such a tag is kept, whatever the rules of keep say, until its tags are\n"
      "removed. Tags that a program saved with the checkpoint don't keep it, and stay; one of the\n"
      "same name is shown in place of it.\n"
      "--json: {run, checkpoint: {generation, step, save, attempt}, tags: all, given: by this "
      "verb}");
  return {verb, [arguments](Console& console) { return run_tag(*arguments, console); }};
}

}  // namespace deepfreeze
