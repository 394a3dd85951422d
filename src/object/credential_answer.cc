#include "object/credential_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/try.h"
#include "json/json_reader.h"
#include "object/iso_time.h"
#include "storage/secret_file.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kKeysJsonDepthMax = 8;

std::unexpected<Error> not_as_keys() {
  return fail(ErrorCode::kIo, "the answer is not of the form that keys have");
}

struct ReadMembers {
  Credentials keys;
  Secret expiration;
  Secret code;
  std::string_view version;  // as written
};

// Null counts as absent; anything else that is no text is an error of the reader.
void read_key_text(JsonReader& reader, Secret& into) {
  if (reader.peek() == JsonReader::Kind::kNull) return reader.read_word();
  into = reader.read_string();
}

void read_key_member(JsonReader& reader, std::string_view name, KeysFrom from, ReadMembers& read) {
  const bool is_program = from == KeysFrom::kProgram;
  if (name == "AccessKeyId") return read_key_text(reader, read.keys.access_key);
  if (name == "SecretAccessKey") return read_key_text(reader, read.keys.secret_key);
  if (name == (is_program ? "SessionToken" : "Token")) {
    return read_key_text(reader, read.keys.session_token);
  }
  if (name == "Expiration") return read_key_text(reader, read.expiration);
  if (name == "Code" && !is_program) return read_key_text(reader, read.code);
  if (name == "Version" && is_program) {
    read.version = reader.read_number();
    return;
  }
  reader.skip_value();
}

Result<Credentials> with_expiration(Credentials keys, std::string_view expiration) {
  if (expiration.empty()) return keys;
  keys.expires = parse_iso_time(expiration);
  if (!keys.expires) return not_as_keys();
  return keys;
}

// The text of the one element of that name; none if there are several, or if it is not plain text.
std::optional<std::string_view> xml_element(std::string_view xml, std::string_view name) {
  const std::string open = fmt::format("<{}>", name);
  const std::string close = fmt::format("</{}>", name);
  const std::size_t begin = xml.find(open);
  if (begin == std::string_view::npos) return std::nullopt;
  const std::string_view rest = xml.substr(begin + open.size());
  const std::size_t end = rest.find(close);
  if (end == std::string_view::npos || rest.find(open) != std::string_view::npos) {
    return std::nullopt;
  }
  return rest.substr(0, end);
}

}  // namespace

Result<ServiceAnswer> ask_service(HttpTransport& transport, HttpRequest request) {
  std::string buffer(kKeysAnswerBytesMax, '\0');
  request.into = std::as_writable_bytes(std::span(buffer));
  auto answer = transport.send(request);
  for (HttpField& field : request.fields) wipe(field.value);  // some hold tokens
  const std::size_t bytes = answer && answer->is_success() ? answer->into_bytes : 0;
  buffer.resize(std::min(bytes, buffer.size()));
  Secret body(std::move(buffer));
  if (!answer) return std::unexpected(answer.error());
  if (!answer->is_success()) body = std::move(answer->body);
  return ServiceAnswer{.status = answer->status, .body = std::move(body)};
}

std::unexpected<Error> service_refusal(int status) {
  constexpr int kTooManyRequests = 429;
  constexpr int kServerErrors = 500;
  const bool may_pass = status == kTooManyRequests || status >= kServerErrors;
  return fail(may_pass ? ErrorCode::kIo : ErrorCode::kInvalidArgument,
              fmt::format("it answered with status {}", status));
}

std::unexpected<Error> service_silence(const Error& error) {
  return fail(error.code(), fmt::format("no whole answer ({})", to_string(error.code())));
}

Result<Credentials> parse_keys_json(std::string_view json, KeysFrom from) {
  JsonReader reader(json, kKeysJsonDepthMax);
  ReadMembers read;
  reader.enter_object();
  std::string_view name;
  while (reader.next_member(name)) read_key_member(reader, name, from, read);
  if (!reader.finish()) return not_as_keys();  // the reader's words could repeat the answer's
  if (from == KeysFrom::kProgram && read.version != "1") {
    return fail(ErrorCode::kIo, "the answer has another version than 1");
  }
  if (!read.code.empty() && !(read.code == "Success")) {
    return fail(ErrorCode::kIo, "it has no keys now");
  }
  return with_expiration(std::move(read.keys), read.expiration.text());
}

Result<Credentials> parse_keys_xml(std::string_view xml) {
  const auto keys = xml_element(xml, "Credentials");
  if (!keys) return not_as_keys();
  const auto access_key = xml_element(*keys, "AccessKeyId");
  const auto secret_key = xml_element(*keys, "SecretAccessKey");
  const auto token = xml_element(*keys, "SessionToken");
  const auto expiration = xml_element(*keys, "Expiration");
  for (const auto& text : {access_key, secret_key, token, expiration}) {
    // Keys need no entities; anything else that has such letters is no text.
    if (!text || text->empty() || text->find_first_of("<>&") != std::string_view::npos) {
      return not_as_keys();
    }
  }
  return with_expiration(
      {.access_key = *access_key, .secret_key = *secret_key, .session_token = *token}, *expiration);
}

Result<Secret> read_token_file(const std::string& path) {
  const auto file = read_secret_file(path, kKeyBytesMax);
  if (!file) return fail(ErrorCode::kInvalidArgument, file.error().message());
  constexpr std::string_view kSpaces = " \t\r\n";
  const std::string_view text = file->text();
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("read {}: it is empty", path));
  }
  return Secret(text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin));
}

bool is_plain_token(std::string_view text) {
  return text.size() <= kKeyBytesMax &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

Status check_keys(const Credentials& keys) {
  if (keys.access_key.empty() || keys.secret_key.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "keys for the object store: access key or secret key is missing");
  }
  for (const Secret* key : {&keys.access_key, &keys.secret_key, &keys.session_token}) {
    if (is_plain_token(key->text())) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("keys for the object store: one has spaces, letters that are not "
                            "ASCII, or more than {} bytes",
                            kKeyBytesMax));
  }
  return {};
}

}  // namespace deepfreeze
