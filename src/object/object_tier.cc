#include "object/object_tier.h"

#include <fmt/format.h>

#include <utility>

#include "base/try.h"
#include "object/object_upload.h"
#include "storage/vfs_name.h"

namespace deepfreeze {
namespace {

class ObjectTier final : public TierStore {
 public:
  ObjectTier(std::shared_ptr<S3Client> client, std::uint64_t part_bytes, bool takes_references)
      : client_(std::move(client)),
        part_bytes_(part_bytes),
        takes_references_(takes_references),
        view_(make_object_view(client_)) {}

  Result<std::unique_ptr<Upload>> begin(std::string_view name, std::uint64_t bytes,
                                        IfTaken if_taken) override {
    DF_TRY_VOID(check_vfs_name("put", name));
    if (bytes > kObjectBytesMax) {
      return fail(ErrorCode::kNoSpace, fmt::format("put {}: {} bytes, and an object has at most {}",
                                                   view_->path_of(name), bytes, kObjectBytesMax));
    }
    return begin_object_upload({.client = *client_,
                                .key = std::string(name),
                                .bytes = bytes,
                                .if_taken = if_taken,
                                .part_bytes = part_bytes_});
  }
  Status settle(std::string_view /*directory*/) override { return {}; }
  [[nodiscard]] bool takes_references() const override { return takes_references_; }
  void stop() override { client_->stop(); }
  [[nodiscard]] Vfs& view() override { return *view_; }

 private:
  const std::shared_ptr<S3Client> client_;  // others: the view, and the opener of the tier
  const std::uint64_t part_bytes_;
  const bool takes_references_;
  const std::unique_ptr<Vfs> view_;
};

}  // namespace

std::unique_ptr<TierStore> make_object_tier(std::shared_ptr<S3Client> client,
                                            std::uint64_t part_bytes, bool takes_references) {
  return std::make_unique<ObjectTier>(std::move(client), part_bytes, takes_references);
}

}  // namespace deepfreeze
