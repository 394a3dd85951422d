// Signature Version 4: 1 the canonical request, 2 the text to sign, 3 the key of the day, 4 the
// field "authorization".
#include "object/signature.h"

#include <fmt/format.h>
#include <string.h>  // explicit_bzero

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/scope_exit.h"
#include "base/try.h"
#include "object/digests.h"
#include "object/url_parts.h"

namespace deepfreeze {
namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";

// As it is sent: with the port, unless it is the scheme's own.
std::string_view host_field(const UrlParts& url) {
  std::string_view host = url.origin.substr(url.origin.find("://") + 3);
  const std::string_view own_port = url.is_encrypted ? ":443" : ":80";
  if (host.ends_with(own_port)) host.remove_suffix(own_port.size());
  return host;
}

// Sorted by name, then by value; a name alone has an empty value.
std::string canonical_query(std::string_view query) {
  if (query.starts_with('?')) query.remove_prefix(1);
  std::vector<std::pair<std::string_view, std::string_view>> parameters;
  while (!query.empty()) {
    const std::string_view parameter = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(parameter.size() + 1, query.size()));
    if (parameter.empty()) continue;
    const std::size_t name_end = std::min(parameter.find('='), parameter.size());
    parameters.emplace_back(parameter.substr(0, name_end),
                            parameter.substr(std::min(name_end + 1, parameter.size())));
  }
  std::ranges::sort(parameters);
  std::string text;
  for (const auto& [name, value] : parameters) {
    text += fmt::format("{}{}={}", text.empty() ? "" : "&", name, value);
  }
  return text;
}

// Without spaces at its ends, and with one instead of several.
std::string trimmed_value(std::string_view value) {
  std::string text;
  for (const char c : value) {
    const bool is_space = c == ' ' || c == '\t';
    if (is_space && (text.empty() || text.back() == ' ')) continue;
    text.push_back(is_space ? ' ' : c);
  }
  if (text.ends_with(' ')) text.pop_back();
  return text;
}

struct CanonicalFields {
  std::string lines;  // "host:example.org\n..."
  std::string names;  // "host;x-amz-date"
};

CanonicalFields canonical_fields(const std::vector<HttpField>& fields) {
  std::map<std::string_view, std::string> values;
  for (const HttpField& field : fields) {
    const auto [known, is_new] = values.try_emplace(field.name);
    if (!is_new) known->second += ',';
    known->second += trimmed_value(field.value);
  }
  CanonicalFields made;
  for (const auto& [name, value] : values) {
    made.lines += fmt::format("{}:{}\n", name, value);
    made.names += fmt::format("{}{}", made.names.empty() ? "" : ";", name);
  }
  return made;
}

void set_signed_field(HttpRequest& request, std::string name, std::string value) {
  std::erase_if(request.fields, [&](const HttpField& field) { return field.name == name; });
  request.fields.push_back({std::move(name), std::move(value)});
}

void remove_signed_field(HttpRequest& request, std::string_view name) {
  std::erase_if(request.fields, [&](const HttpField& field) { return field.name == name; });
}

struct SigningTime {
  std::string date;  // "20150830"
  std::string full;  // "20150830T123600Z"
};

SigningTime signing_time(std::chrono::system_clock::time_point now) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  const auto days = std::chrono::floor<std::chrono::days>(seconds);
  const std::chrono::year_month_day date(days);
  const std::chrono::hh_mm_ss time(seconds - days);
  SigningTime made;
  made.date = fmt::format("{:04}{:02}{:02}", static_cast<int>(date.year()),
                          static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
  made.full = fmt::format("{}T{:02}{:02}{:02}Z", made.date, time.hours().count(),
                          time.minutes().count(), time.seconds().count());
  return made;
}

Result<std::string> payload_of(const HttpRequest& request, const SigningScope& scope) {
  if (scope.service == "s3" && !scope.signs_body) return "UNSIGNED-PAYLOAD";
  DF_TRY(const Sha256 digest, sha256(request.body));
  return lower_case_hex(digest);
}

// Step 3. Each round's key is the secret of the next.
Result<std::string> signature_of(std::string_view text, const Credentials& credentials,
                                 const SigningScope& scope, std::string_view date) {
  const Secret secret("AWS4" + credentials.secret_key.text());
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(secret.text().data());
  DF_TRY(Sha256 key, hmac_sha256({bytes, secret.text().size()}, date));
  const ScopeExit forget([&] { ::explicit_bzero(key.data(), key.size()); });
  for (const std::string_view part :
       {std::string_view(scope.region), std::string_view(scope.service),
        std::string_view("aws4_request")}) {
    DF_TRY(key, hmac_sha256(key, part));
  }
  DF_TRY(const Sha256 signature, hmac_sha256(key, text));
  return lower_case_hex(signature);
}

}  // namespace

Status sign(HttpRequest& request, const Credentials& credentials, const SigningScope& scope,
            std::chrono::system_clock::time_point now) {
  DF_TRY(const UrlParts url, split_url(request.url));
  const SigningTime time = signing_time(now);
  DF_TRY(const std::string payload, payload_of(request, scope));

  // Step 1
  remove_signed_field(request, "authorization");
  remove_signed_field(request, "x-amz-security-token");
  set_signed_field(request, "host", std::string(host_field(url)));
  set_signed_field(request, "x-amz-date", time.full);
  if (scope.service == "s3") set_signed_field(request, "x-amz-content-sha256", payload);
  if (!credentials.session_token.empty()) {
    set_signed_field(request, "x-amz-security-token", credentials.session_token.text());
  }
  const CanonicalFields fields = canonical_fields(request.fields);
  DF_TRY(const Sha256 canonical,
         sha256(fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method,
                            url.path.empty() ? "/" : url.path, canonical_query(url.query),
                            fields.lines, fields.names, payload)));

  // Step 2
  const std::string where =
      fmt::format("{}/{}/{}/aws4_request", time.date, scope.region, scope.service);
  const std::string text =
      fmt::format("{}\n{}\n{}\n{}", kAlgorithm, time.full, where, lower_case_hex(canonical));

  // Steps 3 and 4
  DF_TRY(const std::string signature, signature_of(text, credentials, scope, time.date));
  set_signed_field(request, "authorization",
                   fmt::format("{} Credential={}/{},SignedHeaders={},Signature={}", kAlgorithm,
                               credentials.access_key.text(), where, fields.names, signature));
  return {};
}

std::string uri_encode(std::string_view text, bool keeps_slashes) {
  std::string encoded;
  for (const char c : text) {
    const bool is_plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
    if (is_plain || (c == '/' && keeps_slashes)) {
      encoded.push_back(c);
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

}  // namespace deepfreeze
