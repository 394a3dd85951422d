#include "support/sim_disk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "base/try.h"
#include "storage/os_error.h"
#include "storage/vfs_name.h"

namespace deepfreeze {

SimDisk::SimDisk(SimTree tree, std::string label)
    : seen_(std::move(tree)),
      durable_(seen_),
      next_inode_(seen_.rbegin()->first + 1),
      label_(std::move(label)) {}

std::string SimDisk::path_of(std::string_view name) const { return "sim:/" + std::string(name); }

Status SimDisk::check_power(std::string_view operation, std::string_view name) const {
  if (powered_ && !killed_) return {};
  const std::string_view cause = powered_ ? ": the process is dead" : ": power is off";
  return fail(ErrorCode::kIo, fmt::format("{} {}{}", operation, path_of(name), cause), EIO);
}

Status SimDisk::begin_read(std::string_view operation, std::string_view name) {
  DF_TRY_VOID(check_power(operation, name));
  const auto failure = read_failures_.find(reads_++);
  if (failure == read_failures_.end()) return {};
  return inject(operation, name, failure->second);
}

Status SimDisk::begin(SimOperationKind kind, std::string_view name, std::string_view target) {
  const std::size_t index = log_.size();
  if (index >= crash_at_) powered_ = false;
  if (index >= kill_at_) killed_ = true;
  DF_TRY_VOID(check_power(to_string(kind), name));
  log_.push_back(
      {.index = index, .kind = kind, .name = std::string(name), .target = std::string(target)});
  const auto failure = failures_.find(index);
  if (failure == failures_.end()) return {};
  return inject(to_string(kind), name, failure->second);
}

Status SimDisk::end() {
  const SimOperation& done = log_.back();
  const auto failure = late_failures_.find(done.index);
  if (failure == late_failures_.end()) return {};
  return inject(to_string(done.kind), done.name, failure->second);
}

Status SimDisk::inject(std::string_view operation, std::string_view name, int os_errno) {
  const auto failed = os_fail(operation, path_of(name), os_errno);
  injected_ = failed.error();
  return failed;
}

Result<SimDisk::Place> SimDisk::find(std::string_view operation, std::string_view name) const {
  const std::string path = path_of(name);
  Place place = {.directory = kSimRoot, .leaf = {}, .inode = kSimRoot};
  while (!name.empty()) {
    if (!place.inode) return os_fail(operation, path, ENOENT);
    const SimInode& directory = seen_.at(*place.inode);
    if (!directory.is_directory) return os_fail(operation, path, ENOTDIR);
    const std::size_t slash = name.find('/');
    place.directory = *place.inode;
    place.leaf = name.substr(0, slash);
    const auto entry = directory.entries.find(place.leaf);
    place.inode.reset();
    if (entry != directory.entries.end()) place.inode = entry->second;
    name = slash == std::string_view::npos ? std::string_view() : name.substr(slash + 1);
  }
  return place;
}

Result<InodeId> SimDisk::find_inode(std::string_view operation, std::string_view name) const {
  DF_TRY(const Place place, find(operation, name));
  if (!place.inode) return os_fail(operation, path_of(name), ENOENT);
  return *place.inode;
}

InodeId SimDisk::add_inode(bool is_directory) {
  const InodeId inode = next_inode_++;
  const SimInode node = {.is_directory = is_directory, .content = {}, .entries = {}};
  seen_.emplace(inode, node);
  durable_.emplace(inode, node);  // harmless: the file counts once its name becomes durable
  return inode;
}

void SimDisk::change(SimChange changed) {
  changed.operation = log_.size() - 1;
  apply(seen_, changed, {});
  pending_.push_back(std::move(changed));
}

void SimDisk::make_durable(const std::function<bool(const SimChange&)>& chosen) {
  std::vector<SimChange> left;
  for (SimChange& pending : pending_) {
    if (chosen(pending)) {
      apply(durable_, pending, {});
    } else {
      left.push_back(std::move(pending));
    }
  }
  pending_ = std::move(left);
}

bool SimDisk::takes_ignored_sync() const { return ignored_syncs_.contains(log_.size() - 1); }

Result<std::unique_ptr<File>> SimDisk::create(std::string_view name, Access access) {
  DF_TRY_VOID(check_vfs_name("create", name));
  const std::lock_guard lock(mutex_);
  DF_TRY_VOID(begin(SimOperationKind::kCreate, name));
  DF_TRY(const Place place, find("create", name));
  if (place.inode) return os_fail("create", path_of(name), EEXIST);
  const InodeId inode = add_inode(false);
  change({.what = SimNaming{.directory = place.directory, .added = place.leaf, .inode = inode}});
  DF_TRY_VOID(end());
  return open(name, inode, access, true);
}

Result<std::unique_ptr<File>> SimDisk::open_read(std::string_view name, Access access) {
  DF_TRY_VOID(check_vfs_name("open", name));
  const std::lock_guard lock(mutex_);
  DF_TRY_VOID(begin_read("open", name));
  DF_TRY(const InodeId inode, find_inode("open", name));
  if (seen_.at(inode).is_directory) return os_fail("open", path_of(name), EISDIR);
  return open(name, inode, access, false);
}

Status SimDisk::make_dir(std::string_view name) {
  DF_TRY_VOID(check_vfs_name("mkdir", name));
  const std::lock_guard lock(mutex_);
  DF_TRY_VOID(begin(SimOperationKind::kMakeDir, name));
  DF_TRY(const Place place, find("mkdir", name));
  if (place.inode) return os_fail("mkdir", path_of(name), EEXIST);
  const InodeId inode = add_inode(true);
  change({.what = SimNaming{.directory = place.directory, .added = place.leaf, .inode = inode}});
  return end();
}

Status SimDisk::rename_no_replace(std::string_view from, std::string_view to) {
  return rename(from, to, false);
}

Status SimDisk::rename_replacing(std::string_view from, std::string_view to) {
  return rename(from, to, true);
}

Status SimDisk::rename(std::string_view from, std::string_view to, bool replace) {
  DF_TRY_VOID(check_vfs_name("rename", from));
  DF_TRY_VOID(check_vfs_name("rename", to));
  const std::lock_guard lock(mutex_);
  DF_TRY_VOID(begin(SimOperationKind::kRename, from, to));
  const std::string where = path_of(from) + " to " + path_of(to);
  DF_TRY(const Place source, find("rename", from));
  DF_TRY(const Place target, find("rename", to));
  if (!source.inode) return os_fail("rename", where, ENOENT);
  if (target.inode && !replace) return os_fail("rename", where, EEXIST);
  if (target.inode && seen_.at(*target.inode).is_directory) {
    return os_fail("rename", where, EISDIR);
  }
  if (target.inode == source.inode) return {};
  if (to.starts_with(std::string(from) + '/')) return os_fail("rename", where, EINVAL);
  change({.what = SimNaming{.directory = target.directory,
                            .removed_from = source.directory,
                            .removed = source.leaf,
                            .added = target.leaf,
                            .inode = *source.inode}});
  return end();
}

Status SimDisk::link_file(std::string_view from, std::string_view to) {
  DF_TRY_VOID(check_vfs_name("link", from));
  DF_TRY_VOID(check_vfs_name("link", to));
  const std::lock_guard lock(mutex_);
  DF_TRY_VOID(begin(SimOperationKind::kLink, from, to));
  const std::string where = path_of(from) + " to " + path_of(to);
  DF_TRY(const Place source, find("link", from));
  if (!source.inode) return os_fail("link", where, ENOENT);
  return link(*source.inode, where, to);
}

Status SimDisk::link(InodeId inode, const std::string& where, std::string_view to) {
  DF_TRY(const Place target, find("link", to));
  if (target.inode) return os_fail("link", where, EEXIST);
  if (links_refused_ || seen_.at(inode).is_directory) {
    return fail(ErrorCode::kUnsupported, "link " + where + ": refused", EPERM);
  }
  change({.what = SimNaming{.directory = target.directory, .added = target.leaf, .inode = inode}});
  return end();
}

std::size_t SimDisk::names_of(InodeId inode) const {
  std::size_t names = 0;
  for (const auto& [id, node] : seen_) {
    for (const auto& [leaf, child] : node.entries) names += child == inode ? 1 : 0;
  }
  return names;
}

Status SimDisk::remove_file(std::string_view name) {
  return remove(SimOperationKind::kRemoveFile, name);
}

Status SimDisk::remove_dir(std::string_view name) {
  return remove(SimOperationKind::kRemoveDir, name);
}

Status SimDisk::remove(SimOperationKind kind, std::string_view name) {
  DF_TRY_VOID(check_vfs_name("remove", name));
  const std::lock_guard lock(mutex_);
  DF_TRY_VOID(begin(kind, name));
  DF_TRY(const Place place, find("remove", name));
  if (!place.inode) return os_fail("remove", path_of(name), ENOENT);
  const SimInode& node = seen_.at(*place.inode);
  const bool wants_directory = kind == SimOperationKind::kRemoveDir;
  if (node.is_directory != wants_directory) {
    return os_fail("remove", path_of(name), wants_directory ? ENOTDIR : EISDIR);
  }
  if (!node.entries.empty()) return os_fail("remove", path_of(name), ENOTEMPTY);
  if (names_of(*place.inode) == 1) release_beyond(*place.inode, 0);
  change({.what = SimNaming{.directory = place.directory,
                            .removed_from = place.directory,
                            .removed = place.leaf,
                            .inode = *place.inode}});
  return end();
}

Status SimDisk::sync_dir(std::string_view name) {
  if (!name.empty()) DF_TRY_VOID(check_vfs_name("sync directory", name));
  const std::lock_guard lock(mutex_);
  DF_TRY_VOID(begin(SimOperationKind::kSyncDir, name));
  DF_TRY(const InodeId inode, find_inode("sync directory", name));
  if (!seen_.at(inode).is_directory) return os_fail("sync directory", path_of(name), ENOTDIR);
  if (takes_ignored_sync()) return {};
  make_durable([inode](const SimChange& pending) { return changes_names_in(pending, inode); });
  return end();
}

Result<std::vector<DirEntry>> SimDisk::list(std::string_view name) {
  if (!name.empty()) DF_TRY_VOID(check_vfs_name("list", name));
  const std::lock_guard lock(mutex_);
  DF_TRY_VOID(begin_read("list", name));
  DF_TRY(const InodeId inode, find_inode("list", name));
  const SimInode& directory = seen_.at(inode);
  if (!directory.is_directory) return os_fail("list", path_of(name), ENOTDIR);
  std::vector<DirEntry> entries;
  entries.reserve(directory.entries.size());
  for (const auto& [leaf, child] : directory.entries) {
    entries.push_back({.name = leaf, .is_directory = seen_.at(child).is_directory});
  }
  return entries;
}

}  // namespace deepfreeze
