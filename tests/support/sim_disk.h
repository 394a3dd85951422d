// A disk in memory that can lose power: a Vfs that distinguishes durable from pending changes.
//
// Data writes and truncations of a file are pending until File::sync(); names (create, rename,
// remove, make) are pending until sync_dir() of the directory that holds them (a rename between
// directories: of the one it goes to). Neither makes the other durable. crash_images() gives the
// states that a power cut now may leave. Every call that changes or syncs gets the next index in
// operations(), those that fail included; faults are armed by index, so `for every index` is a
// test. Deterministic; any thread (one mutex). Files must be gone before their disk.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "storage/vfs.h"
#include "support/sim_model.h"

namespace deepfreeze {

class SimDisk final : public Vfs {
 public:
  SimDisk() = default;
  // A disk on which all of `tree` is durable.
  SimDisk(SimTree tree, std::string label);
  SimDisk(const SimDisk&) = delete;
  SimDisk& operator=(const SimDisk&) = delete;
  ~SimDisk() override = default;

  // Faults. An index counts all operations since the disk was made.
  void crash_at(std::size_t index);  // that operation and every call after it: "power is off"
  void power_off();                  // now
  // The process dies: that operation and all after it are refused until revive(), which is the next
  // process; pending changes stay pending.
  void kill_at(std::size_t index);
  void revive();
  void fail_at(std::size_t index, int os_errno);  // only that one, and it changes nothing
  // That one is carried out and reported as failed all the same, as a server may that loses its
  // answer. One that would have failed by itself does so.
  void fail_after(std::size_t index, int os_errno);
  // Reads, openings for it, sizes and listings count by themselves.
  void fail_read_at(std::size_t index, int os_errno);
  void ignore_sync(std::size_t index);  // that sync reports success and does nothing
  // Growth beyond it is ENOSPC, after the part that fits has been written.
  void set_bytes_free(std::uint64_t bytes);
  void refuse_direct();  // as a file system without O_DIRECT
  void refuse_links();   // as one without hard links
  // A file whose sync failed is never made durable by a later sync of it (the kernel has marked
  // its pages clean). A directory's failed sync may be repeated.

  // The record of calls.
  [[nodiscard]] std::vector<SimOperation> operations() const;
  [[nodiscard]] std::size_t operation_count() const;  // the index that the next one gets
  [[nodiscard]] std::size_t read_count() const;       // and the next read
  [[nodiscard]] std::size_t pending_count() const;    // operations that a power cut may undo
  [[nodiscard]] std::size_t open_files() const;
  [[nodiscard]] std::uint64_t bytes_written() const;
  [[nodiscard]] std::optional<Error> injected() const;  // the last error of fail_...()
  [[nodiscard]] const std::string& label() const { return label_; }

  // At most `limit` different disks, power on, nothing pending, no faults armed; works with the
  // power off. Exhaustive while all outcomes (lost, kept, torn, size without data) fit in `limit`;
  // else nothing/everything/in-order/one-differs, then every subset of up to ten pending
  // operations, then random ones from `seed`. label() names the lost changes.
  [[nodiscard]] std::vector<std::unique_ptr<SimDisk>> crash_images(std::size_t limit,
                                                                   std::uint64_t seed) const;
  // Visits these images one at a time, if all at once would take too much memory.
  void for_each_crash_image(std::size_t limit, std::uint64_t seed,
                            const std::function<void(SimDisk&)>& visit) const;
  // The state that running processes see, durable and pending alike; no faults armed, log empty.
  [[nodiscard]] std::unique_ptr<SimDisk> clone() const;

