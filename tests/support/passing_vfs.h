// A disk that passes every call on to another one: a test overrides the calls that it changes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "storage/vfs.h"

namespace deepfreeze {

class PassingVfs : public Vfs {
 public:
  explicit PassingVfs(Vfs& disk) : disk_(disk) {}

  Result<std::unique_ptr<File>> create(std::string_view name, Access access) override {
    return disk_.create(name, access);
  }
  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override {
    return disk_.open_read(name, access);
  }
  Status make_dir(std::string_view name) override { return disk_.make_dir(name); }
  Status rename_no_replace(std::string_view from, std::string_view to) override {
    return disk_.rename_no_replace(from, to);
  }
  Status rename_replacing(std::string_view from, std::string_view to) override {
    return disk_.rename_replacing(from, to);
  }
  Status link_file(std::string_view from, std::string_view to) override {
    return disk_.link_file(from, to);
  }
  Status link_open_file(const File& file, std::string_view to) override {
    return disk_.link_open_file(file, to);
  }
  Status remove_file(std::string_view name) override { return disk_.remove_file(name); }
  Status remove_dir(std::string_view name) override { return disk_.remove_dir(name); }
  Status sync_dir(std::string_view name) override { return disk_.sync_dir(name); }
  Result<std::vector<DirEntry>> list(std::string_view name) override { return disk_.list(name); }
  [[nodiscard]] std::string path_of(std::string_view name) const override {
    return disk_.path_of(name);
  }
  Result<bool> is_in_place() override { return disk_.is_in_place(); }
  Status reopen() override { return disk_.reopen(); }
  Status make_root() override { return disk_.make_root(); }
  Status check_writable() override { return disk_.check_writable(); }

 protected:
  Vfs& disk_;  // NOLINT: for derived classes
};

}  // namespace deepfreeze
