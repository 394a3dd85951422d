#include "save/save_plan.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/checked_math.h"
#include "base/clock.h"
#include "base/try.h"
#include "format/state_tree.h"
#include "tensor/region.h"
#include "tensor/tensor_table.h"

namespace deepfreeze {
namespace {

Status check_objects(const std::string& objects, TreeMemo& memo) {
  if (objects.empty()) return {};
  const Status checked = check_tree(objects, memo);
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

// Adds files with these shares behind those of the plan.
Status add_files(const std::vector<TensorSpec>& specs, std::span<const Share> shares,
                 const HeaderBudget& budget, TablePlan& plan) {
  std::vector<TensorSpec> stored;
  stored.reserve(shares.size());
  for (const Share& share : shares) stored.push_back(spec_of_share(specs[share.tensor], share));
  DF_TRY(const Layout layout, lay_out(stored));
  std::vector<ShardEntry> entries;
  entries.reserve(stored.size());
  plan.sources.reserve(plan.sources.size() + stored.size());
  for (const std::size_t index : layout.order) {
    const Share& share = shares[index];
    const std::uint64_t row_bytes = rows_of(specs[share.tensor]).bytes;
    plan.sources.push_back({.tensor = share.tensor, .first_byte = share.first_row * row_bytes});
    entries.push_back({.spec = std::move(stored[index]), .extent = layout.extents[index]});
  }
  DF_TRY(std::vector<TableText> files, write_tables(std::move(entries), budget));
  std::ranges::move(files, std::back_inserter(plan.files));
  return {};
}

Result<TablePlan> plan_table(const std::vector<TensorSpec>& specs, std::span<const Share> shares,
                             const std::vector<bool>& cold, const HeaderBudget& budget) {
  std::vector<Share> hot;
  std::vector<Share> apart;
  for (const Share& share : shares) {
    (!cold.empty() && cold[share.tensor] ? apart : hot).push_back(share);
  }
  TablePlan plan;
  plan.tensor_count = specs.size();
  DF_TRY_VOID(add_files(specs, hot, budget, plan));
  const std::size_t hot_files = plan.files.size();
  if (!apart.empty()) DF_TRY_VOID(add_files(specs, apart, budget, plan));
  plan.cold_files = plan.files.size() - hot_files;
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

std::uint64_t SavePlan::image_bytes() const {
  const std::uint64_t bytes = sections.back().end;
  const std::uint64_t audited = table->audit.bytes_max();
  if (audited == 0) return bytes;
  // A slab is left when the next piece does not fit: it is full but for less than a piece.
  const std::uint64_t slabs = audited / (kSlabBytes - kAuditPieceBytes) + 1;
  return round_up(bytes, kSlabBytes) + slabs * kSlabBytes;
}

std::vector<Section> SavePlan::image_sections() const {
  std::vector<Section> all = sections;
  all.insert(all.end(), audit_sections.begin(), audit_sections.end());
  return all;
}

std::span<const CaptureItem> SavePlan::audit_items() const {
  return std::span(items).last(audit.size());
}

const std::string& SavePlan::key_of(std::size_t item) const {
  const std::size_t stored = items.size() - audit.size();
  return item < stored ? table->key_of(item) : audit[item - stored].key;
}

Identity SavePlan::identity_of(std::size_t file) const {
  Identity own = identity;
  own.part.file = static_cast<std::uint32_t>(file);
  own.part.file_count = static_cast<std::uint32_t>(file_count());
  return own;
}

std::vector<PartName> SavePlan::part_names() const {
  std::vector<PartName> names;
  for (std::size_t file = 0; file < file_count(); ++file) names.push_back(identity_of(file).part);
  return names;
}

std::vector<FileSpec> SavePlan::file_specs() const {
  const std::string directory = attempt_dir_name({identity.step, identity.attempt_id});
  std::vector<FileSpec> files;
  for (std::size_t file = 0; file < file_count(); ++file) {
    files.push_back({.name = directory + "/" + part_file_name(identity_of(file).part),
                     .header_bytes = header_bytes[file]});
  }
  return files;
}

std::span<const std::uint32_t> SavePlan::block_crcs_of(
    std::size_t file, std::span<const std::uint32_t> of_image) const {
  const Section& section = sections[file];
  return section.size() == 0
             ? of_image.first(0)
             : of_image.subspan(section.begin / kBlockBytes, block_count(section.size()));
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
          .table = file < table->files.size() ? table->files[file] : none,
          .audit = file == 0 ? &audit_text : nullptr,
          .link_count = file == 0 ? table->cold_files : 0};
}

std::vector<LinkedFile> SavePlan::no_links() const {
  std::vector<LinkedFile> links;
  for (std::size_t file = hot_file_count(); file < file_count(); ++file) {
    links.push_back({.file = static_cast<std::uint32_t>(file), .header_crc = 0, .origin = {}});
  }
  return links;
}

Status SavePlanner::accept(const SaveRequest& request) {
  DF_TRY_VOID(accept(request.tensors));
  DF_TRY_VOID(accept_tree(request.objects));
  return has_room_for_tree() ? Status{} : make_cold({});
}

Status SavePlanner::make_cold(const std::vector<bool>& tensors) {
  if (!table_ || tensors == refused_ || (tensors == cold_ && has_room_for_tree())) return {};
  cold_ = tensors;
  DF_TRY_VOID(plan_tables());
  if (has_room_for_tree()) return {};
  refused_ = std::exchange(cold_, {});
  return plan_tables();
}

// The tree's pieces lie in the first files, and none in a cold one.
bool SavePlanner::has_room_for_tree() const {
  return !table_ || !tree_ || table_->cold_files == 0 ||
         tree_->members.size() <= table_->files.size() - table_->cold_files;
}

Status SavePlanner::accept(const TensorTable& tensors) {
  if (has_tensors_of(tensors)) return {};
  table_.reset();
  DF_TRY_VOID(check_table(tensors));
  specs_ = specs_of(tensors);
  bytes_ = bytes_of(tensors);
  cold_.clear();
  refused_.reset();
  return among_ranks_ ? Status{} : take_shares(whole_shares(specs_));
}

// True if only guards and places may have changed; every other check of check_table() has been
// made.
bool SavePlanner::has_tensors_of(const TensorTable& tensors) const {
  if (!table_ || specs_.size() != tensors.size()) return false;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    if (tensor.guard > kGuardsMax || tensor.data.size() != bytes_[i]) return false;
    if (!(tensor.spec == specs_[i])) return false;
  }
  return true;
}

Status SavePlanner::take_shares(std::span<const Share> shares, const AuditPlan& audit) {
  table_.reset();  // the other ranks' shares no longer fit the plan
  for (const Share& share : shares) DF_TRY_VOID(check_share(share, specs_));
  if (!audit.groups.empty() && audit.groups.size() != specs_.size()) {
    return fail(ErrorCode::kInternal, "an audit of other tensors than this rank has");
  }
  shares_.assign(shares.begin(), shares.end());
  audit_ = audit;
  return plan_tables();
}

Status SavePlanner::plan_tables() {
  table_.reset();
  DF_TRY(TablePlan table, plan_table(specs_, shares_, cold_, budget_));
  table.audit = Audit(specs_, audit_);
  table_ = std::make_shared<const TablePlan>(std::move(table));
  return {};
}

Status SavePlanner::accept_tree(const std::string& objects) {
  if (tree_ && tree_->tree == objects) return {};
  const auto last = std::exchange(tree_, nullptr);
  DF_TRY_VOID(check_objects(objects, tree_memo_));
  DF_TRY(TreeText tree, last ? rewrite_tree(objects, *last, budget_.tree_bytes)
                             : write_tree(objects, budget_.tree_bytes));
  tree_ = std::make_shared<const TreeText>(std::move(tree));
  return {};
}

// Pieces are put into slab after slab, none across two.
void SavePlanner::add_audit(const TensorTable& tensors, std::uint64_t save_index,
                            SavePlan& plan) const {
  const std::vector<AuditPiece> pieces = table_->audit.pieces(save_index);
  for (const AuditPiece& piece : pieces) {
    const TensorSpec& spec = specs_[piece.tensor];
    plan.audit.push_back({spec.key, stored_box(spec).offset, piece.first_byte, piece.bytes});
  }
  plan.audit_text = write_audit(plan.audit);
  plan.audit.resize(plan.audit_text.count);
  std::uint64_t slab_end = round_up(plan.sections.back().end, kSlabBytes);
  for (std::size_t i = 0; i < plan.audit.size(); ++i) {
    const Tensor& tensor = tensors[pieces[i].tensor];
    if (plan.audit_sections.empty() ||
        plan.audit_sections.back().end + pieces[i].bytes > slab_end) {
      plan.audit_sections.push_back({.begin = slab_end, .end = slab_end});
      slab_end += kSlabBytes;
    }
    std::uint64_t& end = plan.audit_sections.back().end;
    plan.items.push_back({.source = tensor.data.subspan(pieces[i].first_byte, pieces[i].bytes),
                          .offset = end,
                          .guard = tensor.guard,
                          .device = tensor.device});
    end += pieces[i].bytes;
  }
}

SavePlan SavePlanner::plan_capture(const TensorTable& tensors, std::uint64_t save_index) const {
  SavePlan plan{.table = table_, .sections = sections_of(table_->files, table_->files.size())};
  plan.items.reserve(tensors.size());
  auto source = table_->sources.begin();
  for (std::size_t file = 0; file < table_->files.size(); ++file) {
    const std::uint64_t begin = plan.sections[file].begin;
    for (const ShardEntry& entry : table_->files[file].entries) {
      const Tensor& tensor = tensors[source->tensor];
      plan.items.push_back({.source = tensor.data.subspan(source->first_byte, entry.extent.size()),
                            .offset = begin + entry.extent.begin,
                            .guard = tensor.guard,
                            .device = tensor.device});
      ++source;
    }
  }
  add_audit(tensors, save_index, plan);
  return plan;
}

Result<SavePlan> SavePlanner::plan_save(const SaveRequest& request, const Identity& identity,
                                        const std::optional<ParentPoint>& parent) const {
  SavePlan plan = plan_capture(request.tensors, identity.save_index);
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
