#include "base/secret.h"

#include <string.h>  // explicit_bzero

namespace deepfreeze {

void wipe(std::string& secret) {
  secret.resize(secret.capacity());  // a shorter text may have left bytes of a longer one
  ::explicit_bzero(secret.data(), secret.size());
  secret.clear();
}

}  // namespace deepfreeze
