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

bool is_of(const Tensor& tensor, const ShardEntry& entry) {
  return tensor.guard <= kGuardsMax && tensor.data.size() == entry.extent.size() &&
         tensor.spec == entry.spec;
}

// What check_table() would find is then found already, but for guards.
bool has_tensors_of(const TablePlan& plan, const TensorTable& tensors) {
  if (plan.order.size() != tensors.size()) return false;
  auto place = plan.order.begin();
  for (const TableText& file : plan.files) {
    for (const ShardEntry& entry : file.entries) {
      if (!is_of(tensors[*place++], entry)) return false;
    }
  }
  return true;
}

std::vector<TensorSpec> specs_of(const TensorTable& tensors) {
  std::vector<TensorSpec> specs(tensors.size());
  std::ranges::transform(tensors, specs.begin(), &Tensor::spec);
  return specs;
}

Result<TablePlan> plan_table(const TensorTable& tensors, const HeaderBudget& budget) {
  DF_TRY_VOID(check_table(tensors));
  std::vector<TensorSpec> specs = specs_of(tensors);
  DF_TRY(Layout layout, lay_out(specs));
  std::vector<ShardEntry> entries;
  entries.reserve(specs.size());
  for (const std::size_t index : layout.order) {
    entries.push_back({.spec = std::move(specs[index]), .extent = layout.extents[index]});
  }
  DF_TRY(std::vector<TableText> files, write_tables(std::move(entries), budget));
  return TablePlan{.files = std::move(files), .order = std::move(layout.order)};
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
  if (table_ && has_tensors_of(*table_, tensors)) return {};
  table_.reset();
  DF_TRY(TablePlan table, plan_table(tensors, budget_));
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
  auto place = table_->order.begin();
  for (std::size_t file = 0; file < table_->files.size(); ++file) {
    const std::uint64_t begin = plan.sections[file].begin;
    for (const ShardEntry& entry : table_->files[file].entries) {
      const Tensor& tensor = tensors[*place++];
      plan.items.push_back(
          {.source = tensor.data, .offset = begin + entry.extent.begin, .guard = tensor.guard});
    }
  }
  return plan;
}

Result<SavePlan> SavePlanner::plan_save(const SaveRequest& request, const Identity& identity,
                                        const std::optional<ParentPoint>& parent) const {
  SavePlan plan = plan_capture(request.tensors);
  plan.tree = tree_;
  plan.identity = identity;
  plan.annotations = annotate(request, parent);
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
