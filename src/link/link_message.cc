#include "link/link_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/message.h"
#include "base/try.h"

namespace deepfreeze {
namespace {

// A file of an attempt's directory: one component, so that no name leads out of it.
bool is_name(std::string_view name) {
  if (name.empty() || name.size() > kLinkNameBytesMax || name == "." || name == "..") return false;
  return !name.contains('/') && !name.contains('\0');
}

// Every put() and take() below names the members of a message in the order of their bytes. take()
// is false if a value is one that no put() writes; has_names() looks at names.

void put(MessageWriter& to, const LinkAttempt& attempt) {
  to.number(attempt.step).number(attempt.attempt_id);
}
bool take(MessageReader& from, LinkAttempt& attempt) {
  attempt.step = from.number<std::uint64_t>();
  attempt.attempt_id = from.number<std::uint64_t>();
  return true;
}

void put(MessageWriter& to, const Error& error) { to.status(std::unexpected(error)); }
bool take(MessageReader& from, Error& error) {
  Status status = from.status();
  if (status) return false;
  error = std::move(status).error();
  return true;
}

void put(MessageWriter& to, const LinkHello& hello) {
  to.number(hello.version).text(hello.run).number(hello.rank);
}
bool take(MessageReader& from, LinkHello& hello) {
  hello.version = from.number<std::uint32_t>();
  hello.run = from.text();
  hello.rank = from.number<std::uint32_t>();
  return true;
}

void put(MessageWriter& to, const LinkPart& part) {
  put(to, part.attempt);
  to.text(part.file).number(part.bytes).text(part.header);
}
bool take(MessageReader& from, LinkPart& part) {
  take(from, part.attempt);
  part.file = from.text();
  part.bytes = from.number<std::uint64_t>();
  part.header = from.text();
  return true;
}

void put(MessageWriter& to, const LinkSealed& sealed) {
  put(to, sealed.attempt);
  to.number(std::uint64_t{sealed.files.size()});
  for (const LinkSealed::File& file : sealed.files) to.text(file.name).number(file.header_crc);
}
bool take(MessageReader& from, LinkSealed& sealed) {
  constexpr std::size_t kFileBytesMin = sizeof(std::uint64_t) + 1 + sizeof(std::uint32_t);
  take(from, sealed.attempt);
  const std::size_t count = from.count(kFileBytesMin);
  if (count > kLinkFilesMax) return false;
  sealed.files.resize(count);
  for (LinkSealed::File& file : sealed.files) {
    file.name = from.text();
    file.header_crc = from.number<std::uint32_t>();
  }
  return true;
}

void put(MessageWriter& to, const LinkFailed& failed) {
  put(to, failed.attempt);
  put(to, failed.error);
}
bool take(MessageReader& from, LinkFailed& failed) {
  take(from, failed.attempt);
  return take(from, failed.error);
}

void put(MessageWriter& to, const LinkDecided& decided) {
  put(to, decided.attempt);
  to.text(decided.manifest);
}
bool take(MessageReader& from, LinkDecided& decided) {
  take(from, decided.attempt);
  decided.manifest = from.text();
  return true;
}

template <class Message>
concept OfAttempt = std::is_same_v<Message, LinkAsk> || std::is_same_v<Message, LinkUnknown> ||
                    std::is_same_v<Message, LinkGone>;
template <OfAttempt Message>
void put(MessageWriter& to, const Message& message) {
  put(to, message.attempt);
}
template <OfAttempt Message>
bool take(MessageReader& from, Message& message) {
  return take(from, message.attempt);
}

void put(MessageWriter& to, const LinkRead& read) {
  to.number(read.number);
  put(to, read.attempt);
  to.text(read.file).number(read.offset).number(read.size);
}
bool take(MessageReader& from, LinkRead& read) {
  read.number = from.number<std::uint64_t>();
  take(from, read.attempt);
  read.file = from.text();
  read.offset = from.number<std::uint64_t>();
  read.size = from.number<std::uint64_t>();
  return true;
}

void put(MessageWriter& to, const LinkBytes& bytes) {
  to.number(bytes.number).number(bytes.file_bytes).text(bytes.bytes);
}
bool take(MessageReader& from, LinkBytes& bytes) {
  bytes.number = from.number<std::uint64_t>();
  bytes.file_bytes = from.number<std::uint64_t>();
  bytes.bytes = from.text();
  return true;
}

void put(MessageWriter& to, const LinkError& error) {
  to.number(error.number);
  put(to, error.error);
}
bool take(MessageReader& from, LinkError& error) {
  error.number = from.number<std::uint64_t>();
  return take(from, error.error);
}

void put(MessageWriter& to, const LinkProtected& told) {
  put(to, told.attempt);
  to.number(static_cast<std::uint8_t>(told.stage)).number(told.turn);
  to.number(static_cast<std::uint8_t>(told.last ? 1 : 0));
  if (told.last) put(to, *told.last);
}
bool take(MessageReader& from, LinkProtected& told) {
  take(from, told.attempt);
  const auto stage = from.number<std::uint8_t>();
  told.stage = static_cast<ParityStage>(stage);
  told.turn = from.number<std::uint64_t>();
  const auto has_last = from.number<std::uint8_t>();
  if (has_last == 1) take(from, told.last.emplace());
  return stage <= static_cast<std::uint8_t>(ParityStage::kEnded) && has_last <= 1;
}

void put(MessageWriter& /*to*/, const LinkPing& /*ping*/) {}
bool take(MessageReader& /*from*/, LinkPing& /*ping*/) { return true; }

// Whether all names of files are such, and not too many.
bool has_names(const LinkMessage& message) {
  if (const auto* part = std::get_if<LinkPart>(&message)) return is_name(part->file);
  if (const auto* read = std::get_if<LinkRead>(&message)) return is_name(read->file);
  const auto* sealed = std::get_if<LinkSealed>(&message);
  if (sealed == nullptr) return true;
  return sealed->files.size() <= kLinkFilesMax &&
         std::ranges::all_of(sealed->files, is_name, &LinkSealed::File::name);
}

template <std::size_t kIndex = 0>
Result<LinkMessage> decode_one_of(const LinkPayload& payload) {
  if constexpr (kIndex == std::variant_size_v<LinkMessage>) {
    return fail(ErrorCode::kCorrupt, fmt::format("a message of unknown kind {}", payload.kind));
  } else {
    if (payload.kind != kIndex + 1) return decode_one_of<kIndex + 1>(payload);
    std::variant_alternative_t<kIndex, LinkMessage> message;
    MessageReader from(payload.bytes);
    if (take(from, message) && from.end()) {
      LinkMessage whole(std::move(message));
      if (has_names(whole)) return whole;
    }
    return fail(ErrorCode::kCorrupt,
                fmt::format("a message of kind {} and {} bytes does not have the expected form",
                            payload.kind, payload.bytes.size()));
  }
}

}  // namespace

bool is_link_kind(std::uint8_t kind) {
  return kind >= 1 && kind <= std::variant_size_v<LinkMessage>;
}

Result<LinkPayload> encode(const LinkMessage& message) {
  if (!has_names(message)) {
    return fail(ErrorCode::kInvalidArgument, "a message names a file that can't exist");
  }
  MessageWriter to;
  std::visit([&to](const auto& one) { put(to, one); }, message);
  LinkPayload payload{.kind = static_cast<std::uint8_t>(message.index() + 1), .bytes = to.take()};
  if (payload.bytes.size() <= kLinkMessageBytesMax) return payload;
  return fail(ErrorCode::kInvalidArgument, fmt::format("a message has {} bytes, more than {}",
                                                       payload.bytes.size(), kLinkMessageBytesMax));
}

Result<LinkMessage> decode(const LinkPayload& payload) { return decode_one_of(payload); }

}  // namespace deepfreeze
