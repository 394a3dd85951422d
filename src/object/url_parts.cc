#include "object/url_parts.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/try.h"

namespace deepfreeze {
namespace {

using Address4 = std::array<unsigned char, 4>;
using Address6 = std::array<unsigned char, 16>;

bool is_host_letter(char letter) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  return kLetters.contains(letter);
}

bool is_url_letter(char letter) { return letter > ' ' && letter < '\x7f'; }

bool is_address6(const std::string& host, Address6& address) {
  return ::inet_pton(AF_INET6, host.c_str(), address.data()) == 1;
}

bool is_host(std::string_view host) {
  return !host.empty() && std::ranges::all_of(host, is_host_letter);
}

bool is_port(std::string_view port) {
  unsigned number = 0;  // stays 0 if there is none
  const char* const end = std::from_chars(port.begin(), port.end(), number).ptr;
  return end == port.end() && number > 0 && number <= 65'535;
}

// The text is "host", "host:port", "[address]" or "[address]:port".
Result<std::string_view> host_of(std::string_view authority) {
  const bool has_brackets = authority.starts_with('[');
  const std::size_t host_end = authority.find(has_brackets ? ']' : ':');
  std::string_view host = authority.substr(0, host_end);
  std::string_view rest = authority.substr(std::min(host_end, authority.size()));
  if (has_brackets && !rest.empty()) {
    host.remove_prefix(1);
    rest.remove_prefix(1);
  }
  Address6 ignored{};
  if (has_brackets ? !is_address6(std::string(host), ignored) : !is_host(host)) {
    return fail(ErrorCode::kInvalidArgument, "the URL's host is no name or address");
  }
  if (!rest.empty() && (rest.front() != ':' || !is_port(rest.substr(1)))) {
    return fail(ErrorCode::kInvalidArgument, "the URL's port is no number from 1 to 65535");
  }
  return host;
}

}  // namespace

Result<UrlParts> split_url(std::string_view url) {
  UrlParts parts;
  const std::size_t scheme_end = url.find("://");
  const std::string_view scheme = url.substr(0, scheme_end);
  if (scheme_end == std::string_view::npos || (scheme != "http" && scheme != "https")) {
    return fail(ErrorCode::kInvalidArgument, "the URL begins with neither http:// nor https://");
  }
  if (!std::ranges::all_of(url, is_url_letter) || url.contains('#')) {
    return fail(ErrorCode::kInvalidArgument, "the URL has a character that must be encoded");
  }
  parts.is_encrypted = scheme == "https";
  const std::size_t authority_begin = scheme_end + 3;
  const std::size_t path_begin = std::min(url.find_first_of("/?", authority_begin), url.size());
  const std::size_t query_begin = std::min(url.find('?', path_begin), url.size());
  const std::string_view authority = url.substr(authority_begin, path_begin - authority_begin);
  if (authority.contains('@')) {
    return fail(ErrorCode::kInvalidArgument, "the URL has a user's name or password");
  }
  DF_TRY(parts.host, host_of(authority));
  parts.origin = url.substr(0, path_begin);
  parts.path = url.substr(path_begin, query_begin - path_begin);
  parts.query = url.substr(query_begin);
  return parts;
}

bool is_loopback(std::string_view host) {
  constexpr Address6 kLoopback6 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  const std::string text(host);
  Address4 address4{};
  if (::inet_pton(AF_INET, text.c_str(), address4.data()) == 1) return address4[0] == 127;
  Address6 address6{};
  if (is_address6(text, address6)) return address6 == kLoopback6;
  return lower_case(host) == "localhost";
}

bool is_metadata(std::string_view host) {
  constexpr std::array<std::string_view, 5> kHosts = {
      "169.254.169.254", "169.254.170.2", "169.254.170.23", "fd00:ec2::254", "fd00:ec2::23"};
  return std::ranges::find(kHosts, lower_case(host)) != kHosts.end();
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& letter : lower) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return lower;
}

}  // namespace deepfreeze
