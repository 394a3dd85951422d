// The state tree: the check and the listing accept the same trees.
#include "format/state_tree.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/memory_meter.h"
#include "json/json_value.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kTimesInput = 256;  // two bytes of a key can be a leaf of three strings
constexpr std::size_t kLeafTextBytesMax = 4096;  // a key; all else is shortened

Status check_within_memory(std::string_view tree) {
  const MemoryMeter meter;
  Status checked = check_tree(tree);
  DF_TRY_VOID(meter.check(tree.size(), kTimesInput));
  return checked;
}

Status check_leaves(const std::vector<TreeLeaf>& leaves) {
  for (const TreeLeaf& leaf : leaves) {
    DF_TRY_VOID(promise(!leaf.kind.empty(), "a leaf of no kind"));
    const bool is_number = leaf.kind == "int" || leaf.kind == "float" || leaf.kind == "complex";
    DF_TRY_VOID(promise(is_number || leaf.text.size() <= kLeafTextBytesMax, "a text in full"));
  }
  return {};
}

}  // namespace

Status fuzz_tree(std::string_view input) {
  const Status checked = check_within_memory(input);
  if (!checked) DF_TRY_VOID(check_refusal(checked.error()));  // too much memory is none
  const auto leaves = walk_tree(input);
  if (!leaves) DF_TRY_VOID(check_refusal(leaves.error()));
  DF_TRY_VOID(promise(checked.has_value() == leaves.has_value(), "listing and checking differ"));
  if (!leaves) return {};
  DF_TRY_VOID(promise(parse_strict(input, kTreeDepthMax).has_value(), "a tree that is not JSON"));
  return check_leaves(*leaves);
}

}  // namespace deepfreeze
