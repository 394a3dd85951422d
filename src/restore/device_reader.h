// A run's files as the device holds them: a Vfs whose reads bypass the page cache, and are no
// faster than a limit allows. Everything else goes to the Vfs below it. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "base/rate_limit.h"
#include "restore/opened_run.h"
#include "storage/vfs.h"

namespace deepfreeze {

// Borrows `limit`, which must outlive it and its files.
class DeviceReader final : public Vfs {
 public:
  DeviceReader(std::unique_ptr<Vfs> below, RateLimit& limit)
      : below_(std::move(below)), limit_(limit) {}

  // Opens a file and drops its cached pages. If the file system takes no direct reads, the pages
  // that reading has cached are dropped too, once the file is closed. Reads need not be aligned,
  // whatever `access` says.
  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override;
  // The first file that the file system would not read directly; empty if there was none. The
  // device was read for such a file only as far as the kernel had dropped its pages.
  [[nodiscard]] std::string read_through_cache() const;

  Result<std::unique_ptr<File>> create(std::string_view name, Access access) override {
    return below_->create(name, access);
  }
  Status make_dir(std::string_view name) override { return below_->make_dir(name); }
  Status rename_no_replace(std::string_view from, std::string_view to) override {
    return below_->rename_no_replace(from, to);
  }
  Status rename_replacing(std::string_view from, std::string_view to) override {
    return below_->rename_replacing(from, to);
  }
  Status remove_file(std::string_view name) override { return below_->remove_file(name); }
  Status remove_dir(std::string_view name) override { return below_->remove_dir(name); }
  Status sync_dir(std::string_view name) override { return below_->sync_dir(name); }
  Result<std::vector<DirEntry>> list(std::string_view name) override { return below_->list(name); }
  [[nodiscard]] std::string path_of(std::string_view name) const override {
    return below_->path_of(name);
  }

 private:
  friend class DeviceFile;
  void note_cached(const std::string& path);

  const std::unique_ptr<Vfs> below_;
  RateLimit& limit_;
  mutable std::mutex mutex_;
  std::string read_through_cache_;  // guarded by mutex_
};

[[nodiscard]] Result<std::unique_ptr<DeviceReader>> open_device(const std::string& path,
                                                                RateLimit& limit);

// open_run() past the page cache: the records, too, are read from the device.
struct OpenedDevice {
  OpenedRun run;
  DeviceReader* reader = nullptr;  // run.vfs
};
[[nodiscard]] Result<OpenedDevice> open_run_on_device(const std::string& path, RateLimit& limit);

}  // namespace deepfreeze
