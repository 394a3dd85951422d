// Ranks that are forked processes: each has a socket to rank 0. A rank that has died makes the
// others' calls fail.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/try.h"
#include "base/unique_fd.h"
#include "deepfreeze/ranks.h"

namespace deepfreeze::heirs_test {

// Made before the ranks are forked.
class PipeRanks {
 public:
  explicit PipeRanks(std::uint32_t world_size) : ends_(world_size) {
    for (std::uint32_t rank = 1; rank < world_size; ++rank) {
      std::array<int, 2> pair{};
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) ::abort();
      ends_[rank] = {UniqueFd(pair[0]), UniqueFd(pair[1])};
    }
  }

  // In the forked process, once.
  [[nodiscard]] std::shared_ptr<RankGroup> join(std::uint32_t rank) {
    std::vector<UniqueFd> sockets;
    if (rank > 0) sockets.push_back(std::move(ends_[rank].far));
    for (std::size_t other = 1; rank == 0 && other < ends_.size(); ++other) {
      sockets.push_back(std::move(ends_[other].near));
    }
    const auto world_size = static_cast<std::uint32_t>(ends_.size());
    ends_.clear();
    return std::make_shared<Member>(rank, world_size, std::move(sockets));
  }

 private:
  struct Ends {
    UniqueFd near;  // rank 0's
    UniqueFd far;
  };

  class Member final : public RankGroup {
   public:
    Member(std::uint32_t rank, std::uint32_t world_size, std::vector<UniqueFd> sockets)
        : rank_(rank), world_size_(world_size), sockets_(std::move(sockets)) {}

    [[nodiscard]] std::uint32_t rank() const override { return rank_; }
    [[nodiscard]] std::uint32_t world_size() const override { return world_size_; }
    [[nodiscard]] Result<std::vector<std::string>> gather(std::string bytes) override {
      std::vector<std::string> all;
      if (rank_ > 0) {
        DF_TRY_VOID(send(sockets_.front(), bytes));
        return all;
      }
      all.push_back(std::move(bytes));
      for (const UniqueFd& socket : sockets_) {
        DF_TRY(std::string one, receive(socket));
        all.push_back(std::move(one));
      }
      return all;
    }
    [[nodiscard]] Result<std::string> scatter(std::vector<std::string> bytes) override {
      if (rank_ > 0) return receive(sockets_.front());
      for (std::size_t i = 0; i < sockets_.size(); ++i) {
        DF_TRY_VOID(send(sockets_[i], bytes[i + 1]));
      }
      return std::move(bytes.front());
    }

   private:
    static std::unexpected<Error> gone() { return fail(ErrorCode::kTimeout, "a rank is gone"); }

    static Status send(const UniqueFd& socket, const std::string& bytes) {
      const std::uint64_t size = bytes.size();
      const std::string all = std::string(reinterpret_cast<const char*>(&size), 8) + bytes;
      for (std::size_t done = 0; done < all.size();) {
        const ssize_t count =
            ::send(socket.get(), all.data() + done, all.size() - done, MSG_NOSIGNAL);
        if (count <= 0) return gone();
        done += static_cast<std::size_t>(count);
      }
      return {};
    }
    static Status read_all(const UniqueFd& socket, char* into, std::size_t size) {
      while (size > 0) {
        const ssize_t count = ::recv(socket.get(), into, size, 0);
        if (count <= 0) return gone();
        into += count;
        size -= static_cast<std::size_t>(count);
      }
      return {};
    }
    static Result<std::string> receive(const UniqueFd& socket) {
      std::uint64_t size = 0;
      DF_TRY_VOID(read_all(socket, reinterpret_cast<char*>(&size), sizeof(size)));
      std::string bytes(size, '\0');
      DF_TRY_VOID(read_all(socket, bytes.data(), bytes.size()));
      return bytes;
    }

    const std::uint32_t rank_;
    const std::uint32_t world_size_;
    const std::vector<UniqueFd> sockets_;
  };

  std::vector<Ends> ends_;  // by rank; none for rank 0
};

}  // namespace deepfreeze::heirs_test