  // The tester's own hands: not logged, never refused, no sync needed.
  [[nodiscard]] std::optional<std::string> contents(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> list_all() const;  // sorted; directories end in '/'
  // Makes or replaces a file, with its directories, durably.
  void plant(std::string_view name, std::string_view bytes);
  // Both make the file's content durable as it is then; false if the place does not exist.
  [[nodiscard]] bool flip_bit(std::string_view name, std::uint64_t bit_index);
  [[nodiscard]] bool overwrite(std::string_view name, std::uint64_t offset, std::string_view bytes);

  [[nodiscard]] Result<std::unique_ptr<File>> create(std::string_view name, Access access) override;
  [[nodiscard]] Result<std::unique_ptr<File>> open_read(std::string_view name,
                                                        Access access) override;
  [[nodiscard]] Status make_dir(std::string_view name) override;
  [[nodiscard]] Status rename_no_replace(std::string_view from, std::string_view to) override;
  [[nodiscard]] Status rename_replacing(std::string_view from, std::string_view to) override;
  [[nodiscard]] Status link_file(std::string_view from, std::string_view to) override;
  [[nodiscard]] Status link_open_file(const File& file, std::string_view to) override;
  [[nodiscard]] Status remove_file(std::string_view name) override;
  [[nodiscard]] Status remove_dir(std::string_view name) override;
  [[nodiscard]] Status sync_dir(std::string_view name) override;
  [[nodiscard]] Result<std::vector<DirEntry>> list(std::string_view name) override;
  [[nodiscard]] std::string path_of(std::string_view name) const override;

 private:
  friend class SimFile;
  struct Place {
    InodeId directory;
    std::string leaf;
    std::optional<InodeId> inode;  // the file that the name means now
  };

  void visit_crash_trees(const SimImageSearch& search, const SimImageVisitor& visit) const;

  // All below: mutex_ is held.
  // Gives the operation its index and its fault; a name is one that check_vfs_name accepted.
  [[nodiscard]] Status begin(SimOperationKind kind, std::string_view name,
                             std::string_view target = {});
  // The fault of the operation that was just carried out, if fail_after() gave it one.
  [[nodiscard]] Status end();
  [[nodiscard]] Status inject(std::string_view operation, std::string_view name, int os_errno);
  [[nodiscard]] Status check_power(std::string_view operation, std::string_view name) const;
  [[nodiscard]] Status begin_read(std::string_view operation, std::string_view name);
  [[nodiscard]] Result<Place> find(std::string_view operation, std::string_view name) const;
  [[nodiscard]] Result<InodeId> find_inode(std::string_view operation, std::string_view name) const;
  [[nodiscard]] std::optional<InodeId> find_file(std::string_view name) const;
  [[nodiscard]] std::unique_ptr<File> open(std::string_view name, InodeId inode, Access access,
                                           bool writable);
  // `replace`: a file that has the name is gone with it.
  [[nodiscard]] Status rename(std::string_view from, std::string_view to, bool replace);
  [[nodiscard]] Status link(InodeId inode, const std::string& where, std::string_view to);
  [[nodiscard]] Status sync(InodeId inode, std::string_view name);
  [[nodiscard]] Status remove(SimOperationKind kind, std::string_view name);
  [[nodiscard]] bool takes_ignored_sync() const;  // is the operation just begun one?
  void change(SimChange changed);
  void make_durable(const std::function<bool(const SimChange&)>& chosen);
  // Takes space for a file up to `end`: how far there was enough.
  [[nodiscard]] std::uint64_t reserve(InodeId inode, std::uint64_t end);
  void release_beyond(InodeId inode, std::uint64_t end);
  [[nodiscard]] std::size_t names_of(InodeId inode) const;
  InodeId add_inode(bool is_directory);
  InodeId plant_name(InodeId directory, std::string_view leaf, bool is_directory);

  mutable std::mutex mutex_;            // guards all below but label_
  SimTree seen_ = empty_sim_tree();     // with everything pending
  SimTree durable_ = empty_sim_tree();  // without
  std::vector<SimChange> pending_;
  std::vector<SimOperation> log_;
  std::set<InodeId> sync_failed_;
  std::map<InodeId, std::uint64_t> reserved_;  // bytes taken from bytes_free_
  std::map<std::size_t, int> failures_;
  std::map<std::size_t, int> late_failures_;  // of fail_after()
  std::map<std::size_t, int> read_failures_;
  std::optional<Error> injected_;
  std::size_t reads_ = 0;
  std::set<std::size_t> ignored_syncs_;
  std::size_t crash_at_ = std::numeric_limits<std::size_t>::max();
  std::size_t kill_at_ = std::numeric_limits<std::size_t>::max();
  std::uint64_t bytes_free_ = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t bytes_written_ = 0;
  std::size_t open_files_ = 0;
  InodeId next_inode_ = kSimRoot + 1;
  bool powered_ = true;
  bool killed_ = false;
  bool direct_refused_ = false;
  bool links_refused_ = false;

  std::string label_;
};

}  // namespace deepfreeze
