#include "torch_functions.h"

#include <dlfcn.h>

namespace deepfreeze::python {
namespace {

constexpr const char* kLibrary = "libtorch_cpu.so";
constexpr const char* kIsNegative = "_ZN2at4_ops6is_neg4callERKNS_6TensorE";

TorchFunctions find() {
  TorchFunctions found;
  void* library = dlopen(kLibrary, RTLD_NOLOAD | RTLD_NOW);
  if (library == nullptr) return found;
  found.is_negative = reinterpret_cast<TorchFunctions::IsNegative>(dlsym(library, kIsNegative));
  dlclose(library);  // torch itself is never unloaded
  return found;
}

}  // namespace

const TorchFunctions& torch_functions() {
  static const TorchFunctions found = find();
  return found;
}

}  // namespace deepfreeze::python
