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

// What check_table() would find is then found already, but for guards.
bool has_tensors_of(const TablePlan& plan, const TensorTable& tensors) {
  if (plan.order.size() != tensors.size()) return false;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[plan.order[i]];
    const ShardEntry& entry = plan.text.entries[i];
    if (tensor.guard > kGuardsMax || tensor.data.size() != entry.extent.size() ||
        tensor.spec != entry.spec) {
      return false;
    }
  }
  return true;
}

std::vector<TensorSpec> specs_of(const TensorTable& tensors) {
  std::vector<TensorSpec> specs(tensors.size());
  std::ranges::transform(tensors, specs.begin(), &Tensor::spec);
  return specs;
}

Result<TablePlan> plan_table(const TensorTable& tensors) {
  DF_TRY_VOID(check_table(tensors));
  std::vector<TensorSpec> specs = specs_of(tensors);
  DF_TRY(Layout layout, lay_out(specs));
  std::vector<ShardEntry> entries;
  entries.reserve(specs.size());
  for (const std::size_t index : layout.order) {
    entries.push_back({.spec = std::move(specs[index]), .extent = layout.extents[index]});
  }
  DF_TRY(TableText text, write_table(std::move(entries), layout.data_bytes));
  return TablePlan{.text = std::move(text), .order = std::move(layout.order)};
}

}  // namespace

Status SavePlanner::accept(const SaveRequest& request) {
  DF_TRY_VOID(accept(request.tensors));
  return accept_tree(request.objects);
}

Status SavePlanner::accept(const TensorTable& tensors) {
  if (table_ && has_tensors_of(*table_, tensors)) return {};
  table_.reset();
  DF_TRY(TablePlan table, plan_table(tensors));
  table_ = std::make_shared<const TablePlan>(std::move(table));
  return {};
}

Status SavePlanner::accept_tree(const std::string& objects) {
  if (tree_ && tree_->tree == objects) return {};
  tree_.reset();
  DF_TRY_VOID(check_objects(objects));
  DF_TRY(TreeText tree, write_tree(objects));
  tree_ = std::make_shared<const TreeText>(std::move(tree));
  return {};
}

SavePlan SavePlanner::plan_capture(const TensorTable& tensors) const {
  SavePlan plan{.table = table_};
  plan.items.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[table_->order[i]];
    const std::uint64_t offset = table_->text.entries[i].extent.begin;
    plan.items.push_back({.source = tensor.data, .offset = offset, .guard = tensor.guard});
  }
  return plan;
}

Result<SavePlan> SavePlanner::plan_save(const SaveRequest& request, const Identity& identity,
                                        const std::optional<ParentPoint>& parent) const {
  SavePlan plan = plan_capture(request.tensors);
  plan.tree = tree_;
  plan.identity = identity;
  plan.annotations = annotate(request, parent);
  DF_TRY(plan.header_bytes, encoded_header_bytes(plan.header()));
  return plan;
}

}  // namespace deepfreeze
