// Everything about a save that is known before a byte is copied.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "arena/image.h"
#include "deepfreeze/checkpointer.h"
#include "format/header_parts.h"
#include "format/tree_memo.h"
#include "format/tree_text.h"
#include "pipeline/part_writer.h"
#include "plan/audit.h"
#include "plan/share.h"
#include "staging/capture_session.h"

namespace deepfreeze {

// The source of an entry's bytes: a tensor of the request's table, from this byte of it on.
struct EntrySource {
  std::size_t tensor = 0;
  std::uint64_t first_byte = 0;
};

// The data that saves of the same tensors, at whatever addresses, have in common.
struct TablePlan {
  std::vector<TableText> files;      // one at least
  std::size_t cold_files = 0;        // the last of them have the tensors that do not change
  std::size_t tensor_count = 0;      // of the request
  std::vector<EntrySource> sources;  // of the entries of all files
  Audit audit;

  // The key of the entry at that place in `sources`.
  [[nodiscard]] const std::string& key_of(std::size_t item) const;
};

struct SavePlan {
  std::shared_ptr<const TablePlan> table;
  std::vector<CaptureItem> items;  // in file order, then those of `audit`
  std::vector<Section> sections;   // of the image, by file
  // Bytes that are captured only to be compared with other ranks' copies; checksums are missing.
  std::vector<AuditRecord> audit;
  AuditText audit_text;
  std::vector<Section> audit_sections;  // behind those of the files, one for a slab
  // The rest is missing in the plan of a capture that begins before its save.
  std::shared_ptr<const TreeText> tree;
  Identity identity;
  Annotations annotations;
  // One size for each file. There are as many sections then: a long tree may need files without
  // tensors.
  std::vector<std::uint64_t> header_bytes;

  [[nodiscard]] std::size_t file_count() const { return sections.size(); }
  // Cold files are the last ones; a tree that needs more files than the others rules them out.
  [[nodiscard]] std::size_t hot_file_count() const { return file_count() - table->cold_files; }
  [[nodiscard]] bool has_ranges() const;           // every header has those of its tensors
  [[nodiscard]] std::uint64_t data_bytes() const;  // of all files
  // Includes the unused bytes between the sections, and as much as any save's audit may need:
  // growing the arena later would mean touching new memory during a save.
  [[nodiscard]] std::uint64_t image_bytes() const;
  [[nodiscard]] std::vector<Section> image_sections() const;
  [[nodiscard]] std::span<const CaptureItem> audit_items() const;
  [[nodiscard]] const std::string& key_of(std::size_t item) const;
  [[nodiscard]] Identity identity_of(std::size_t file) const;
  [[nodiscard]] std::vector<PartName> part_names() const;
  [[nodiscard]] std::vector<FileSpec> file_specs() const;  // under the names of unsealed files
  // For the first header, if all cold files are written for this attempt.
  [[nodiscard]] std::vector<LinkedFile> no_links() const;
  // A file's part of the image's checksums; between the files' parts lie blocks that no file has.
  [[nodiscard]] std::span<const std::uint32_t> block_crcs_of(
      std::size_t file, std::span<const std::uint32_t> of_image) const;
  [[nodiscard]] const Annotations& annotations_of(std::size_t file) const;
  // `identity`: identity_of() the same file. Borrows both.
  [[nodiscard]] HeaderParts header(std::size_t file, const Identity& identity) const;
};

// Plans the saves of one run, and reuses the last plan if names, dtypes, shapes and the state tree
// are the same. For the caller's thread.
class SavePlanner {
 public:
  // `among_ranks`: take_shares() says which part of its tensors this rank writes; otherwise it
  // writes all.
  explicit SavePlanner(HeaderBudget budget = {}, bool among_ranks = false)
      : budget_(budget), among_ranks_(among_ranks) {}

  // kInvalidArgument or kEncode names the key or the place in the objects.
  [[nodiscard]] Status accept(const SaveRequest& request);
  [[nodiscard]] Status accept(const TensorTable& tensors);

  // Puts these tensors, by their places in specs(), into files of their own, from the next plan on;
  // empty: none. The choice holds while the specs are the same, and the tree is not too long.
  [[nodiscard]] Status make_cold(const std::vector<bool>& tensors);

  // The specs accepted last.
  [[nodiscard]] const std::vector<TensorSpec>& specs() const { return specs_; }
  [[nodiscard]] bool has_shares() const { return table_ != nullptr; }
  // Takes shares in the order of specs(), each within its tensor. kInternal if one is not.
  [[nodiscard]] Status take_shares(std::span<const Share> shares, const AuditPlan& audit = {});

  // Plans the tensors accepted last, whose shares are known. `save_index`: that of the save that
  // the capture belongs to.
  [[nodiscard]] SavePlan plan_capture(const TensorTable& tensors, std::uint64_t save_index) const;
  // kInvalidArgument if a header would be larger than readers accept.
  [[nodiscard]] Result<SavePlan> plan_save(const SaveRequest& request, const Identity& identity,
                                           const std::optional<ParentPoint>& parent) const;

 private:
  [[nodiscard]] bool has_tensors_of(const TensorTable& tensors) const;
  [[nodiscard]] Status accept_tree(const std::string& objects);
  [[nodiscard]] Status plan_tables();
  [[nodiscard]] bool has_room_for_tree() const;
  void add_audit(const TensorTable& tensors, std::uint64_t save_index, SavePlan& plan) const;

  const HeaderBudget budget_;
  const bool among_ranks_;
  std::vector<TensorSpec> specs_;
  std::vector<std::uint64_t> bytes_;  // of specs_
  std::vector<Share> shares_;
  AuditPlan audit_;
  std::vector<bool> cold_;                    // by place in specs_; empty: none
  std::optional<std::vector<bool>> refused_;  // the last choice that the tree ruled out
  std::shared_ptr<const TablePlan> table_;    // null without shares; saves in flight share them
  std::shared_ptr<const TreeText> tree_;
  TreeMemo tree_memo_;
};

}  // namespace deepfreeze
