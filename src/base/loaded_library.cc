#include "base/loaded_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "base/try.h"

namespace deepfreeze {
namespace {

std::string last_loader_error() {
  const char* text = ::dlerror();
  return text != nullptr ? text : "unknown cause";
}

}  // namespace

Result<LoadedLibrary> LoadedLibrary::open(const char* name, const char* variable,
                                          std::string_view purpose) {
  const char* chosen = std::getenv(variable);
  const bool is_chosen = chosen != nullptr && *chosen != '\0';
  LoadedLibrary library(::dlopen(is_chosen ? chosen : name, RTLD_NOW | RTLD_LOCAL), purpose);
  if (library.handle_ == nullptr) return library.unavailable(last_loader_error());
  return library;
}

std::unexpected<Error> LoadedLibrary::unavailable(std::string_view why) const {
  return fail(ErrorCode::kUnsupported, fmt::format("{}: {}", purpose_, why));
}

void* LoadedLibrary::address_of(const char* name) const { return ::dlsym(handle_, name); }

Status LoadedLibrary::lacks() const {
  return unavailable(
      fmt::format("the library is another one, or too old: {}", last_loader_error()));
}

}  // namespace deepfreeze
