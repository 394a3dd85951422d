// A place that keeps whole files under names, such as a shared file system or an object store: the
// far end of a flush. It is no file system: a name is given once, with all its bytes; nothing is
// renamed or appended to, and replaced only as a whole (IfTaken).
//
// Names as in vfs.h: "manifest.json" below "step-…" is "step-…/manifest.json". Any thread; an
// Upload belongs to its opener. Errors name operation, place and cause, with the codes of vfs.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deepfreeze/result.h"

namespace deepfreeze {

class Vfs;

// One file on its way into a store. Until finish() has returned, no reader sees its name.
class Upload {
 public:
  Upload() = default;
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;
  // Gives an unfinished upload up, and removes its bytes as far as the store allows.
  virtual ~Upload() = default;

  // The next bytes, in order, from memory at a page boundary. All pieces but the last are whole
  // pages of 4096 bytes. The memory may be used again on return.
  // `crc32c` is theirs, if they have been verified: a store that takes checksums compares it with
  // the bytes that it is sent, kCorrupt.
  [[nodiscard]] virtual Status append(std::span<const std::byte> bytes,
                                      std::optional<std::uint32_t> crc32c) = 0;
  // The file has fewer bytes than it was begun with: those that came are all. Before finish().
  virtual void end_here() = 0;
  // Gives the file its name. Its bytes are durable on return, its name after settle(). kExists if
  // the name is taken and the upload was begun with IfTaken::kRefuse.
  [[nodiscard]] virtual Status finish() = 0;
};

// The fate of a file that has the name already. Replacing is for one that does not verify: a
// reader finds either the old file or the new one.
enum class IfTaken : std::uint8_t { kRefuse, kReplace };

class TierStore {
 public:
  TierStore() = default;
  TierStore(const TierStore&) = delete;
  TierStore& operator=(const TierStore&) = delete;
  virtual ~TierStore() = default;

  // Begins a file of exactly `bytes` bytes, or of at most so many: see end_here(). kNoSpace if the
  // store knows that they do not fit.
  [[nodiscard]] virtual Result<std::unique_ptr<Upload>> begin(std::string_view name,
                                                              std::uint64_t bytes,
                                                              IfTaken if_taken) = 0;
  // Gives a finished file one more name, by a hard link; settle() makes it durable. kUnsupported:
  // the store has none, or no more for this file. kExists: `to` is taken. kNotFound: `from` is
  // gone.
  [[nodiscard]] virtual Status link(std::string_view from, std::string_view to);
  // Whether a file that has no hard links here is kept in the shared directory, with a reference in
  // each place where it would be (format/file_reference.h). Then the store is consistent: a
  // look after a call has returned shows its effect.
  [[nodiscard]] virtual bool takes_references() const { return false; }
  // Makes all names in a directory durable, also those of other processes; "" is the root, which
  // has the names of the directories.
  [[nodiscard]] virtual Status settle(std::string_view directory) = 0;
  // Ends waits for a store that does not answer: calls under way and later ones end soon, with
  // kCancelled; a file system goes on. Any thread.
  virtual void stop() {}
  // The same files for reading: names that were finished, and only those. The view lives as long as
  // the store. If its changing calls are answered at all depends on the store.
  [[nodiscard]] virtual Vfs& view() = 0;
};

// A whole small file: begin, append, finish.
[[nodiscard]] Status put_text(TierStore& store, std::string_view name, std::string_view text,
                              IfTaken if_taken = IfTaken::kRefuse);

}  // namespace deepfreeze
