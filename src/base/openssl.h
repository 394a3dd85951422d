// OpenSSL 3 of the system, for the folders that use parts of it.
#pragma once

#include <string_view>

#include "base/loaded_library.h"
#include "deepfreeze/result.h"

namespace deepfreeze {

// libssl.so.3, or the library that DEEPFREEZE_SSL_LIBRARY names, and the libcrypto that it needs.
// kUnsupported, which begins with `purpose`, if there is none. Code that calls another library
// with OpenSSL below it calls this before: the first initialisation decides. Any thread.
[[nodiscard]] Result<LoadedLibrary> open_openssl(std::string_view purpose);

}  // namespace deepfreeze
