// deepfreeze export RUN[@STEP] OUT: tensors of a checkpoint as a plain safetensors file.
#include <fmt/ostream.h>
#include <fnmatch.h>

#include <algorithm>
#include <memory>
#include <ostream>

#include "base/mapped_memory.h"
#include "base/try.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/new_file.h"
#include "cli/output.h"
#include "cli/plain_safetensors.h"
#include "cli/progress.h"
#include "cli/run_ref.h"
#include "inspect/reading.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kBatchBytes = 64 * 1024 * 1024;  // or one tensor, if it is larger

struct ExportArguments {
  std::string run;
  std::string out;
  std::string prefix;
  std::vector<std::string> globs;
  bool force = false;
};

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

// Reads tensors [begin, end) of the file's order into one buffer and appends it.
Status copy_batch(const Snapshot& snapshot, const std::vector<TensorSpec>& specs,
                  const Layout& layout, std::span<const std::size_t> order, NewFile& file) {
  const std::uint64_t begin = layout.extents[order.front()].begin;
  const std::uint64_t end = layout.extents[order.back()].end;
  DF_TRY(const MappedMemory buffer, MappedMemory::allocate(end - begin));
  std::vector<ReadTarget> targets;
  for (const std::size_t index : order) {
    const Extent& extent = layout.extents[index];
    targets.push_back({.key = specs[index].key,
                       .into = buffer.bytes().subspan(extent.begin - begin, extent.size())});
  }
  DF_TRY_VOID(snapshot.read(targets, {.thread_count = kReadThreads, .on_progress = {}}));
  return file.append(buffer.bytes());
}

Status copy_tensors(const Snapshot& snapshot, const std::vector<TensorSpec>& specs,
                    const Layout& layout, NewFile& file, const Console& console) {
  Progress progress(console, "export", layout.data_bytes);
  std::span<const std::size_t> rest = layout.order;
  while (!rest.empty()) {
    const std::uint64_t begin = layout.extents[rest.front()].begin;
    std::size_t count = 1;
    while (count < rest.size() && layout.extents[rest[count]].end - begin <= kBatchBytes) ++count;
    DF_TRY_VOID(copy_batch(snapshot, specs, layout, rest.first(count), file));
    progress.update(layout.extents[rest[count - 1]].end);
    rest = rest.subspan(count);
  }
  return {};
}

Result<ExitCode> run_export(const ExportArguments& arguments, Console& console) {
  DF_TRY(const OpenedCheckpoint checkpoint, open_checkpoint(arguments.run));
  DF_TRY(const std::vector<TensorSpec> specs, select(*checkpoint.snapshot, arguments));
  DF_TRY(const Layout layout, lay_out(specs));
  std::vector<TensorSpec> renamed = specs;
  for (TensorSpec& spec : renamed) spec.key.erase(0, arguments.prefix.size());
  DF_TRY(const std::string header, plain_safetensors_header(renamed, layout));

  DF_TRY(NewFile file, NewFile::create(arguments.out, arguments.force));
  DF_TRY_VOID(file.append(std::as_bytes(std::span(header))));
  DF_TRY_VOID(copy_tensors(*checkpoint.snapshot, specs, layout, file, console));
  DF_TRY_VOID(file.publish());

  JsonWriter document = json_document("export");
  document.key("checkpoint");
  write_point(document, checkpoint.snapshot->manifest().point);
  document.members("out", arguments.out, "tensors", specs.size(), "bytes",
                   header.size() + layout.data_bytes);
  document.key("logical_dtypes");
  document.begin_object();
  for (const TensorSpec& spec : renamed) {
    if (spec.logical_dtype.empty()) continue;
    document.members(spec.key, spec.logical_dtype);
    fmt::print(console.err, "warning: {} is exported as it is stored, {} {}, and means {}\n",
               readable(spec.key), dtype_name(spec.dtype), shape_text(spec.shape),
               readable(spec.logical_dtype));
  }
  document.end_object();
  if (!console.json) {
    fmt::print(console.out, "{} tensors, {}, to {}\n", specs.size(), human_bytes(layout.data_bytes),
               readable(arguments.out));
    return kExitGood;
  }
  print_json(console.out, std::move(document));
  return kExitGood;
}

}  // namespace

Command add_export(Program& program) {
  Verb verb = program.add_verb("export", "Write tensors to a plain safetensors file, verified");
  const auto arguments = std::make_shared<ExportArguments>();  // also held by the parser
  verb.value("RUN", arguments->run, "RUN, RUN@STEP, RUN@latest or RUN@best").required();
  verb.value("OUT", arguments->out, "The file to write").required();
  verb.value("--prefix", arguments->prefix, "Only keys with this prefix, which is cut off");
  verb.values("--keys", arguments->globs, "Only stored keys that match one of these globs");
  verb.flag("--force", arguments->force, "Replace OUT");
  verb.footer("--json: {checkpoint, out, tensors, bytes, logical_dtypes: {name: dtype}}");
  return {verb, [arguments](Console& console) { return run_export(*arguments, console); }};
}

}  // namespace deepfreeze
