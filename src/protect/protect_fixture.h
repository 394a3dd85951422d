// For tests: the nodes of a job, each with a disk of its own and sealed files of one checkpoint.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "codec/crc32c.h"
#include "format/layout.h"
#include "format/shard_header.h"
#include "protect/parity_record.h"
#include "protect/rebuilt_files.h"
#include "protect/write_parity.h"
#include "storage/read_only.h"
#include "support/sim_disk.h"

namespace deepfreeze {

// Each file from the first disk that has it.
class Anywhere final : public ReadOnlyVfs {
 public:
  explicit Anywhere(std::vector<Vfs*> disks) : disks_(std::move(disks)) {}
  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override {
    for (Vfs* disk : disks_) {
      auto file = disk->open_read(name, access);
      if (file || file.error().code() != ErrorCode::kNotFound) return file;
    }
    return fail(ErrorCode::kNotFound, fmt::format("open {}: no node has it", name));
  }
  Result<std::vector<DirEntry>> list(std::string_view name) override {
    return fail(ErrorCode::kUnsupported, fmt::format("list {}", name));
  }
  [[nodiscard]] std::string path_of(std::string_view name) const override {
    return std::string(name);
  }

 private:
  const std::vector<Vfs*> disks_;
};

// A data file with one tensor of these bytes.
inline std::string sealed_part(const Identity& identity, std::string_view data) {
  ShardHeader header{.identity = identity, .tree = "{}", .data_bytes = data.size()};
  TensorSpec spec{.key = "tensor"};
  spec.shape.push_back(data.size());
  header.entries.push_back({.spec = std::move(spec), .extent = {0, data.size()}});
  for (std::size_t at = 0; at < data.size(); at += kBlockBytes) {
    header.block_crcs.push_back(crc32c(std::as_bytes(std::span(data.substr(at, kBlockBytes)))));
  }
  const EncodedHeader encoded = encode_header(header).value();
  std::string file(reinterpret_cast<const char*>(encoded.bytes.data()), encoded.bytes.size());
  return file.append(data);
}

inline std::string random_text(std::mt19937_64& random, std::size_t bytes) {
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// Nodes with `ranks` files each; of at most `bytes_max` bytes of data, no two alike.
class Cluster {
 public:
  Cluster(std::size_t nodes, std::size_t ranks, std::size_t bytes_max, std::uint64_t seed)
      : random_(seed) {
    manifest_.run_id = "0123456789abcdef";
    manifest_.point = {.generation = 1, .step = 7, .save_index = 3, .attempt_id = 0x1234};
    manifest_.world_size = static_cast<std::uint32_t>(nodes * ranks);
    for (std::size_t node = 0; node < nodes; ++node) {
      disks_.push_back(std::make_unique<SimDisk>());
      members_.push_back({.node = node, .vfs = disks_.back().get(), .files = {}});
      for (std::size_t rank = 0; rank < ranks; ++rank)
        add_file(node, node * ranks + rank, bytes_max);
    }
  }

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] std::string directory() const {
    return attempt_dir_name({manifest_.point.step, manifest_.point.attempt_id});
  }
  [[nodiscard]] std::string parity_path(std::size_t node) const {
    return directory() + "/" + parity_file_name(node, disks_.size());
  }
  [[nodiscard]] SimDisk& disk(std::size_t node) { return *disks_[node]; }
  [[nodiscard]] std::vector<ParityMember>& members() { return members_; }
  // By path in the run.
  [[nodiscard]] const std::map<std::string, std::string>& files() const { return files_; }
  [[nodiscard]] std::mt19937_64& random() { return random_; }

  [[nodiscard]] Status protect(std::size_t node, std::size_t parity) {
    return write_parity({.manifest = manifest_,
                         .members = members_,
                         .own = node,
                         .parity = parity,
                         .nodes = disks_.size()},
                        {.rate = rate_, .stop = stop_});
  }
  // In a group of `count` nodes from `first` on.
  [[nodiscard]] Status protect_in(std::size_t first, std::size_t count, std::size_t node,
                                  std::size_t parity) {
    const auto group = std::span(members_).subspan(first, count);
    return write_parity({.manifest = manifest_,
                         .members = group,
                         .own = node - first,
                         .parity = parity,
                         .nodes = disks_.size()},
                        {.rate = rate_, .stop = stop_});
  }
  void protect_all(std::size_t parity) {
    for (std::size_t node = 0; node < disks_.size(); ++node) {
      const Status done = protect(node, parity);
      ASSERT_TRUE(done) << done.error().message();
    }
  }
  std::atomic<bool>& stop() { return stop_; }
  // The disk of the node that comes in its place is empty.
  void lose(std::size_t node) {
    disks_[node] = std::make_unique<SimDisk>();
    members_[node].vfs = disks_[node].get();
  }
  // A cluster with the same disks, as they are now.
  [[nodiscard]] std::vector<std::unique_ptr<SimDisk>> copies() const {
    std::vector<std::unique_ptr<SimDisk>> copies;
    for (const auto& disk : disks_) copies.push_back(disk->clone());
    return copies;
  }
  void put_back(const std::vector<std::unique_ptr<SimDisk>>& copies) {
    for (std::size_t i = 0; i < copies.size(); ++i) {
      disks_[i] = copies[i]->clone();
      members_[i].vfs = disks_[i].get();
    }
  }

  struct Rebuilt {
    std::unique_ptr<Vfs> pieces;  // borrowed by the next
    std::unique_ptr<Vfs> files;
  };
  [[nodiscard]] Rebuilt rebuilt() {
    std::vector<Vfs*> disks;
    std::vector<std::string> parity;
    for (std::size_t node = 0; node < disks_.size(); ++node) {
      disks.push_back(disks_[node].get());
      const bool is_there = disks_[node]->contents(parity_path(node)).has_value();
      if (is_there) parity.push_back(parity_file_name(node, disks_.size()));
    }
    Rebuilt result{.pieces = std::make_unique<Anywhere>(std::move(disks)), .files = {}};
    result.files = open_rebuilt_files(*result.pieces, manifest_, parity);
    return result;
  }

 private:
  void add_file(std::size_t node, std::size_t rank, std::size_t bytes_max) {
    const PartName part{.rank = static_cast<std::uint32_t>(rank),
                        .world_size = manifest_.world_size};
    const Identity identity{.run_id = manifest_.run_id,
                            .attempt_id = manifest_.point.attempt_id,
                            .generation = 1,
                            .step = 7,
                            .save_index = 3,
                            .part = part};
    const std::size_t bytes = 1 + random_() % bytes_max;
    const std::string text = sealed_part(identity, random_text(random_, bytes));
    const auto pages = std::as_bytes(std::span(text)).first(text.size() - bytes);
    const ManifestFile file{.name = sealed_file_name(part),
                            .bytes = text.size(),
                            .header_crc = checked_header_crc(pages).value()};
    manifest_.files.push_back(file);
    members_[node].files.push_back(file);
    files_.emplace(directory() + "/" + file.name, text);
    disks_[node]->plant(directory() + "/" + file.name, text);
  }

  std::mt19937_64 random_;
  Manifest manifest_;
  std::vector<std::unique_ptr<SimDisk>> disks_;
  std::vector<ParityMember> members_;
  std::map<std::string, std::string> files_;
  RateLimit rate_{0};
  std::atomic<bool> stop_{false};
};

// All bytes of the file, read in steps of so many.
inline Result<std::string> read_whole(Vfs& vfs, const std::string& path, std::size_t step) {
  auto file = vfs.open_read(path, Access::kBuffered);
  if (!file) return std::unexpected(file.error());
  const auto bytes = (*file)->size();
  if (!bytes) return std::unexpected(bytes.error());
  std::string text(*bytes, '\0');
  for (std::size_t at = 0; at < text.size(); at += step) {
    const auto into = std::as_writable_bytes(std::span(text)).subspan(at);
    const auto part = into.first(std::min(step, into.size()));
    const auto count = (*file)->read_at(at, part);
    if (!count) return std::unexpected(count.error());
    EXPECT_EQ(*count, part.size());
  }
  return text;
}

}  // namespace deepfreeze
