// A library of the system that is found when the program runs, so that nothing is linked against
// it.
#pragma once

#include <string>
#include <string_view>

#include "deepfreeze/result.h"

namespace deepfreeze {

// Any thread. It is never unloaded: functions that were found stay valid.
class LoadedLibrary {
 public:
  // The library `name`, or the one that the environment's `variable` names. kUnsupported, which
  // begins with `purpose`, if it can't be loaded.
  [[nodiscard]] static Result<LoadedLibrary> open(const char* name, const char* variable,
                                                  std::string_view purpose);

  // A function of this library, or of one that it needs. kUnsupported if there is none.
  template <class Function>
  [[nodiscard]] Status find(const char* name, Function*& found) const {
    void* const address = address_of(name);
    if (address == nullptr) return lacks();
    found = reinterpret_cast<Function*>(address);
    return {};
  }

  // The error of a library that can't serve its purpose.
  [[nodiscard]] std::unexpected<Error> unavailable(std::string_view why) const;

 private:
  LoadedLibrary(void* handle, std::string_view purpose) : handle_(handle), purpose_(purpose) {}
  // The address of a function here, or in a library that this one needs (so OpenSSL's libcrypto is
  // the one that its libssl uses); null if there is none.
  [[nodiscard]] void* address_of(const char* name) const;
  [[nodiscard]] Status lacks() const;

  void* handle_;
  std::string purpose_;
};

// The functions that `kLoad` has found, or its error: it is called once in a process. Any thread.
template <auto kLoad>
[[nodiscard]] auto loaded_once() -> Result<const typename decltype(kLoad())::value_type*> {
  static const auto kLoaded = kLoad();
  if (!kLoaded) return std::unexpected(kLoaded.error());
  return &*kLoaded;
}

}  // namespace deepfreeze
