// Sealed records that no writer writes, for tests.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "format/sealed_json.h"

namespace deepfreeze {

// `body` must be an object with members, none of them "crc32c". Bytes that are not UTF-8 become
// U+FFFD.
inline std::string seal_json(const nlohmann::ordered_json& body) {
  return seal_text(body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace deepfreeze
