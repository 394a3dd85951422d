#include "inspect/lineage.h"

#include <algorithm>
#include <map>
#include <ranges>
#include <set>
#include <utility>

#include "manifest/history.h"
#include "restore/opened_run.h"

namespace deepfreeze {
namespace {

using Generations = std::map<std::uint64_t, GenerationEntry>;

Generations collect(const RunListing& listing) {
  Generations entries;
  for (const Claim& claim : listing.claims) {
    GenerationEntry& entry = entries[claim.generation];
    entry.claim_readable = claim.record.has_value();
    if (claim.record) entry.resumed_from = claim.record->resumed_from;
  }
  const std::vector<Manifest> manifests = newest_first(listing);
  for (const Manifest& manifest : std::views::reverse(manifests)) {
    const bool abandoned = !on_current_line(listing, manifest.point);
    entries[manifest.point.generation].steps.push_back({manifest.point, abandoned});
  }
  for (auto& [number, entry] : entries) entry.generation = number;
  return entries;
}

// The generation that `entry` continues: a known and lower one, so that there are no cycles.
std::optional<std::uint64_t> parent_of(const Generations& entries, const GenerationEntry& entry) {
  if (!entry.resumed_from) return std::nullopt;
  const std::uint64_t parent = entry.resumed_from->generation;
  if (parent >= entry.generation || !entries.contains(parent)) return std::nullopt;
  return parent;
}

std::set<std::uint64_t> line_to_newest(const Generations& entries) {
  std::set<std::uint64_t> line;
  if (entries.empty()) return line;
  std::optional<std::uint64_t> next = entries.rbegin()->first;
  while (next) {
    line.insert(*next);
    next = parent_of(entries, entries.at(*next));
  }
  return line;
}

}  // namespace

std::vector<ParentEntry> parents_of(const RunListing& listing) {
  std::vector<ParentEntry> parents;
  std::set<std::string> seen{listing.run.run_id};
  std::optional<ParentPoint> next = listing.run.parent;
  while (next && parents.size() < kParentsMax) {
    parents.push_back({.point = *next, .run_id = {}, .cause = {}});
    const auto parent = open_run(next->run);
    if (!parent) {
      parents.back().cause = parent.error().message();
      break;
    }
    parents.back().run_id = parent->listing.run.run_id;
    if (!seen.insert(parents.back().run_id).second) {
      parents.back().cause = "it is among its own ancestors";
      break;
    }
    next = parent->listing.run.parent;
  }
  return parents;
}

std::vector<GenerationEntry> generations_of(const RunListing& listing) {
  Generations entries = collect(listing);
  const std::set<std::uint64_t> line = line_to_newest(entries);
  std::map<std::optional<std::uint64_t>, std::vector<std::uint64_t>> children;
  for (const auto& [number, entry] : entries) {
    children[parent_of(entries, entry)].push_back(number);
  }
  // Depth first, without recursion: a run may have been resumed many thousand times. The generation
  // that continues the line comes last, so that it is drawn below the side branches.
  std::vector<std::uint64_t> open = children[std::nullopt];
  std::ranges::reverse(open);
  std::vector<GenerationEntry> drawn;
  while (!open.empty()) {
    GenerationEntry& entry = entries.at(open.back());
    open.pop_back();
    std::vector<std::uint64_t>& next = children[entry.generation];
    const auto onward =
        std::ranges::find_if(next, [&](std::uint64_t child) { return line.contains(child); });
    if (onward != next.end()) std::rotate(onward, onward + 1, next.end());
    for (const std::uint64_t child : std::views::reverse(next)) {
      const bool continues = child == next.back();
      entries.at(child).depth = entry.depth + (continues ? 0 : 1);
      open.push_back(child);
    }
    drawn.push_back(std::move(entry));
  }
  return drawn;
}

}  // namespace deepfreeze
