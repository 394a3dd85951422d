#include "nodes/remote_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "base/try.h"
#include "nodes/sealed_name.h"
#include "storage/read_only.h"
#include "storage/vfs_name.h"

namespace deepfreeze {
namespace {

struct RemotePlace {
  RemoteAsks& asks;
  std::uint32_t rank;
  SealedName name;
  std::string path;  // for messages

  [[nodiscard]] LinkRead range(std::uint64_t offset, std::uint64_t size) const {
    return {.attempt = name.attempt, .file = name.file, .offset = offset, .size = size};
  }
};

// Reads one range of a file: asks for the next pieces while the first is on its way.
class RemoteRead {
 public:
  RemoteRead(const RemotePlace& place, std::uint64_t offset, std::span<std::byte> into)
      : place_(place), offset_(offset), into_(into) {}

  // `file_bytes`: as long as the file must be.
  [[nodiscard]] Status run(std::uint64_t file_bytes) {
    ask_ahead();
    while (!asks_.empty()) {
      DF_TRY(const LinkBytes answer, asks_.front().finish());
      if (answer.file_bytes != file_bytes) {
        return fail(ErrorCode::kCorrupt,
                    fmt::format("it has {} bytes now, it had {}", answer.file_bytes, file_bytes));
      }
      asks_.pop_front();
      ask_ahead();
      std::memcpy(into_.data() + done_, answer.bytes.data(), answer.bytes.size());
      done_ += answer.bytes.size();
    }
    return {};
  }
  [[nodiscard]] std::uint64_t at() const { return offset_ + done_; }

 private:
  void ask_ahead() {
    while (asks_.size() < kAsksInFlight && asked_ < into_.size()) {
      const std::uint64_t size = std::min<std::uint64_t>(kRangeBytesMax, into_.size() - asked_);
      asks_.emplace_back(place_.asks, place_.rank, place_.range(offset_ + asked_, size));
      asked_ += size;
    }
  }

  const RemotePlace& place_;
  const std::uint64_t offset_;
  const std::span<std::byte> into_;
  std::deque<RemoteAsk> asks_;  // in the order of their bytes
  std::size_t asked_ = 0;
  std::size_t done_ = 0;
};

class RemoteFile final : public ReadOnlyFile {
 public:
  RemoteFile(RemotePlace place, std::uint64_t bytes) : place_(std::move(place)), bytes_(bytes) {}

  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) override;
  Result<std::uint64_t> size() override { return bytes_; }

 private:
  [[nodiscard]] std::string path() const override { return place_.path; }

  const RemotePlace place_;
  const std::uint64_t bytes_;  // when it was opened
};

Result<std::size_t> RemoteFile::read_at(std::uint64_t offset, std::span<std::byte> into) {
  if (offset >= bytes_) return 0;
  into = into.first(std::min<std::uint64_t>(into.size(), bytes_ - offset));
  RemoteRead read(place_, offset, into);
  const Status done = read.run(bytes_);
  if (done) return into.size();
  const Error& error = done.error();
  const bool is_deleted = error.code() == ErrorCode::kNotFound;
  return std::unexpected(
      Error(is_deleted ? ErrorCode::kGone : error.code(), error.message(), error.os_errno())
          .within(fmt::format("read {} at {}", place_.path, read.at())));
}

class RemoteFiles final : public ReadOnlyVfs {
 public:
  RemoteFiles(RemoteAsks& asks, RemoteNode node) : asks_(asks), node_(std::move(node)) {}

  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override;
  // A node's leader sends it in other messages.
  Result<std::vector<DirEntry>> list(std::string_view name) override {
    return refused("list", name);
  }
  [[nodiscard]] std::string path_of(std::string_view name) const override {
    return fmt::format("rank {} at {}: {}", node_.rank, node_.place, name);
  }

 private:
  RemoteAsks& asks_;
  const RemoteNode node_;
};

Result<std::unique_ptr<File>> RemoteFiles::open_read(std::string_view name, Access /*access*/) {
  DF_TRY_VOID(check_vfs_name("open", name));
  auto sealed = parse_sealed_path(name);
  if (!sealed) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("open {}: another node gives sealed files only", path_of(name)));
  }
  RemotePlace place{
      .asks = asks_, .rank = node_.rank, .name = *std::move(sealed), .path = path_of(name)};
  const auto answer = RemoteAsk(asks_, place.rank, place.range(0, 0)).finish();
  if (!answer) return std::unexpected(answer.error().within("open " + place.path));
  return std::make_unique<RemoteFile>(std::move(place), answer->file_bytes);
}

}  // namespace

Result<std::unique_ptr<Vfs>> open_remote_files(RemoteAsks& asks, RemoteNode node) {
  DF_TRY_VOID(asks.want_link(node.rank));
  return std::make_unique<RemoteFiles>(asks, std::move(node));
}

}  // namespace deepfreeze
