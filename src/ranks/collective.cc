#include "ranks/collective.h"

#include <fmt/format.h>

#include <utility>

#include "base/message.h"
#include "base/try.h"

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

// Rank 0's check: the error of the first rank that reports one or is about another subject.
Status first_error(const std::vector<std::string>& given) {
  std::string first;
  for (std::size_t rank = 0; rank < given.size(); ++rank) {
    MessageReader message(given[rank]);
    const Status status = message.status();
    if (!status) return std::unexpected(of_rank(status.error(), rank));
    const std::string subject = message.text();
    DF_TRY_VOID(message.end());
    if (rank == 0) first = subject;
    if (subject == first) continue;
    return fail(ErrorCode::kMismatch,
                fmt::format("rank {} is at \"{}\", rank 0 at \"{}\"", rank, subject, first));
  }
  return {};
}

// Removes the call's name from each text; ranks whose calls differ are out of step.
Result<std::vector<std::string>> asked(const std::vector<std::string>& given) {
  std::vector<std::string> texts;
  std::string first;
  for (std::size_t rank = 0; rank < given.size(); ++rank) {
    MessageReader message(given[rank]);
    const std::string call = message.text();
    texts.push_back(message.text());
    DF_TRY_VOID(message.end());
    if (rank == 0) first = call;
    if (call == first) continue;
    return fail(ErrorCode::kMismatch,
                fmt::format("ranks make different calls: rank {} \"{}\", rank 0 \"{}\"", rank, call,
                            first));
  }
  return texts;
}

Result<std::vector<std::string>> answered(const std::vector<std::string>& given,
                                          const Answer& answer) {
  try {
    DF_TRY(std::vector<std::string> texts, asked(given));
    return answer(std::move(texts));
  } catch (const std::exception& cause) {  // the others wait for an answer
    return fail(ErrorCode::kNoSpace, fmt::format("rank 0: memory is refused: {}", cause.what()));
  }
}

}  // namespace

Result<std::string> ask_rank0(RankGroup& ranks, std::string_view call, std::string own,
                              const Answer& answer) {
  MessageWriter message;
  message.text(call).text(own);
  DF_TRY(const std::vector<std::string> given, ranks.gather(message.take()));
  std::vector<std::string> answers;
  if (ranks.rank() == 0) answers = replies(answered(given, answer), given.size());
  DF_TRY(const std::string mine, ranks.scatter(std::move(answers)));
  return read_reply(mine);
}

Status agree(RankGroup* ranks, std::string_view subject, const Status& own) {
  if (ranks == nullptr) return own;
  MessageWriter message;
  message.status(own);
  if (own) message.text(subject);
  const auto agreed =
      ask_rank0(*ranks, "agree", message.take(),
                [](const std::vector<std::string>& given) -> Result<std::vector<std::string>> {
                  DF_TRY_VOID(first_error(given));
                  return std::vector<std::string>(given.size());
                });
  if (!agreed) return std::unexpected(agreed.error());
  return {};
}

Result<std::string> share_rank0s(RankGroup& ranks, std::string_view call, Result<std::string> own) {
  return ask_rank0(ranks, call, {},
                   [&](const std::vector<std::string>& given) -> Result<std::vector<std::string>> {
                     if (!own) return std::unexpected(of_rank(own.error(), 0));
                     return std::vector<std::string>(given.size(), *own);
                   });
}

Error of_rank(const Error& error, std::size_t rank) {
  return error.within(fmt::format("rank {}", rank));
}

}  // namespace deepfreeze
