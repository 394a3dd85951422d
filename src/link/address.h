// Addresses of processes, as numbers: no call asks a name server, which might not answer.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "deepfreeze/result.h"

namespace deepfreeze {

class LinkAddress {
 public:
  // "10.0.0.1:5000", "[fe80::1%eth0]:5000". kInvalidArgument.
  [[nodiscard]] static Result<LinkAddress> parse(std::string_view text);
  // The address of a socket's own end, or of its other one. kIo.
  [[nodiscard]] static Result<LinkAddress> of_socket(int socket);
  [[nodiscard]] static Result<LinkAddress> of_peer(int socket);

  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] const sockaddr* data() const {
    return reinterpret_cast<const sockaddr*>(&storage_);
  }
  [[nodiscard]] socklen_t bytes() const { return bytes_; }
  [[nodiscard]] int family() const { return storage_.ss_family; }

 private:
  LinkAddress() = default;

  sockaddr_storage storage_ = {};
  socklen_t bytes_ = sizeof(storage_);
};

// A socket that listens, without a thread: connections queue until somebody accepts. A copy of its
// descriptor in another process keeps the port. Port 0: the kernel chooses.
[[nodiscard]] Result<UniqueFd> listen_on(const LinkAddress& address);
// On all addresses of this machine, at a port that the kernel chooses.
[[nodiscard]] Result<UniqueFd> listen_everywhere();

// The addresses at which others may reach a port of this machine, of one interface or of all that
// are up. Addresses of the loopback are among them only if its interface is named.
[[nodiscard]] Result<std::vector<LinkAddress>> own_addresses(std::uint16_t port,
                                                             std::string_view interface = {});

// A socket that is being connected; poll() says when it can be written, or has failed.
[[nodiscard]] Result<UniqueFd> begin_connect(const LinkAddress& address);
// Small messages go at once. An option that is refused costs time only.
void set_no_delay(int socket);

}  // namespace deepfreeze
