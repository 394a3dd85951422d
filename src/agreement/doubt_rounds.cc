#include "agreement/doubt_rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "agreement/leader_texts.h"
#include "base/log.h"
#include "base/message.h"
#include "base/try.h"
#include "manifest/in_doubt.h"
#include "manifest/retention.h"
#include "ranks/collective.h"

namespace deepfreeze {
namespace {

using Questions = std::vector<Question>;

std::string encode(const Questions& asked) {
  MessageWriter message;
  message.number(static_cast<std::uint64_t>(asked.size()));
  for (const auto& [identity, node] : asked) {
    message.text(identity.run_id).number(identity.attempt_id).number(identity.generation);
    message.number(identity.step).number(identity.save_index).number(node);
    message.number(identity.part.rank).number(identity.part.world_size);
    message.number(identity.part.file).number(identity.part.file_count);
  }
  return message.take();
}

Result<Questions> decode_questions(std::string_view bytes) {
  constexpr std::size_t kQuestionBytes = 6 * 8 + 4 * 4;
  MessageReader message(bytes);
  Questions asked(message.count(kQuestionBytes));
  for (auto& [identity, node] : asked) {
    identity.run_id = message.text();
    identity.attempt_id = message.number<std::uint64_t>();
    identity.generation = message.number<std::uint64_t>();
    identity.step = message.number<std::uint64_t>();
    identity.save_index = message.number<std::uint64_t>();
    node = message.number<std::uint64_t>();
    identity.part.rank = message.number<std::uint32_t>();
    identity.part.world_size = message.number<std::uint32_t>();
    identity.part.file = message.number<std::uint32_t>();
    identity.part.file_count = message.number<std::uint32_t>();
  }
  DF_TRY_VOID(message.end());
  return asked;
}

// An empty text is no answer.
std::string encode_answers(Vfs& vfs, std::uint64_t node, const std::vector<Questions>& asked) {
  MessageWriter message;
  for (const Questions& questions : asked) {
    for (const Question& question : questions) {
      const auto given = question.node == node ? answer(vfs, question)
                                               : Result<std::optional<std::string>>(std::nullopt);
      if (!given) log_warning(given.error().message());
      message.text(given && *given ? **given : "");
    }
  }
  return message.take();
}

// The first answer to each question of this node.
Result<std::vector<std::string>> answers_to(std::size_t own, const std::vector<Questions>& asked,
                                            const std::vector<std::string>& texts) {
  std::vector<std::string> answers(asked[own].size());
  for (const std::string& text : texts) {
    MessageReader message(text);
    for (std::size_t node = 0; node < asked.size(); ++node) {
      for (std::size_t i = 0; i < asked[node].size(); ++i) {
        std::string given = message.text();
        if (node == own && answers[i].empty()) answers[i] = std::move(given);
      }
    }
    DF_TRY_VOID(message.end());
  }
  return answers;
}

void place(Vfs& vfs, const Questions& asked, const std::vector<std::string>& answers) {
  std::size_t left = 0;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (answers[i].empty()) {
      ++left;
      continue;
    }
    const auto placed = place_answer(vfs, asked[i], answers[i]);
    if (!placed) log_warning(placed.error().message());
  }
  if (left > 0) {
    log_warning(
        fmt::format("{}: {} unfinished attempts stay in doubt: the nodes that decide them "
                    "are not in this job, or don't know",
                    vfs.path_of(""), left));
  }
  const auto collected = collect_garbage(vfs, Keep{});
  if (!collected) log_warning("aborted attempts stay: " + collected.error().message());
}

Result<std::string> own_questions(const NodeMap& nodes, Vfs& vfs) {
  if (!nodes.leads()) return "";
  DF_TRY(const RunListing listing, read_run(vfs));
  return encode(questions(listing));
}

}  // namespace

Status settle_doubts_of_job(RankGroup& ranks, const NodeMap& nodes, Vfs& vfs) {
  DF_TRY(const std::vector<std::string> texts,
         share_leader_texts(ranks, nodes, "ask about attempts", own_questions(nodes, vfs)));
  std::vector<Questions> asked;
  for (const std::string& text : texts) {
    DF_TRY(Questions questions, decode_questions(text));
    asked.push_back(std::move(questions));
  }
  if (std::ranges::all_of(asked, &Questions::empty)) return {};
  const std::string own = nodes.leads() ? encode_answers(vfs, nodes.own().digits, asked) : "";
  DF_TRY(const std::vector<std::string> given,
         share_leader_texts(ranks, nodes, "answer about attempts", own));
  const auto at = std::ranges::find(nodes.nodes(), nodes.own());
  const auto index = static_cast<std::size_t>(at - nodes.nodes().begin());
  DF_TRY(const std::vector<std::string> answers, answers_to(index, asked, given));
  if (nodes.leads()) place(vfs, asked[index], answers);
  return agree(&ranks, "settle attempts", {});
}

}  // namespace deepfreeze
