#include "ranks/collective.h"

#include <fmt/format.h>

#include <utility>

#include "base/try.h"
#include "ranks/message.h"

namespace deepfreeze {
namespace {

std::string reply(const Status& status, std::string_view text) {
  MessageWriter message;
  message.status(status);
  if (status) message.text(text);
  return message.take();
}

std::vector<std::string> replies(Result<std::vector<std::string>> answers, std::size_t ranks) {
  std::vector<std::string> texts(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    texts[rank] =
        answers ? reply({}, (*answers)[rank]) : reply(std::unexpected(answers.error()), "");
  }
  return texts;
}

Result<std::string> read_reply(std::string_view text) {
  MessageReader message(text);
  DF_TRY_VOID(message.status());
  std::string own = message.text();
  DF_TRY_VOID(message.end());
  return own;
}

// By rank 0: the first that is not well.
Status first_error(const std::vector<std::string>& given) {
  for (std::size_t rank = 0; rank < given.size(); ++rank) {
    MessageReader message(given[rank]);
    const Status status = message.status();
    if (!status) return std::unexpected(of_rank(status.error(), rank));
    DF_TRY_VOID(message.end());
  }
  return {};
}

}  // namespace

Result<std::string> ask_rank0(RankGroup& ranks, std::string own, const Answer& answer) {
  DF_TRY(std::vector<std::string> given, ranks.gather(std::move(own)));
  std::vector<std::string> answers;
  if (ranks.rank() == 0) {
    const std::size_t count = given.size();
    answers = replies(answer(std::move(given)), count);
  }
  DF_TRY(const std::string mine, ranks.scatter(std::move(answers)));
  return read_reply(mine);
}

Status agree(RankGroup* ranks, const Status& own) {
  if (ranks == nullptr) return own;
  MessageWriter message;
  message.status(own);
  const auto agreed =
      ask_rank0(*ranks, message.take(),
                [](std::vector<std::string> given) -> Result<std::vector<std::string>> {
                  DF_TRY_VOID(first_error(given));
                  return std::vector<std::string>(given.size());
                });
  if (!agreed) return std::unexpected(agreed.error());
  return {};
}

Result<std::string> share_rank0s(RankGroup& ranks, Result<std::string> own) {
  return ask_rank0(ranks, {},
                   [&](std::vector<std::string> given) -> Result<std::vector<std::string>> {
                     if (!own) return std::unexpected(of_rank(own.error(), 0));
                     return std::vector<std::string>(given.size(), *own);
                   });
}

Error of_rank(const Error& error, std::size_t rank) {
  return error.within(fmt::format("rank {}", rank));
}

}  // namespace deepfreeze
