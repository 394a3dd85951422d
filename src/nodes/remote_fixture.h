// Processes of a test that give their files to each other: two real endpoints, or one and a peer
// that the test plays.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "format/names.h"
#include "link/link_fixture.h"
#include "nodes/file_server.h"
#include "nodes/link_dispatcher.h"
#include "nodes/remote_files.h"
#include "nodes/sealed_name.h"
#include "storage/posix_vfs.h"
#include "support/code_of.h"
#include "support/passing_file.h"
#include "support/passing_vfs.h"
#include "support/scoped_dir.h"

namespace deepfreeze::nodes_test {

using link_test::await;
using link_test::await_up;
using link_test::greeted;
using link_test::kLong;
using link_test::LinkTest;
using link_test::Node;
using link_test::RawPeer;
using link_test::state_of;

inline constexpr std::uint64_t kMiB = 1024 * 1024;
inline constexpr LinkAttempt kAttempt{.step = 7, .attempt_id = 0xaa};
inline constexpr AskTimes kSoon{.link = std::chrono::milliseconds(300),
                                .answer = std::chrono::milliseconds(300)};
inline constexpr AskTimes kNever{.link = kLong, .answer = kLong};

// The name of a sealed file, one of `rank`.
inline std::string sealed_file(std::uint32_t rank = 0) {
  return sealed_file_name({.rank = rank, .world_size = 100});
}
inline std::string sealed_path(std::uint32_t rank = 0) {
  return path_in_run(kAttempt, sealed_file(rank));
}

// Bytes that differ at every place near each other, and by `salt`.
inline std::string some_bytes(std::size_t count, std::uint32_t salt = 0) {
  std::string bytes(count, '\0');
  std::uint32_t state = salt * 2654435761U + 1;
  for (char& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<char>(state >> 24U);
  }
  return bytes;
}

// A node's directory with one attempt.
class NodeDirectory {
 public:
  NodeDirectory() {
    std::filesystem::create_directory(dir_.path() /
                                      attempt_dir_name({kAttempt.step, kAttempt.attempt_id}));
  }
  void write(const std::string& path, const std::string& bytes) const {
    std::ofstream(dir_.path() / path, std::ios::binary) << bytes;
  }
  [[nodiscard]] const std::filesystem::path& path() const { return dir_.path(); }
  [[nodiscard]] std::unique_ptr<Vfs> vfs() const { return open_posix_vfs(dir_.path()).value(); }

 private:
  ScopedDir dir_;
};

// A disk whose reads call `before_read` first.
class HeldVfs final : public PassingVfs {
 public:
  using Hook = std::function<void(std::string_view name)>;
  HeldVfs(std::unique_ptr<Vfs> disk, Hook before_read)
      : PassingVfs(*disk), owned_(std::move(disk)), before_read_(std::move(before_read)) {}
  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override {
    auto file = PassingVfs::open_read(name, access);
    if (!file) return file;
    return std::make_unique<HeldFile>(std::move(*file), std::string(name), before_read_);
  }

 private:
  class HeldFile final : public PassingFile {
   public:
    HeldFile(std::unique_ptr<File> file, std::string name, const Hook& before_read)
        : PassingFile(std::move(file)), name_(std::move(name)), before_read_(before_read) {}
    Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) override {
      before_read_(name_);
      return PassingFile::read_at(offset, into);
    }

   private:
    const std::string name_;
    const Hook& before_read_;
  };
  const std::unique_ptr<Vfs> owned_;
  const Hook before_read_;
};

// A process that gives its directory's files to others.
class Serving {
 public:
  Serving(Node& node, std::vector<LinkPeer> peers, std::unique_ptr<Vfs> run)
      : endpoint(node.start(std::move(peers))),
        server(FileServer::start(*endpoint, std::move(run)).value()),
        dispatcher(LinkDispatcher::start(*endpoint, {.reads = server.get()}).value()) {}
  std::unique_ptr<Endpoint> endpoint;
  std::unique_ptr<FileServer> server;
  std::unique_ptr<LinkDispatcher> dispatcher;
};

// A process that reads them.
class Reading {
 public:
  Reading(Node& node, std::vector<LinkPeer> peers, AskTimes times = kNever, LinkTimes link = {})
      : endpoint(node.start(std::move(peers), link)),
        asks(std::make_unique<RemoteAsks>(*endpoint, times)),
        dispatcher(LinkDispatcher::start(*endpoint, {.answers = asks.get()}).value()) {}
  [[nodiscard]] std::unique_ptr<Vfs> files_of(std::uint32_t rank) const {
    return open_remote_files(*asks, {.rank = rank, .place = "host7"}).value();
  }
  std::unique_ptr<Endpoint> endpoint;
  std::unique_ptr<RemoteAsks> asks;
  std::unique_ptr<LinkDispatcher> dispatcher;
};

inline Result<std::string> read_range(File& file, std::uint64_t offset, std::size_t size) {
  std::string bytes(size, '\0');
  auto count = file.read_at(offset, std::as_writable_bytes(std::span(bytes)));
  if (!count) return std::unexpected(count.error());
  bytes.resize(*count);
  return bytes;
}

// The whole file of rank `rank`, as another process sees it.
inline Result<std::string> read_whole(Vfs& vfs, const std::string& path) {
  const auto file = vfs.open_read(path, Access::kDirect);
  if (!file) return std::unexpected(file.error());
  const auto bytes = (*file)->size();
  if (!bytes) return std::unexpected(bytes.error());
  return read_range(**file, 0, *bytes);
}

// The next read that a peer of the test is asked for; pings are passed over.
inline LinkRead heard_read(RawPeer& peer) {
  while (const auto message = peer.hear()) {
    if (const auto* read = std::get_if<LinkRead>(&*message)) return *read;
  }
  ADD_FAILURE() << "no read came: " << peer.error();
  return {};
}

}  // namespace deepfreeze::nodes_test
