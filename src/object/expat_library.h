// The functions of Expat that reading a store's answers needs, found at run time. Names, signatures
// and numbers are those of Expat's reference (libexpat.github.io/doc/api/latest).
#pragma once

#include "deepfreeze/result.h"

namespace deepfreeze::expat {

using Parser = struct ParserTag;  // XML_Parser is a pointer to it

inline constexpr int kOk = 1;  // XML_STATUS_OK

using StartElement = void (*)(void* user, const char* name, const char** attributes);
using EndElement = void (*)(void* user, const char* name);
using CharacterData = void (*)(void* user, const char* text, int bytes);
using StartDoctype = void (*)(void* user, const char* name, const char* system_id,
                              const char* public_id, int has_internal_subset);

// A parser belongs to one thread.
struct Library {
  Parser* (*make_parser)(const char* encoding);
  void (*free_parser)(Parser* parser);
  void (*set_user)(Parser* parser, void* user);
  void (*set_elements)(Parser* parser, StartElement start, EndElement end);
  void (*set_character_data)(Parser* parser, CharacterData data);
  void (*set_doctype)(Parser* parser, StartDoctype start);
  int (*parse)(Parser* parser, const char* text, int bytes, int is_final);
  int (*stop)(Parser* parser, unsigned char is_resumable);
  int (*error)(Parser* parser);
  const char* (*error_text)(int error);
};

// Looked for once. kUnsupported on a machine without Expat.
[[nodiscard]] Result<const Library*> library();

}  // namespace deepfreeze::expat
