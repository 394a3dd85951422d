#include "base/openssl.h"

#include <cstdint>

#include "base/try.h"

namespace deepfreeze {

Result<LoadedLibrary> open_openssl(std::string_view purpose) {
  DF_TRY(auto library, LoadedLibrary::open("libssl.so.3", "DEEPFREEZE_SSL_LIBRARY", purpose));
  int (*init)(std::uint64_t options, const void* settings) = nullptr;
  DF_TRY_VOID(library.find("OPENSSL_init_ssl", init));
  // A handler at exit would free the library's state below a thread that still uses it. There is
  // one if the program has initialised the library itself; then threads that use it must have ended
  // before exit.
  constexpr std::uint64_t kInitNoAtExit = 0x80000;  // OPENSSL_INIT_NO_ATEXIT
  if (init(kInitNoAtExit, nullptr) != 1) return library.unavailable("OPENSSL_init_ssl failed");
  return library;
}

}  // namespace deepfreeze
