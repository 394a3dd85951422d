// The parts of an http:// or https:// URL, and which hosts are special. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "deepfreeze/result.h"

namespace deepfreeze {

struct UrlParts {  // views of the URL
  bool is_encrypted = false;
  std::string_view origin;  // "https://[::1]:8333"
  std::string_view host;    // "::1", "store.example"
  std::string_view path;    // "" or "/a/b"
  std::string_view query;   // "" or "?c=d"
};

// kInvalidArgument: another scheme, a user's name or password, a host or port that are none, a
// fragment, or a character that HTTP does not allow. Messages have nothing of the URL, which may
// hold secrets.
[[nodiscard]] Result<UrlParts> split_url(std::string_view url);

// Addresses as numbers, and "localhost"; other names may lead anywhere.
[[nodiscard]] bool is_loopback(std::string_view host);
// The addresses at which clouds give credentials to their machines and containers.
[[nodiscard]] bool is_metadata(std::string_view host);

[[nodiscard]] std::string lower_case(std::string_view text);  // of ASCII

}  // namespace deepfreeze
