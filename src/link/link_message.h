// The messages between the nodes of a job (docs/decisions/0026), and their bytes. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "deepfreeze/result.h"

namespace deepfreeze {

inline constexpr std::uint32_t kLinkVersion = 2;
inline constexpr std::size_t kLinkMessageBytesMax = 64 * 1024 * 1024;
inline constexpr std::size_t kLinkNameBytesMax = 255;
inline constexpr std::size_t kLinkFilesMax = 64 * 1024;

// One try at saving one step.
struct LinkAttempt {
  std::uint64_t step = 0;
  std::uint64_t attempt_id = 0;
  bool operator==(const LinkAttempt&) const = default;
};

// The first message on each side; the endpoint's own.
struct LinkHello {
  std::uint32_t version = kLinkVersion;
  std::string run;
  std::uint32_t rank = 0;
};
// A file that its rank has sealed, with its header whole.
struct LinkPart {
  LinkAttempt attempt;
  std::string file;
  std::uint64_t bytes = 0;
  std::string header;
};
// All of a node's files are sealed, and their names are durable.
struct LinkSealed {
  struct File {
    std::string name;
    std::uint32_t header_crc = 0;
    bool operator==(const File&) const = default;
  };
  LinkAttempt attempt;
  std::vector<File> files;
};
struct LinkFailed {
  LinkAttempt attempt;
  Error error = Error(ErrorCode::kInternal, {});
};
// The attempt's outcome, as the bytes of manifest.json.
struct LinkDecided {
  LinkAttempt attempt;
  std::string manifest;
};
struct LinkAsk {
  LinkAttempt attempt;
};
// Answers to it: there is no outcome yet; nothing of the attempt is there any more.
struct LinkUnknown {
  LinkAttempt attempt;
};
struct LinkGone {
  LinkAttempt attempt;
};
// A range of a file; `number` is the asker's own, and comes back with the answer.
struct LinkRead {
  std::uint64_t number = 0;
  LinkAttempt attempt;
  std::string file;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};
struct LinkBytes {
  std::uint64_t number = 0;
  std::uint64_t file_bytes = 0;  // of the whole file, so that a range of no bytes asks for it
  std::string bytes;
};
// The answer to a read that failed. In place of a hello: the reason why there will be no link.
struct LinkError {
  std::uint64_t number = 0;
  Error error = Error(ErrorCode::kInternal, {});
};
// Says that the process lives; the endpoint's own.
struct LinkPing {};

// About the parity of an attempt. Rank 0 says that all begin to write it, and at the end that all
// have it; a leader that its own is written, or could not be. An agent that has taken a leader's
// place says that no word of that one will come (kEnded).
enum class ParityStage : std::uint8_t { kBegin, kWritten, kFailed, kAll, kEnded };
struct LinkProtected {
  LinkAttempt attempt;
  ParityStage stage = ParityStage::kBegin;
  // Counts rank 0's decisions: an order of an earlier turn than one that was heard is void. In an
  // answer, the turn of the order that it answers.
  std::uint64_t turn = 0;
  // In an order to begin: the newest attempt that all nodes have protected.
  std::optional<LinkAttempt> last = {};
};

// The order is that of their numbers on the wire, from 1.
using LinkMessage =
    std::variant<LinkHello, LinkPart, LinkSealed, LinkFailed, LinkDecided, LinkAsk, LinkUnknown,
                 LinkGone, LinkRead, LinkBytes, LinkError, LinkPing, LinkProtected>;

struct LinkPayload {
  std::uint8_t kind = 0;
  std::string bytes;
};
[[nodiscard]] bool is_link_kind(std::uint8_t kind);

// kInvalidArgument for more than kLinkMessageBytesMax bytes, or a name that no file can have.
[[nodiscard]] Result<LinkPayload> encode(const LinkMessage& message);
// kCorrupt for anything else than encode() writes; but an error's unknown code and long text are
// changed, not refused.
[[nodiscard]] Result<LinkMessage> decode(const LinkPayload& payload);

}  // namespace deepfreeze
