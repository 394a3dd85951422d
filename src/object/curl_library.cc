#include "object/curl_library.h"

#include <fmt/format.h>

#include <cstdint>
#include <tuple>

#include "base/loaded_library.h"
#include "base/try.h"

namespace deepfreeze::curl {
namespace {

constexpr std::uint64_t kNoHandlerAtExit = 0x80000;  // OPENSSL_INIT_NO_ATEXIT
constexpr long kAllParts = 3;                        // CURL_GLOBAL_ALL

Result<LoadedLibrary> open_libcurl() {
  const auto open = [](const char* name) {
    return LoadedLibrary::open(name, "DEEPFREEZE_CURL_LIBRARY",
                               "object stores need libcurl 7.68 or newer (libcurl.so.4)");
  };
  auto usual = open("libcurl.so.4");
  if (usual) return usual;
  auto other = open("libcurl-gnutls.so.4");
  return other ? other : usual;
}

Status find_version(const LoadedLibrary& library, Library& found) {
  DF_TRY_VOID(library.find("curl_version_info", found.version));
  const Version& version = *found.version(0);
  if (version.number >= kVersionMin) return {};
  return library.unavailable(fmt::format("this one is {}", version.text));
}

Status find_exchanges(const LoadedLibrary& library, Library& found) {
  DF_TRY_VOID(library.find("curl_global_init", found.init));
  DF_TRY_VOID(library.find("curl_easy_strerror", found.result_text));
  DF_TRY_VOID(library.find("curl_slist_append", found.append));
  DF_TRY_VOID(library.find("curl_slist_free_all", found.free_list));
  DF_TRY_VOID(library.find("curl_easy_init", found.make_easy));
  DF_TRY_VOID(library.find("curl_easy_cleanup", found.free_easy));
  DF_TRY_VOID(library.find("curl_easy_reset", found.reset_easy));
  DF_TRY_VOID(library.find("curl_easy_setopt", found.set));
  return library.find("curl_easy_getinfo", found.get);
}

Status find_multi(const LoadedLibrary& library, Library& found) {
  DF_TRY_VOID(library.find("curl_multi_init", found.make_multi));
  DF_TRY_VOID(library.find("curl_multi_cleanup", found.free_multi));
  DF_TRY_VOID(library.find("curl_multi_add_handle", found.add));
  DF_TRY_VOID(library.find("curl_multi_remove_handle", found.remove));
  DF_TRY_VOID(library.find("curl_multi_perform", found.perform));
  DF_TRY_VOID(library.find("curl_multi_poll", found.poll));
  return library.find("curl_multi_info_read", found.next_message);
}

// A handler at exit would free OpenSSL's state below a thread that still uses it. A libcurl with
// another TLS library has no such function.
void keep_tls_at_exit(const LoadedLibrary& library) {
  int (*init)(std::uint64_t options, const void* settings) = nullptr;
  if (library.find("OPENSSL_init_ssl", init)) std::ignore = init(kNoHandlerAtExit, nullptr);
}

Result<Library> load() {
  DF_TRY(const auto library, open_libcurl());
  Library found{};
  DF_TRY_VOID(find_version(library, found));
  DF_TRY_VOID(find_exchanges(library, found));
  DF_TRY_VOID(find_multi(library, found));
  keep_tls_at_exit(library);
  if (const int result = found.init(kAllParts); result != kOk) {
    return library.unavailable(fmt::format("curl_global_init: {}", found.result_text(result)));
  }
  return found;
}

}  // namespace

Result<const Library*> library() { return loaded_once<load>(); }

}  // namespace deepfreeze::curl
