#include "link/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/try.h"

namespace deepfreeze {
namespace {

constexpr std::uint8_t kGoesOn = 0x80;
constexpr std::size_t kLengthBytes = 4;

void append_frame(std::string& to, std::uint8_t kind, std::string_view bytes) {
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    to += static_cast<char>(bytes.size() >> 8 * i & 0xff);
  }
  to += static_cast<char>(kind);
  to += bytes;
}

std::size_t length_in(std::string_view head) {
  std::size_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::size_t{static_cast<unsigned char>(head[i])} << 8 * i;
  }
  return length;
}

// The front of `bytes`, which it loses.
std::string_view cut(std::string_view& bytes, std::size_t count) {
  const std::string_view front = bytes.substr(0, count);
  bytes.remove_prefix(front.size());
  return front;
}

}  // namespace

std::string to_frames(const LinkPayload& payload, std::size_t frame_bytes) {
  std::string frames;
  const std::size_t count = payload.bytes.size() / frame_bytes + 1;
  frames.reserve(payload.bytes.size() + count * kFrameHeadBytes);
  std::string_view left = payload.bytes;
  while (left.size() > frame_bytes) {
    append_frame(frames, payload.kind | kGoesOn, cut(left, frame_bytes));
  }
  append_frame(frames, payload.kind, left);
  return frames;
}

Result<std::optional<LinkPayload>> FrameReader::take(std::string_view& bytes) {
  while (true) {
    if (head_.size() < kFrameHeadBytes) {
      head_ += cut(bytes, kFrameHeadBytes - head_.size());
      if (head_.size() < kFrameHeadBytes) return std::nullopt;
      DF_TRY_VOID(begin_frame());
    }
    const std::string_view piece = cut(bytes, frame_bytes_left_);
    payload_.bytes += piece;
    frame_bytes_left_ -= piece.size();
    if (frame_bytes_left_ > 0) return std::nullopt;
    head_.clear();
    if (!is_last_) continue;
    is_within_ = false;
    return std::exchange(payload_, LinkPayload());
  }
}

Status FrameReader::begin_frame() {
  const std::size_t length = length_in(head_);
  const auto byte = static_cast<std::uint8_t>(head_.back());
  const auto kind = static_cast<std::uint8_t>(byte & ~kGoesOn);
  is_last_ = (byte & kGoesOn) == 0;
  if (length > limits_.frame_bytes) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("a frame of {} bytes, more than {}", length, limits_.frame_bytes));
  }
  if (!is_last_ && length < limits_.frame_bytes) {
    return fail(ErrorCode::kCorrupt, fmt::format("a frame of {} bytes that goes on", length));
  }
  if (is_within_ && length == 0) {
    return fail(ErrorCode::kCorrupt, "a message goes on in an empty frame");
  }
  if (!is_link_kind(kind) || (is_within_ && kind != payload_.kind)) {
    return fail(ErrorCode::kCorrupt, fmt::format("a frame of unknown kind {}", kind));
  }
  if (length > limits_.message_bytes - std::min(payload_.bytes.size(), limits_.message_bytes)) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("a message of more than {} bytes", limits_.message_bytes));
  }
  payload_.kind = kind;
  is_within_ = true;
  frame_bytes_left_ = length;
  return {};
}

}  // namespace deepfreeze
