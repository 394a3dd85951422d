#include "engine/save_plan.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/try.h"
#include "format/state_tree.h"
#include "tensor/tensor_table.h"

namespace deepfreeze {
namespace {

Status check_objects(const std::string& objects) {
  if (objects.empty()) return {};
  const Status checked = check_tree(objects);
  if (checked) return {};
  return fail(ErrorCode::kEncode, checked.error().within("objects").message());
}

Annotations annotate(const SaveRequest& request, const std::optional<ParentPoint>& parent) {
  return {.wall_micros = wall_micros(),
          .metrics = request.metrics,
          .tags = request.tags,
          .environment = request.environment,
          .parent = parent};
}

std::vector<TensorSpec> specs_of(const TensorTable& tensors) {
  std::vector<TensorSpec> specs(tensors.size());
  std::ranges::transform(tensors, specs.begin(), &Tensor::spec);
  return specs;
}

std::vector<std::uint64_t> bytes_of(const TensorTable& tensors) {
  std::vector<std::uint64_t> bytes(tensors.size());
  std::ranges::transform(tensors, bytes.begin(), [](const Tensor& t) { return t.data.size(); });
  return bytes;
}

std::vector<Share> whole_shares(const std::vector<TensorSpec>& specs) {
  std::vector<Share> shares;
  shares.reserve(specs.size());
  for (std::uint32_t i = 0; i < specs.size(); ++i) {
    shares.push_back({.tensor = i, .first_row = 0, .rows = rows_of(specs[i]).count});
  }
  return shares;
}

Status check_share(const Share& share, const std::vector<TensorSpec>& specs) {
  if (share.tensor >= specs.size()) {
    return fail(ErrorCode::kInternal, "a share of a tensor that this rank does not have");
  }
  const std::uint64_t rows = rows_of(specs[share.tensor]).count;
  if (share.first_row <= rows && share.rows <= rows - share.first_row) return {};
  return fail(ErrorCode::kInternal, "a share beyond the end of tensor " + specs[share.tensor].key);
}

Result<TablePlan> plan_table(const std::vector<TensorSpec>& specs, std::span<const Share> shares,
                             const HeaderBudget& budget) {
  std::vector<TensorSpec> stored;
  stored.reserve(shares.size());
  for (const Share& share : shares) stored.push_back(spec_of_share(specs[share.tensor], share));
  DF_TRY(const Layout layout, lay_out(stored));
  TablePlan plan;
  std::vector<ShardEntry> entries;
  entries.reserve(stored.size());
  plan.sources.reserve(stored.size());
  for (const std::size_t index : layout.order) {
    const Share& share = shares[index];
    const std::uint64_t row_bytes = rows_of(specs[share.tensor]).bytes;
    plan.sources.push_back({.tensor = share.tensor, .first_byte = share.first_row * row_bytes});
    entries.push_back({.spec = std::move(stored[index]), .extent = layout.extents[index]});
  }
  DF_TRY(plan.files, write_tables(std::move(entries), budget));
  return plan;
}

std::vector<Section> sections_of(const std::vector<TableText>& files, std::size_t file_count) {
  std::vector<std::uint64_t> bytes(file_count);
  std::ranges::transform(files, bytes.begin(), &TableText::data_bytes);
  return lay_sections(bytes, kSlabBytes);
}

}  // namespace

const std::string& TablePlan::key_of(std::size_t item) const {
  auto file = files.begin();
  for (; item >= file->entries.size(); ++file) item -= file->entries.size();
  return file->entries[item].spec.key;
}

std::uint64_t SavePlan::data_bytes() const {
  std::uint64_t bytes = 0;
  for (const Section& section : sections) bytes += section.size();
  return bytes;
}

bool SavePlan::has_ranges() const { return table->files.front().range_count.has_value(); }

std::uint64_t SavePlan::image_bytes() const { return sections.back().end; }

Identity SavePlan::identity_of(std::size_t file) const {
  Identity own = identity;
  own.part.file = static_cast<std::uint32_t>(file);
  own.part.file_count = static_cast<std::uint32_t>(file_count());
  return own;
}

const Annotations& SavePlan::annotations_of(std::size_t file) const {
  static const Annotations kNone;
  return file == 0 ? annotations : kNone;
}

HeaderParts SavePlan::header(std::size_t file, const Identity& own) const {
  static const TableText kNoTensors;
  static const TableText kNoRanges{
      .entries = {}, .data_bytes = 0, .members = {}, .extras = {}, .range_count = 0};
  const TableText& none = has_ranges() ? kNoRanges : kNoTensors;
  return {.identity = own,
          .annotations = annotations_of(file),
          .tree_member = file < tree->members.size() ? tree->members[file] : std::string_view(),
          .table = file < table->files.size() ? table->files[file] : none};
}

Status SavePlanner::accept(const SaveRequest& request) {
  DF_TRY_VOID(accept(request.tensors));
  return accept_tree(request.objects);
}

Status SavePlanner::accept(const TensorTable& tensors) {
  if (has_tensors_of(tensors)) return {};
  table_.reset();
  DF_TRY_VOID(check_table(tensors));
  specs_ = specs_of(tensors);
  bytes_ = bytes_of(tensors);
  return among_ranks_ ? Status{} : take_shares(whole_shares(specs_));
}

// What check_table() would find is then found already, but for guards.
bool SavePlanner::has_tensors_of(const TensorTable& tensors) const {
  if (!table_ || specs_.size() != tensors.size()) return false;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    if (tensor.guard > kGuardsMax || tensor.data.size() != bytes_[i]) return false;
    if (!(tensor.spec == specs_[i])) return false;
  }
  return true;
}

