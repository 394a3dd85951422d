#include "agreement/leader_texts.h"

#include "base/message.h"
#include "base/try.h"
#include "ranks/collective.h"

namespace deepfreeze {
namespace {

Result<std::vector<std::string>> texts_for_all(const NodeMap& nodes,
                                               const std::vector<std::string>& given) {
  MessageWriter all;
  for (const JobNode& node : nodes.nodes()) {
    const std::uint32_t leader = node.ranks.front();
    MessageReader said(given[leader]);
    const Status status = said.status();
    if (!status) return std::unexpected(of_rank(status.error(), leader));
    all.text(said.text());
    DF_TRY_VOID(said.end());
  }
  return std::vector<std::string>(given.size(), all.take());
}

}  // namespace

Result<std::vector<std::string>> share_leader_texts(RankGroup& ranks, const NodeMap& nodes,
                                                    std::string_view call,
                                                    const Result<std::string>& own) {
  MessageWriter message;
  message.status(own ? Status{} : std::unexpected(own.error()));
  if (own) message.text(nodes.leads() ? *own : "");
  DF_TRY(const std::string answer,
         ask_rank0(ranks, call, message.take(), [&](const std::vector<std::string>& given) {
           return texts_for_all(nodes, given);
         }));
  MessageReader all(answer);
  std::vector<std::string> texts(nodes.nodes().size());
  for (std::string& text : texts) text = all.text();
  DF_TRY_VOID(all.end());
  return texts;
}

}  // namespace deepfreeze
