// deepfreeze export RUN[@STEP] OUT: tensors of a checkpoint as a plain safetensors file, or as a
// directory for from_pretrained().
#include <fmt/ostream.h>
#include <fnmatch.h>

#include <algorithm>
#include <memory>
#include <ostream>

#include "base/try.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/exported_file.h"
#include "cli/model_directory.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/run_ref.h"

namespace deepfreeze {
namespace {

// Those of a model in a Trainer's run, and in the README's dict.
constexpr const char* kModelPrefix = "model.";

struct ExportArguments {
  std::string run;
  std::string out;
  std::string prefix;
  std::vector<std::string> globs;
  bool force = false;
  bool transformers = false;
  std::string config;
  std::uint64_t shard_bytes = 5'000'000'000;
};

Status check(const ExportArguments& arguments) {
  if (!arguments.transformers && !arguments.config.empty()) {
    return fail(ErrorCode::kInvalidArgument, "--config is for --transformers");
  }
  if (arguments.transformers && arguments.force) {
    return fail(ErrorCode::kInvalidArgument,
                "--force replaces files, and --transformers makes a directory: choose a new name");
  }
  return {};
}

bool wanted(const ExportArguments& arguments, const std::string& key) {
  if (!key.starts_with(arguments.prefix)) return false;
  return arguments.globs.empty() ||
         std::ranges::any_of(arguments.globs, [&](const std::string& glob) {
           return ::fnmatch(glob.c_str(), key.c_str(), 0) == 0;
         });
}

Result<std::vector<TensorSpec>> select(const Snapshot& snapshot, const ExportArguments& arguments) {
  std::vector<TensorSpec> specs;
  for (const TensorSpec& spec : snapshot.tensors()) {
    if (!wanted(arguments, spec.key)) continue;
    if (spec.key.size() == arguments.prefix.size()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--prefix {} leaves no name for that tensor", arguments.prefix));
    }
    specs.push_back(spec);
  }
  if (specs.empty()) return fail(ErrorCode::kNotFound, "no tensor has that prefix and those keys");
  return specs;
}

// The files of OUT, if it is a directory.
Result<WrittenModel> write_out(const Snapshot& snapshot, std::vector<TensorSpec> specs,
                               const ExportArguments& arguments, Progress& progress) {
  if (!arguments.transformers) {
    const ExportedFile file = {.path = arguments.out,
                               .specs = std::move(specs),
                               .prefix = arguments.prefix,
                               .replace = arguments.force};
    DF_TRY(const std::uint64_t bytes, export_file(snapshot, file, progress));
    return WrittenModel{.bytes = bytes};
  }
  return write_model_directory(snapshot,
                               {.path = arguments.out,
                                .config = arguments.config,
                                .shard_bytes = arguments.shard_bytes,
                                .specs = std::move(specs),
                                .prefix = arguments.prefix},
                               progress);
}

void warn_of_meanings(const std::vector<TensorSpec>& specs, const ExportArguments& arguments,
                      JsonWriter& document, Console& console) {
  document.key("logical_dtypes");
  document.begin_object();
  for (const TensorSpec& spec : specs) {
    if (spec.logical_dtype.empty()) continue;
    const std::string name = spec.key.substr(arguments.prefix.size());
    document.members(name, spec.logical_dtype);
    fmt::print(console.err, "warning: {} is exported as it is stored, {} {}, and means {}\n",
               readable(name), dtype_name(spec.dtype), shape_text(spec.shape),
               readable(spec.logical_dtype));
  }
  document.end_object();
}

Result<ExitCode> run_export(ExportArguments arguments, Console& console) {
  DF_TRY_VOID(check(arguments));
  if (arguments.transformers && arguments.prefix.empty()) arguments.prefix = kModelPrefix;
  DF_TRY(const OpenedCheckpoint checkpoint, open_checkpoint(arguments.run));
  DF_TRY(const std::vector<TensorSpec> specs, select(*checkpoint.snapshot, arguments));
  DF_TRY(const std::uint64_t bytes, data_bytes(specs));
  Result<WrittenModel> written;
  {
    Progress progress(console, "export", bytes);
    written = write_out(*checkpoint.snapshot, specs, arguments, progress);
  }
  if (!written) return std::unexpected(std::move(written).error());

  JsonWriter document = json_document("export");
  document.key("checkpoint");
  write_point(document, checkpoint.snapshot->manifest().point);
  document.members("out", arguments.out, "tensors", specs.size(), "bytes", written->bytes);
  if (arguments.transformers) document.members("files", written->files);
  warn_of_meanings(specs, arguments, document, console);
  if (!console.json) {
    fmt::print(console.out, "{} tensors, {}, to {}\n", specs.size(), human_bytes(bytes),
               readable(arguments.out));
    if (arguments.transformers && arguments.config.empty()) {
      fmt::print(console.out,
                 "from_pretrained() also needs a config.json there; --config copies "
                 "that of another directory\n");
    }
    return kExitGood;
  }
  print_json(console.out, std::move(document));
  return kExitGood;
}

}  // namespace

Command add_export(Program& program) {
  Verb verb = program.add_verb(
      "export",
      "Write tensors to a plain safetensors file, verified; or a model for from_pretrained()");
  const auto arguments = std::make_shared<ExportArguments>();  // also held by the parser
  verb.value("RUN", arguments->run, "RUN, RUN@STEP, RUN@latest or RUN@best").required();
  verb.value("OUT", arguments->out, "The file to write, or the new directory").required();
  verb.value("--prefix", arguments->prefix, "Only keys with this prefix, which is cut off");
  verb.values("--keys", arguments->globs, "Only stored keys that match one of these globs");
  verb.flag("--force", arguments->force, "Replace OUT");
  verb.flag("--transformers", arguments->transformers,
            "OUT is a directory for from_pretrained(); without --prefix, that is model.");
  verb.value("--config", arguments->config,
             "With --transformers: copy config.json and the tokenizer's files from this directory");
  verb.value("--shard-bytes", arguments->shard_bytes,
             "With --transformers: the most for one file of weights")
      .positive()
      .default_in_help();
  verb.footer(
      "--json: {checkpoint, out, tensors, bytes, files (of a directory), logical_dtypes: {name: "
      "dtype}}");
  return {verb, [arguments](Console& console) { return run_export(*arguments, console); }};
}

}  // namespace deepfreeze
