// Owns one file descriptor. Move-only; close() reports errors, which the destructor cannot.
#pragma once

#include <utility>

#include "deepfreeze/result.h"

namespace deepfreeze {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd();

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }

  // NFS and quota errors can first show here, so writers call it and look.
  [[nodiscard]] Status close();

 private:
  int fd_ = -1;
};

}  // namespace deepfreeze
