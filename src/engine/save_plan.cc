#include "engine/save_plan.h"

#include <algorithm>

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

void place_tensors(const TensorTable& tensors, const Layout& layout, SavePlan& plan) {
  plan.header.entries.reserve(tensors.size());
  plan.items.reserve(tensors.size());
  for (const std::size_t index : layout.order) {
    const Extent extent = layout.extents[index];
    plan.header.entries.push_back({tensors[index].spec, extent});
    plan.items.push_back(
        {.source = tensors[index].data, .offset = extent.begin, .guard = tensors[index].guard});
  }
}

}  // namespace

Status check_request(const SaveRequest& request) {
  DF_TRY_VOID(check_table(request.tensors));
  return check_objects(request.objects);
}

Result<SavePlan> plan_capture(const TensorTable& tensors) {
  DF_TRY(const Layout layout, lay_out(specs_of(tensors)));

  SavePlan plan;
  plan.header.data_bytes = layout.data_bytes;
  plan.header.block_crcs.assign(block_count(layout.data_bytes), 0);
  place_tensors(tensors, layout, plan);
  return plan;
}

Result<SavePlan> plan_save(const SaveRequest& request, const Identity& identity,
                           const std::optional<ParentPoint>& parent) {
  DF_TRY(SavePlan plan, plan_capture(request.tensors));
  plan.header.identity = identity;
  plan.header.annotations = annotate(request, parent);
  plan.header.tree = request.objects;
  DF_TRY(const EncodedHeader encoded, encode_header(plan.header));
  plan.header_bytes = encoded.bytes.size();
  return plan;
}

}  // namespace deepfreeze
