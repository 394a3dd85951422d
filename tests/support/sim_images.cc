// Which disk states a power cut may leave: a choice of one fate for each pending change.
//
// Order, until `limit` different states are found: (1) every choice, if they all fit in `limit`;
// else (2) the changes arrived in order up to some point; (3) one change has another fate than all
// others; (4) every subset, for few changes; (5) random choices.
#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <utility>

#include "support/sim_model.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kSubsetChangesMax = 10;
constexpr std::size_t kRandomTriesPerImage = 4;  // many choices look alike
constexpr std::size_t kKept = 0;                 // places in fates_of
constexpr std::size_t kLost = 1;

using Choice = std::vector<std::size_t>;  // for each change, a place in fates_of

std::string label_of(const SimCrash& crash, const SimChange& change, const SimFate& fate) {
  const SimOperation& made_by = crash.log.at(change.operation);
  std::string text = "#" + std::to_string(made_by.index) + " " +
                     std::string(to_string(made_by.kind)) + " " + made_by.name;
  if (!made_by.target.empty()) text += " to " + made_by.target;
  if (fate.kind == SimFate::Kind::kLost) return text + " lost; ";
  return text + " torn at " + std::to_string(fate.prefix_bytes) +
         (fate.old_data    ? " with old data; "
          : fate.full_size ? " with full size; "
                           : "; ");
}

std::set<InodeId> nameable_inodes(const SimCrash& crash) {
  std::set<InodeId> inodes;
  for (const auto& [inode, node] : reachable(crash.durable)) inodes.insert(inode);
  for (const SimChange& change : crash.pending) {
    if (const auto* naming = std::get_if<SimNaming>(&change.what)) inodes.insert(naming->inode);
  }
  return inodes;
}

// Without the data of files that no outcome can name: they would only multiply the choices.
std::vector<SimChange> visible_changes(const SimCrash& crash) {
  const std::set<InodeId> inodes = nameable_inodes(crash);
  std::vector<SimChange> changes;
  std::ranges::copy_if(crash.pending, std::back_inserter(changes), [&](const SimChange& change) {
    return std::holds_alternative<SimNaming>(change.what) ||
           std::ranges::any_of(inodes, [&](InodeId id) { return changes_data_of(change, id); });
  });
  return changes;
}

class ImageSearch {
 public:
  ImageSearch(const SimCrash& crash, std::size_t limit, const SimImageVisitor& visit)
      : crash_(crash), changes_(visible_changes(crash)), limit_(limit), visit_(visit) {
    for (const SimChange& change : changes_) fates_.push_back(fates_of(change));
  }

  void run(std::uint64_t seed);

 private:
  [[nodiscard]] bool full() const { return seen_.size() >= limit_; }
  [[nodiscard]] bool all_choices_fit() const;
  void add(const Choice& choice);
  void add_every_choice(const Choice& fate_counts);
  void add_in_order();
  void add_one_differs();
  void add_random(std::uint64_t seed);

  const SimCrash& crash_;
  std::vector<SimChange> changes_;
  std::vector<std::vector<SimFate>> fates_;
  std::size_t limit_;
  const SimImageVisitor& visit_;
  std::set<std::size_t> seen_;  // hashes of fingerprints
};

void ImageSearch::add(const Choice& choice) {
  if (full()) return;
  SimTree tree = crash_.durable;
  std::string label;
  for (std::size_t i = 0; i < changes_.size(); ++i) {
    const SimFate& fate = fates_[i][choice[i]];
    apply(tree, changes_[i], fate);
    if (choice[i] != kKept) label += label_of(crash_, changes_[i], fate);
  }
  tree = reachable(tree);
  if (!seen_.insert(std::hash<std::string>()(fingerprint(tree))).second) return;
  visit_({.tree = std::move(tree), .label = label.empty() ? "nothing lost" : std::move(label)});
}

bool ImageSearch::all_choices_fit() const {
  std::size_t choices = 1;
  for (const auto& fates : fates_) {
    choices *= fates.size();
    if (choices > limit_) return false;
  }
  return true;
}

// Counts through all choices like an odometer.
void ImageSearch::add_every_choice(const Choice& fate_counts) {
  Choice choice(changes_.size(), kKept);
  while (!full()) {
    add(choice);
    std::size_t wheel = 0;
    while (wheel < choice.size() && ++choice[wheel] == fate_counts[wheel]) choice[wheel++] = kKept;
    if (wheel == choice.size()) return;
  }
}

void ImageSearch::add_in_order() {
  for (std::size_t arrived = changes_.size() + 1; arrived-- > 0 && !full();) {
    Choice choice(changes_.size(), kLost);
    std::fill_n(choice.begin(), arrived, kKept);
    add(choice);
  }
}

void ImageSearch::add_one_differs() {
  for (const std::size_t others : {kKept, kLost}) {
    for (std::size_t i = 0; i < changes_.size(); ++i) {
      Choice choice(changes_.size(), others);
      for (choice[i] = 0; choice[i] < fates_[i].size() && !full(); ++choice[i]) add(choice);
    }
  }
}

// Half of the changes are kept, so that long protocols get somewhere. No std distribution: its
// numbers differ between standard libraries.
void ImageSearch::add_random(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Choice choice(changes_.size());
  for (std::size_t tries = limit_ * kRandomTriesPerImage; tries-- > 0 && !full();) {
    for (std::size_t i = 0; i < choice.size(); ++i) {
      choice[i] = random() % 2 == 0 ? kKept : random() % fates_[i].size();
    }
    add(choice);
  }
}

void ImageSearch::run(std::uint64_t seed) {
  Choice fate_counts;
  for (const auto& fates : fates_) fate_counts.push_back(fates.size());
  if (all_choices_fit()) return add_every_choice(fate_counts);
  add_in_order();
  add_one_differs();
  if (changes_.size() <= kSubsetChangesMax) add_every_choice(Choice(changes_.size(), kLost + 1));
  add_random(seed);
}

}  // namespace

void for_each_crash_tree(const SimCrash& crash, const SimImageSearch& search,
                         const SimImageVisitor& visit) {
  ImageSearch(crash, search.limit, visit).run(search.seed);
}

}  // namespace deepfreeze
