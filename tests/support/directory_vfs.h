// A directory of a disk as a disk of its own: several runs on one.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/vfs.h"

namespace deepfreeze {

class DirectoryVfs final : public Vfs {
 public:
  // `directory` need not be there yet.
  DirectoryVfs(Vfs& disk, std::string directory) : disk_(disk), directory_(std::move(directory)) {}

  Result<std::unique_ptr<File>> create(std::string_view name, Access access) override {
    return disk_.create(below(name), access);
  }
  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override {
    return disk_.open_read(below(name), access);
  }
  Status make_dir(std::string_view name) override { return disk_.make_dir(below(name)); }
  Status rename_no_replace(std::string_view from, std::string_view to) override {
    return disk_.rename_no_replace(below(from), below(to));
  }
  Status rename_replacing(std::string_view from, std::string_view to) override {
    return disk_.rename_replacing(below(from), below(to));
  }
  Status link_file(std::string_view from, std::string_view to) override {
    return disk_.link_file(below(from), below(to));
  }
  Status link_open_file(const File& file, std::string_view to) override {
    return disk_.link_open_file(file, below(to));
  }
  Status remove_file(std::string_view name) override { return disk_.remove_file(below(name)); }
  Status remove_dir(std::string_view name) override { return disk_.remove_dir(below(name)); }
  Status sync_dir(std::string_view name) override { return disk_.sync_dir(below(name)); }
  Result<std::vector<DirEntry>> list(std::string_view name) override {
    return disk_.list(below(name));
  }
  [[nodiscard]] std::string path_of(std::string_view name) const override {
    return disk_.path_of(below(name));
  }

 private:
  [[nodiscard]] std::string below(std::string_view name) const {
    return name.empty() ? directory_ : directory_ + "/" + std::string(name);
  }

  Vfs& disk_;
  const std::string directory_;
};

}  // namespace deepfreeze
