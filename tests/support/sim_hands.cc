// The tester's actions on a SimDisk: arms faults, looks, breaks things, pulls the plug.
#include <utility>

#include "storage/vfs_name.h"
#include "support/sim_disk.h"

namespace deepfreeze {

void SimDisk::crash_at(std::size_t index) {
  const std::lock_guard lock(mutex_);
  crash_at_ = index;
}

void SimDisk::power_off() {
  const std::lock_guard lock(mutex_);
  powered_ = false;
}

void SimDisk::kill_at(std::size_t index) {
  const std::lock_guard lock(mutex_);
  kill_at_ = index;
}

void SimDisk::revive() {
  const std::lock_guard lock(mutex_);
  kill_at_ = std::numeric_limits<std::size_t>::max();
  killed_ = false;
}

void SimDisk::fail_at(std::size_t index, int os_errno) {
  const std::lock_guard lock(mutex_);
  failures_[index] = os_errno;
}

void SimDisk::fail_after(std::size_t index, int os_errno) {
  const std::lock_guard lock(mutex_);
  late_failures_[index] = os_errno;
}

void SimDisk::fail_read_at(std::size_t index, int os_errno) {
  const std::lock_guard lock(mutex_);
  read_failures_[index] = os_errno;
}

void SimDisk::ignore_sync(std::size_t index) {
  const std::lock_guard lock(mutex_);
  ignored_syncs_.insert(index);
}

void SimDisk::set_bytes_free(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_free_ = bytes;
}

void SimDisk::refuse_links() {
  const std::lock_guard lock(mutex_);
  links_refused_ = true;
}

void SimDisk::refuse_direct() {
  const std::lock_guard lock(mutex_);
  direct_refused_ = true;
}

std::vector<SimOperation> SimDisk::operations() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

std::size_t SimDisk::operation_count() const {
  const std::lock_guard lock(mutex_);
  return log_.size();
}

std::size_t SimDisk::read_count() const {
  const std::lock_guard lock(mutex_);
  return reads_;
}

std::size_t SimDisk::pending_count() const {
  const std::lock_guard lock(mutex_);
  return pending_.size();
}

std::size_t SimDisk::open_files() const {
  const std::lock_guard lock(mutex_);
  return open_files_;
}

std::uint64_t SimDisk::bytes_written() const {
  const std::lock_guard lock(mutex_);
  return bytes_written_;
}

std::optional<Error> SimDisk::injected() const {
  const std::lock_guard lock(mutex_);
  return injected_;
}

std::vector<std::unique_ptr<SimDisk>> SimDisk::crash_images(std::size_t limit,
                                                            std::uint64_t seed) const {
  std::vector<std::unique_ptr<SimDisk>> images;
  visit_crash_trees({.limit = limit, .seed = seed}, [&images](SimImage image) {
    images.push_back(std::make_unique<SimDisk>(std::move(image.tree), std::move(image.label)));
  });
  return images;
}

void SimDisk::for_each_crash_image(std::size_t limit, std::uint64_t seed,
                                   const std::function<void(SimDisk&)>& visit) const {
  visit_crash_trees({.limit = limit, .seed = seed}, [&visit](SimImage image) {
    SimDisk disk(std::move(image.tree), std::move(image.label));
    visit(disk);
  });
}

// On copies, so that the visitor may use this disk too.
void SimDisk::visit_crash_trees(const SimImageSearch& search, const SimImageVisitor& visit) const {
  SimTree durable;
  std::vector<SimChange> pending;
  std::vector<SimOperation> log;
  {
    const std::lock_guard lock(mutex_);
    durable = durable_;
    pending = pending_;
    log = log_;
  }
  for_each_crash_tree({.durable = durable, .pending = pending, .log = log}, search, visit);
}

std::unique_ptr<SimDisk> SimDisk::clone() const {
  const std::lock_guard lock(mutex_);
  return std::make_unique<SimDisk>(seen_, label_);
}

std::optional<InodeId> SimDisk::find_file(std::string_view name) const {
  const auto inode = find_inode("look at", name);
  if (!inode || seen_.at(*inode).is_directory) return std::nullopt;
  return *inode;
}

std::optional<std::string> SimDisk::contents(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto inode = find_file(name);
  if (!inode) return std::nullopt;
  return seen_.at(*inode).content;
}

namespace {

void list_below(const SimTree& tree, InodeId inode, const std::string& prefix,
                std::vector<std::string>& names) {
  for (const auto& [leaf, child] : tree.at(inode).entries) {
    const bool is_directory = tree.at(child).is_directory;
    names.push_back(prefix + leaf + (is_directory ? "/" : ""));
    if (is_directory) list_below(tree, child, prefix + leaf + "/", names);
  }
}

}  // namespace

std::vector<std::string> SimDisk::list_all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  list_below(seen_, kSimRoot, "", names);
  return names;
}

InodeId SimDisk::plant_name(InodeId directory, std::string_view leaf, bool is_directory) {
  const std::string name(leaf);
  const auto& entries = seen_.at(directory).entries;
  const auto entry = entries.find(name);
  const InodeId inode = entry != entries.end() ? entry->second : add_inode(is_directory);
  seen_.at(directory).entries[name] = inode;
  durable_.at(directory).entries[name] = inode;
  return inode;
}

void SimDisk::plant(std::string_view name, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  InodeId directory = kSimRoot;
  for (auto slash = name.find('/'); slash != name.npos; slash = name.find('/')) {
    directory = plant_name(directory, name.substr(0, slash), true);
    name.remove_prefix(slash + 1);
  }
  const InodeId inode = plant_name(directory, name, false);
  std::erase_if(pending_, [&](const SimChange& change) { return changes_data_of(change, inode); });
  seen_.at(inode).content = bytes;
  durable_.at(inode).content = bytes;
}

bool SimDisk::flip_bit(std::string_view name, std::uint64_t bit_index) {
  const auto content = contents(name);
  const std::uint64_t byte_index = bit_index / 8;
  if (!content || byte_index >= content->size()) return false;
  const char flipped = static_cast<char>((*content)[byte_index] ^ (1 << (bit_index % 8)));
  return overwrite(name, byte_index, {&flipped, 1});
}

bool SimDisk::overwrite(std::string_view name, std::uint64_t offset, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  const auto inode = find_file(name);
  if (!inode) return false;
  std::string& seen = seen_.at(*inode).content;
  if (offset > seen.size() || bytes.size() > seen.size() - offset) return false;
  seen.replace(offset, bytes.size(), bytes);
  std::erase_if(pending_, [&](const SimChange& change) { return changes_data_of(change, *inode); });
  durable_.at(*inode).content = seen;
  return true;
}

}  // namespace deepfreeze
