#include "cli/exported_file.h"

#include "base/mapped_memory.h"
#include "base/try.h"
#include "cli/new_file.h"
#include "cli/plain_safetensors.h"
#include "format/layout.h"
#include "inspect/reading.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kBatchBytes = 64 * 1024 * 1024;  // or one tensor, if it is larger

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
                    const Layout& layout, NewFile& file, Progress& progress, std::uint64_t done) {
  std::span<const std::size_t> rest = layout.order;
  while (!rest.empty()) {
    const std::uint64_t begin = layout.extents[rest.front()].begin;
    std::size_t count = 1;
    while (count < rest.size() && layout.extents[rest[count]].end - begin <= kBatchBytes) ++count;
    DF_TRY_VOID(copy_batch(snapshot, specs, layout, rest.first(count), file));
    progress.update(done + layout.extents[rest[count - 1]].end);
    rest = rest.subspan(count);
  }
  return {};
}

}  // namespace

Result<std::uint64_t> export_file(const Snapshot& snapshot, const ExportedFile& file,
                                  Progress& progress, std::uint64_t done) {
  DF_TRY(const Layout layout, lay_out(file.specs));
  std::vector<TensorSpec> renamed = file.specs;
  for (TensorSpec& spec : renamed) spec.key.erase(0, file.prefix.size());
  DF_TRY(const std::string header, plain_safetensors_header(renamed, layout));
  DF_TRY(NewFile out, NewFile::create(file.path, file.replace));
  DF_TRY_VOID(out.append(std::as_bytes(std::span(header))));
  DF_TRY_VOID(copy_tensors(snapshot, file.specs, layout, out, progress, done));
  DF_TRY_VOID(out.publish());
  return header.size() + layout.data_bytes;
}

Result<std::uint64_t> data_bytes(const std::vector<TensorSpec>& specs) {
  DF_TRY(const Layout layout, lay_out(specs));
  return layout.data_bytes;
}

}  // namespace deepfreeze
