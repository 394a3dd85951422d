#include "nodes/letter_box.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "base/log.h"
#include "base/try.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kLetterBytes = 1024;  // of any letter, besides its texts

std::size_t bytes_of(const Letter& letter) {
  if (!letter.message) return kLetterBytes;
  const auto* part = std::get_if<LinkPart>(&*letter.message);
  const auto* decided = std::get_if<LinkDecided>(&*letter.message);
  const auto* sealed = std::get_if<LinkSealed>(&*letter.message);
  return kLetterBytes + (part != nullptr ? part->header.size() : 0) +
         (decided != nullptr ? decided->manifest.size() : 0) +
         (sealed != nullptr ? sealed->files.size() * kLinkNameBytesMax : 0);
}

}  // namespace

Status LetterBox::send(std::uint32_t rank, const LinkMessage& message) {
  return endpoint_.send(rank, message);
}

Result<Letter> LetterBox::take(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [this] { return is_ended_ || !letters_.empty(); });
  if (!letters_.empty()) {
    Letter letter = std::move(letters_.front());
    letters_.pop_front();
    bytes_ -= bytes_of(letter);
    return letter;
  }
  if (is_ended_) return fail(ErrorCode::kCancelled, "take a letter: the endpoint is closed");
  return fail(ErrorCode::kTimeout, "take a letter: none has come");
}

void LetterBox::take(std::uint32_t rank, LinkMessage message) {
  add({.rank = rank, .message = std::move(message)});
}

void LetterBox::note(const LinkState& state) { add({.rank = state.rank}); }

void LetterBox::end() {
  const std::lock_guard lock(mutex_);
  is_ended_ = true;
  changed_.notify_all();
}

void LetterBox::add(Letter letter) {
  const std::size_t bytes = bytes_of(letter);
  {
    const std::lock_guard lock(mutex_);
    if (bytes_ + bytes <= bytes_max_) {
      bytes_ += bytes;
      letters_.push_back(std::move(letter));
      changed_.notify_all();
      return;
    }
  }
  log_warning(fmt::format("a message of rank {} is dropped: {} bytes of them wait already",
                          letter.rank, bytes_max_));
}

}  // namespace deepfreeze
