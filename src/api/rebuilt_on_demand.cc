#include "api/rebuilt_on_demand.h"

#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "base/try.h"
#include "protect/rebuilt_files.h"
#include "storage/posix_vfs.h"
#include "storage/read_only.h"

namespace deepfreeze {
namespace {

// Each file from this node, or else from another one.
class AllNodes final : public ReadOnlyVfs {
 public:
  AllNodes(std::unique_ptr<Vfs> own, Vfs& others) : own_(std::move(own)), others_(others) {}

  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override {
    auto file = own_->open_read(name, access);
    if (file || file.error().code() != ErrorCode::kNotFound) return file;
    return others_.open_read(name, access);
  }
  Result<std::vector<DirEntry>> list(std::string_view name) override {
    return refused("list", name);
  }
  [[nodiscard]] std::string path_of(std::string_view name) const override {
    return own_->path_of(name);
  }

 private:
  const std::unique_ptr<Vfs> own_;
  Vfs& others_;
};

class RebuiltOnDemand final : public ReadOnlyVfs {
 public:
  RebuiltOnDemand(std::string near, std::unique_ptr<Vfs> others, Manifest manifest,
                  std::vector<std::string> parity)
      : near_(std::move(near)),
        others_(std::move(others)),
        manifest_(std::move(manifest)),
        parity_(std::move(parity)) {}

  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override {
    std::call_once(once_, [this] { opened_ = open(); });
    if (!opened_) return std::unexpected(opened_.error());
    return rebuilt_->open_read(name, access);
  }
  Result<std::vector<DirEntry>> list(std::string_view name) override {
    return refused("list", name);
  }
  [[nodiscard]] std::string path_of(std::string_view name) const override {
    return fmt::format("{}/{} (from parity)", near_, name);
  }

 private:
  Status open() {
    DF_TRY(auto own, open_posix_vfs(near_));
    pieces_ = std::make_unique<AllNodes>(std::move(own), *others_);
    rebuilt_ = open_rebuilt_files(*pieces_, manifest_, parity_);
    return {};
  }

  const std::string near_;
  const std::unique_ptr<Vfs> others_;
  const Manifest manifest_;
  const std::vector<std::string> parity_;
  std::once_flag once_;  // guards all below
  std::unique_ptr<Vfs> pieces_;
  std::unique_ptr<Vfs> rebuilt_;  // borrows pieces_
  Status opened_;
};

}  // namespace

std::unique_ptr<Vfs> rebuild_on_demand(std::string near, std::unique_ptr<Vfs> others,
                                       Manifest manifest, std::vector<std::string> parity) {
  return std::make_unique<RebuiltOnDemand>(std::move(near), std::move(others), std::move(manifest),
                                           std::move(parity));
}

}  // namespace deepfreeze
