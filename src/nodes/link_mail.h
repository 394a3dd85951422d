// Mail over the links of an endpoint.
#pragma once

#include "link/endpoint.h"
#include "nodes/mail.h"

namespace deepfreeze {

// Takes everything that the endpoint receives, and drops messages that are no letter: reads of
// files have no server yet. The endpoint is the caller's, and must outlive it.
class LinkMail final : public Mail {
 public:
  explicit LinkMail(Endpoint& endpoint) : endpoint_(endpoint) {}

  [[nodiscard]] Status send(std::uint32_t rank, const LinkMessage& message) override;
  [[nodiscard]] Result<Letter> take(std::chrono::milliseconds timeout) override;

 private:
  Endpoint& endpoint_;
};

}  // namespace deepfreeze