Status SavePlanner::take_shares(std::span<const Share> shares) {
  table_.reset();  // what other ranks write is no longer what it was planned with
  for (const Share& share : shares) DF_TRY_VOID(check_share(share, specs_));
  DF_TRY(TablePlan table, plan_table(specs_, shares, budget_));
  table_ = std::make_shared<const TablePlan>(std::move(table));
  return {};
}

Status SavePlanner::accept_tree(const std::string& objects) {
  if (tree_ && tree_->tree == objects) return {};
  tree_.reset();
  DF_TRY_VOID(check_objects(objects));
  DF_TRY(TreeText tree, write_tree(objects, budget_));
  tree_ = std::make_shared<const TreeText>(std::move(tree));
  return {};
}

SavePlan SavePlanner::plan_capture(const TensorTable& tensors) const {
  SavePlan plan{.table = table_, .sections = sections_of(table_->files, table_->files.size())};
  plan.items.reserve(tensors.size());
  auto source = table_->sources.begin();
  for (std::size_t file = 0; file < table_->files.size(); ++file) {
    const std::uint64_t begin = plan.sections[file].begin;
    for (const ShardEntry& entry : table_->files[file].entries) {
      const Tensor& tensor = tensors[source->tensor];
      plan.items.push_back({.source = tensor.data.subspan(source->first_byte, entry.extent.size()),
                            .offset = begin + entry.extent.begin,
                            .guard = tensor.guard});
      ++source;
    }
  }
  return plan;
}

Result<SavePlan> SavePlanner::plan_save(const SaveRequest& request, const Identity& identity,
                                        const std::optional<ParentPoint>& parent) const {
  SavePlan plan = plan_capture(request.tensors);
  plan.tree = tree_;
  plan.identity = identity;
  if (identity.part.rank == 0) plan.annotations = annotate(request, parent);
  const std::size_t files = std::max(table_->files.size(), tree_->members.size());
  plan.sections = sections_of(table_->files, files);
  for (std::size_t file = 0; file < files; ++file) {
    const Identity own = plan.identity_of(file);
    DF_TRY(const std::uint64_t bytes, encoded_header_bytes(plan.header(file, own)));
    plan.header_bytes.push_back(bytes);
  }
  return plan;
}

}  // namespace deepfreeze
