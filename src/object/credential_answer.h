// Keys in the answers of services and programs, which nobody vouches for. No message repeats a part
// of one. Any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "deepfreeze/result.h"
#include "object/credentials.h"
#include "object/http.h"

namespace deepfreeze {

inline constexpr std::size_t kKeysAnswerBytesMax = 64U << 10U;
inline constexpr std::size_t kKeyBytesMax = 16U << 10U;  // of one key or token

struct ServiceAnswer {
  int status = 0;
  Secret body;
};
// Sends it with a buffer that is cleared. An answer of more than kKeysAnswerBytesMax is an error.
[[nodiscard]] Result<ServiceAnswer> ask_service(HttpTransport& transport, HttpRequest request);
// An answer with another status than 200: kIo if it is worth another try, else kInvalidArgument.
[[nodiscard]] std::unexpected<Error> service_refusal(int status);
// No whole answer came, for the reason of `error`: without its words, which name the path.
[[nodiscard]] std::unexpected<Error> service_silence(const Error& error);

// {"AccessKeyId": ..., "SecretAccessKey": ..., "Expiration": ...} and the token, which services
// call "Token", and programs (which say "Version": 1 as well) "SessionToken". kIo.
enum class KeysFrom : std::uint8_t { kService, kProgram };
[[nodiscard]] Result<Credentials> parse_keys_json(std::string_view json, KeysFrom from);

// The answer of STS to AssumeRoleWithWebIdentity. kIo.
[[nodiscard]] Result<Credentials> parse_keys_xml(std::string_view xml);

// The text of a file that holds one token, without spaces and line ends around it.
// kInvalidArgument.
[[nodiscard]] Result<Secret> read_token_file(const std::string& path);

// Printable ASCII without spaces, up to kKeyBytesMax: it can't break out of a field of a request.
[[nodiscard]] bool is_plain_token(std::string_view text);
// kInvalidArgument unless there are both keys, and all are plain tokens.
[[nodiscard]] Status check_keys(const Credentials& keys);

}  // namespace deepfreeze
