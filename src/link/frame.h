// Messages cut into frames, and put together again from bytes that may break off anywhere. Pure.
//
// A frame is the length of its bytes (4 bytes, least significant first), the kind of its message
// (1 byte; 128 more if the message goes on in the next frame), and its bytes. All frames but a
// message's last one are full, so that a message has one spelling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "link/link_message.h"

namespace deepfreeze {

inline constexpr std::size_t kFrameHeadBytes = 5;
inline constexpr std::size_t kFrameBytesMax = 1024 * 1024;

struct FrameLimits {
  std::size_t frame_bytes = kFrameBytesMax;
  std::size_t message_bytes = kLinkMessageBytesMax;
};

[[nodiscard]] std::string to_frames(const LinkPayload& payload,
                                    std::size_t frame_bytes = kFrameBytesMax);

// Reads one connection. Takes memory for bytes that have come, never for those that are announced.
class FrameReader {
 public:
  explicit FrameReader(FrameLimits limits = {}) : limits_(limits) {}

  // Takes bytes from the front of `bytes`: all of them, or those up to the end of a message, which
  // it returns. kCorrupt for a frame that to_frames() does not write, or a message that is too
  // long: from there on nothing can be read.
  [[nodiscard]] Result<std::optional<LinkPayload>> take(std::string_view& bytes);
  // For messages that have not begun.
  void set_message_bytes_max(std::size_t bytes) { limits_.message_bytes = bytes; }

 private:
  [[nodiscard]] Status begin_frame();

  FrameLimits limits_;
  std::string head_;
  std::size_t frame_bytes_left_ = 0;
  bool is_last_ = false;
  bool is_within_ = false;  // a message: its first frame has begun
  LinkPayload payload_;
};

}  // namespace deepfreeze
