// A TierStore over a file system. A file is written as <stem>.<nonce>.tmp, synced and renamed
// without replacing; directories are made as names need them. A process that dies leaves a
// temporary file, which every reader ignores.
#pragma once

#include <memory>

#include "storage/tier_store.h"
#include "storage/vfs.h"

namespace deepfreeze {

class VfsTierStore final : public TierStore {
 public:
  // The root must exist, durably.
  explicit VfsTierStore(std::unique_ptr<Vfs> vfs) : owned_(std::move(vfs)), vfs_(*owned_) {}
  // Borrows `vfs`, which must outlive it.
  explicit VfsTierStore(Vfs& vfs) : vfs_(vfs) {}

  [[nodiscard]] Result<std::unique_ptr<Upload>> begin(std::string_view name, std::uint64_t bytes,
                                                      IfTaken if_taken) override;
  [[nodiscard]] Status link(std::string_view from, std::string_view to) override;
  [[nodiscard]] Status settle(std::string_view directory) override;
  [[nodiscard]] Vfs& view() override { return vfs_; }

 private:
  std::unique_ptr<Vfs> owned_;  // may be null
  Vfs& vfs_;
};

}  // namespace deepfreeze
