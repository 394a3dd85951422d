#include "storage/tier_store.h"

#include <fmt/format.h>

#include <cstring>

#include "base/mapped_memory.h"
#include "base/try.h"
#include "storage/vfs.h"

namespace deepfreeze {

Status TierStore::link(std::string_view /*from*/, std::string_view to) {
  return fail(ErrorCode::kUnsupported,
              fmt::format("link {}: the place has no hard links", view().path_of(to)));
}

Status put_text(TierStore& store, std::string_view name, std::string_view text, IfTaken if_taken) {
  DF_TRY(const std::unique_ptr<Upload> upload, store.begin(name, text.size(), if_taken));
  if (!text.empty()) {
    DF_TRY(const MappedMemory pages, MappedMemory::allocate(text.size()));
    std::memcpy(pages.bytes().data(), text.data(), text.size());
    DF_TRY_VOID(upload->append(pages.bytes().first(text.size()), std::nullopt));
  }
  return upload->finish();
}

}  // namespace deepfreeze
