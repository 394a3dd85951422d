// The bytes that another node sends once it has proved its key: frames, and the messages in them.
#include "fuzz/fuzz_target.h"
#include "fuzz/memory_meter.h"
#include "link/frame.h"

namespace deepfreeze {
namespace {

// Small, so that an input of 16 KiB has messages of several frames.
constexpr FrameLimits kLimits{.frame_bytes = 64, .message_bytes = 1024};

Status check_message(const LinkPayload& payload) {
  const auto message = decode(payload);
  if (!message) return check_refusal(message.error());
  const auto written = encode(*message);
  if (!written) return broken("read and not to be written: " + written.error().message());
  DF_TRY_VOID(promise(written->kind == payload.kind, "another kind"));
  const auto again = decode(*written);
  if (!again) return broken("written and not to be read: " + again.error().message());
  return promise(encode(*again)->bytes == written->bytes, "another message");
}

// The input in pieces of `piece` bytes.
Status check_frames(std::string_view input, std::size_t piece) {
  FrameReader reader(kLimits);
  std::string_view left = input;
  std::string read;  // the frames of all messages so far
  while (!left.empty()) {
    std::string_view bytes = left.substr(0, piece);
    left.remove_prefix(bytes.size());
    while (!bytes.empty()) {
      const auto payload = reader.take(bytes);
      if (!payload) return check_refusal(payload.error());
      if (!*payload) continue;
      read += to_frames(**payload, kLimits.frame_bytes);
      DF_TRY_VOID(promise(input.starts_with(read), "frames with two spellings"));
      DF_TRY_VOID(check_message(**payload));
    }
  }
  return {};
}

}  // namespace

Status fuzz_link(std::string_view input) {
  const MemoryMeter meter;
  for (const std::size_t piece : {input.size() + 1, std::size_t{1}, std::size_t{7}}) {
    DF_TRY_VOID(check_frames(input, piece));
  }
  for (std::uint8_t kind = 0; kind < 16; ++kind) {
    DF_TRY_VOID(check_message({.kind = kind, .bytes = std::string(input)}));
  }
  return meter.check(input.size());
}

}  // namespace deepfreeze
