#include "object/expat_library.h"

#include "base/loaded_library.h"
#include "base/try.h"

namespace deepfreeze::expat {
namespace {

Result<Library> load() {
  DF_TRY(const auto library,
         LoadedLibrary::open("libexpat.so.1", "DEEPFREEZE_EXPAT_LIBRARY",
                             "answers of an object store can't be read without Expat "
                             "(libexpat.so.1)"));
  Library found{};
  DF_TRY_VOID(library.find("XML_ParserCreate", found.make_parser));
  DF_TRY_VOID(library.find("XML_ParserFree", found.free_parser));
  DF_TRY_VOID(library.find("XML_SetUserData", found.set_user));
  DF_TRY_VOID(library.find("XML_SetElementHandler", found.set_elements));
  DF_TRY_VOID(library.find("XML_SetCharacterDataHandler", found.set_character_data));
  DF_TRY_VOID(library.find("XML_SetStartDoctypeDeclHandler", found.set_doctype));
  DF_TRY_VOID(library.find("XML_Parse", found.parse));
  DF_TRY_VOID(library.find("XML_StopParser", found.stop));
  DF_TRY_VOID(library.find("XML_GetErrorCode", found.error));
  DF_TRY_VOID(library.find("XML_ErrorString", found.error_text));
  return found;
}

}  // namespace

Result<const Library*> library() { return loaded_once<load>(); }

}  // namespace deepfreeze::expat
