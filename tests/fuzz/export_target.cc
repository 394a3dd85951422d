// The header of another program's safetensors file, made from any header that we accept: that
// program must find the same contents in it.
#include <nlohmann/json.hpp>

#include "cli/plain_safetensors.h"
#include "fuzz/framed.h"
#include "fuzz/fuzz_target.h"

namespace deepfreeze {
namespace {

using nlohmann::json;

constexpr std::size_t kPrefixBytes = 8;

// The specs that go into the file: parts of a tensor are refused before.
std::vector<TensorSpec> whole_tensors(const ShardHeader& header) {
  std::vector<TensorSpec> specs;
  for (const ShardEntry& entry : header.entries) {
    if (!entry.spec.box) specs.push_back(entry.spec);
  }
  return specs;
}

json member_of(const TensorSpec& spec, const Extent& extent) {
  return {{"dtype", dtype_name(spec.dtype)},
          {"shape", spec.shape},
          {"data_offsets", {extent.begin, extent.end}}};
}

Status check_members(const json& members, std::span<const TensorSpec> specs, const Layout& layout) {
  DF_TRY_VOID(promise(members.is_object() && members.size() == specs.size() + 1, "lost a tensor"));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const auto found = members.find(specs[i].key);
    const bool same = found != members.end() && *found == member_of(specs[i], layout.extents[i]);
    DF_TRY_VOID(promise(same, "a tensor became another"));
  }
  return {};
}

}  // namespace

Status fuzz_export(std::string_view input) {
  const auto header = decode_framed(input);
  if (!header) return {};
  const std::vector<TensorSpec> specs = whole_tensors(*header);
  const auto layout = lay_out(specs);
  if (!layout) return broken("accepted and not to be laid out: " + layout.error().message());
  const auto text = plain_safetensors_header(specs, *layout);
  if (!text) return broken("accepted and not to be exported: " + text.error().message());
  DF_TRY_VOID(promise(text->size() % kPageBytes == 0, "data that begins within a page"));
  const json members = json::parse(text->substr(kPrefixBytes), nullptr, false);
  return check_members(members, specs, *layout);
}

}  // namespace deepfreeze
