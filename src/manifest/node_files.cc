#include "manifest/node_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/try.h"

namespace deepfreeze {

bool is_of_several_nodes(const RunListing& listing, const Manifest& manifest) {
  if (!listing.node) return false;
  const auto claim =
      std::ranges::find(listing.claims, manifest.point.generation, &Claim::generation);
  return claim != listing.claims.end() && claim->record && claim->record->node.has_value();
}

std::vector<ManifestFile> files_of_node(const Manifest& manifest,
                                        const std::vector<DirEntry>& entries) {
  std::set<std::uint32_t> ranks;
  for (const DirEntry& entry : entries) {
    if (const auto part = parse_sealed_file_name(entry.name)) ranks.insert(part->rank);
  }
  std::vector<ManifestFile> files;
  for (const ManifestFile& file : manifest.files) {
    const auto part = parse_sealed_file_name(file.name);
    if (part && ranks.contains(part->rank)) files.push_back(file);
  }
  return files;
}

std::string files_here(const NodeFiles& own, const Manifest& manifest) {
  return fmt::format("{} of {} files here", own.here, manifest.files.size());
}

Result<NodeFiles> list_node_files(Vfs& vfs, const Manifest& manifest) {
  const AttemptName name{manifest.point.step, manifest.point.attempt_id};
  DF_TRY(const std::vector<DirEntry> entries, vfs.list(attempt_dir_name(name)));
  NodeFiles own{.manifest = manifest};
  own.manifest.files = files_of_node(manifest, entries);
  own.here = static_cast<std::size_t>(
      std::ranges::count_if(own.manifest.files, [&](const ManifestFile& file) {
        return std::ranges::find(entries, file.name, &DirEntry::name) != entries.end();
      }));
  own.elsewhere = manifest.files.size() - own.manifest.files.size();
  return own;
}

}  // namespace deepfreeze
