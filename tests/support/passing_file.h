// A file that passes every call on to another one: a test overrides the calls that it changes.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "storage/vfs.h"

namespace deepfreeze {

class PassingFile : public File {
 public:
  explicit PassingFile(std::unique_ptr<File> file) : file_(std::move(file)) {}

  Status write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    return file_->write_at(offset, bytes);
  }
  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) override {
    return file_->read_at(offset, into);
  }
  Status preallocate(std::uint64_t bytes) override { return file_->preallocate(bytes); }
  Status truncate(std::uint64_t bytes) override { return file_->truncate(bytes); }
  Result<std::uint64_t> size() override { return file_->size(); }
  Status sync() override { return file_->sync(); }
  Status close() override { return file_->close(); }
  [[nodiscard]] Access access() const override { return file_->access(); }

 protected:
  const std::unique_ptr<File> file_;  // NOLINT: for derived classes
};

}  // namespace deepfreeze
