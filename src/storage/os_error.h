// Failed system calls as errors, one mapping for every Vfs.
#pragma once

#include <expected>
#include <string>
#include <string_view>

#include "deepfreeze/result.h"

namespace deepfreeze {

// ENOSPC, EDQUOT: kNoSpace; ENOENT: kNotFound; EEXIST: kExists; the rest kIo.
[[nodiscard]] ErrorCode code_of_errno(int os_errno);

// Whether the process was refused, by permissions or by a limit of its own, which says nothing
// about the bytes: EACCES, EPERM, EMFILE, ENFILE, ENOMEM.
[[nodiscard]] bool is_refusal(const Error& error);

// Whether an error of one copy of a file leaves open that this copy is good: no answer, a refusal,
// a lack of memory. The error is no reason for an older checkpoint then, nor to replace the copy.
[[nodiscard]] bool may_have_good_copy(const Error& error);

// return os_fail("write", "/run/x at 4096", errno);  ->  "write /run/x at 4096: No space left ..."
[[nodiscard]] std::unexpected<Error> os_fail(std::string_view operation, std::string_view place,
                                             int os_errno);

}  // namespace deepfreeze
