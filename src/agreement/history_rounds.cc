#include "agreement/history_rounds.h"

#include <fmt/format.h>

#include <algorithm>

#include "agreement/node_histories.h"
#include "base/message.h"
#include "base/try.h"
#include "manifest/run_directory.h"
#include "ranks/collective.h"
#include "storage/vfs_tier_store.h"

namespace deepfreeze {
namespace {

std::string text_of(const std::optional<RunRecord>& run) { return run ? encode_run(*run) : ""; }

void write(MessageWriter& message, const std::vector<GenerationRecord>& records) {
  message.number(static_cast<std::uint64_t>(records.size()));
  for (const GenerationRecord& record : records) message.text(encode_generation(record));
}

Result<std::optional<RunRecord>> read_run_text(MessageReader& message) {
  const std::string text = message.text();
  if (text.empty()) return std::nullopt;
  return decode_run(text);
}

Result<std::vector<GenerationRecord>> read_records_in(MessageReader& message) {
  std::vector<GenerationRecord> records;
  for (std::size_t left = message.count(sizeof(std::uint64_t)); left > 0; --left) {
    DF_TRY(GenerationRecord record, decode_generation(message.text()));
    records.push_back(std::move(record));
  }
  return records;
}

std::string encode(const NodeHistory& history) {
  MessageWriter message;
  message.text(text_of(history.run)).number(history.save_index);
  message.number(static_cast<std::uint64_t>(history.claims.size()));
  for (const NodeHistory::Claim& claim : history.claims) {
    message.text(encode_generation(claim.record)).flag(claim.is_used);
  }
  message.number(static_cast<std::uint64_t>(history.unreadable.size()));
  for (const std::uint64_t generation : history.unreadable) message.number(generation);
  return message.take();
}

Result<NodeHistory> decode_history(std::string_view bytes) {
  MessageReader message(bytes);
  NodeHistory history;
  DF_TRY(history.run, read_run_text(message));
  history.save_index = message.number<std::uint64_t>();
  for (std::size_t left = message.count(sizeof(std::uint64_t) + 1); left > 0; --left) {
    DF_TRY(GenerationRecord record, decode_generation(message.text()));
    history.claims.push_back({.record = std::move(record), .is_used = message.flag()});
  }
  history.unreadable.resize(message.count(sizeof(std::uint64_t)));
  for (std::uint64_t& generation : history.unreadable) {
    generation = message.number<std::uint64_t>();
  }
  DF_TRY_VOID(message.end());
  return history;
}

struct OwnPatch {
  HistoryPatch patch;
  RunWriter::Highest highest;
};

std::string encode(const HistoryPatch& patch, const RunWriter::Highest& highest) {
  MessageWriter message;
  message.number(highest.generation).number(highest.save_index).text(text_of(patch.run));
  write(message, patch.claims);
  write(message, patch.winners);
  return message.take();
}

Result<OwnPatch> decode_patch(std::string_view bytes) {
  MessageReader message(bytes);
  OwnPatch own;
  own.highest.generation = message.number<std::uint64_t>();
  own.highest.save_index = message.number<std::uint64_t>();
  DF_TRY(own.patch.run, read_run_text(message));
  DF_TRY(own.patch.claims, read_records_in(message));
  DF_TRY(own.patch.winners, read_records_in(message));
  DF_TRY_VOID(message.end());
  return own;
}

NodeHistory history_of(const RunListing& listing) {
  NodeHistory history{.run = listing.run, .claims = {}, .unreadable = {}};
  for (const Claim& claim : listing.claims) {
    if (claim.record) {
      history.claims.push_back({*claim.record, is_used(listing, claim.generation)});
    } else {
      history.unreadable.push_back(claim.generation);
    }
  }
  for (const AttemptState& attempt : listing.attempts) {
    if (!attempt.manifest) continue;
    history.save_index = std::max(history.save_index, attempt.manifest->point.save_index);
  }
  return history;
}

Result<NodeHistory> read_history(Vfs& vfs) {
  const auto listing = read_run(vfs);
  if (listing) return history_of(*listing);
  if (listing.error().code() == ErrorCode::kNotFound) return NodeHistory{};
  return std::unexpected(listing.error());
}

// A leader's answer is its history; the other ranks' is empty.
std::string encode_own(const NodeMap& nodes, Vfs& vfs) {
  MessageWriter message;
  if (!nodes.leads()) return message.status({}).text("").take();
  const auto history = read_history(vfs);
  if (!history) return message.status(std::unexpected(history.error())).take();
  return message.status({}).text(encode(*history)).take();
}

Result<std::vector<NodeHistory>> decode_all(const NodeMap& nodes,
                                            const std::vector<std::string>& given) {
  std::vector<NodeHistory> histories;
  for (const JobNode& node : nodes.nodes()) {
    const std::uint32_t leader = node.ranks.front();
    MessageReader message(given[leader]);
    const Status read = message.status();
    if (!read) return std::unexpected(of_rank(read.error(), leader));
    const std::string text = message.text();
    DF_TRY_VOID(message.end());
    DF_TRY(NodeHistory history, decode_history(text));
    histories.push_back(std::move(history));
  }
  return histories;
}

// On rank 0.
Result<std::vector<std::string>> answer_all(const NodeMap& nodes, Vfs& vfs,
                                            const std::optional<ParentPoint>& parent,
                                            const std::vector<std::string>& given) {
  DF_TRY(const std::vector<NodeHistory> histories, decode_all(nodes, given));
  std::optional<RunRecord> made;
  if (!any_run(histories)) {
    DF_TRY(made, create_or_open_run(vfs, parent));
  }
  const std::vector<JobNode> all(nodes.nodes().begin(), nodes.nodes().end());
  DF_TRY(const MergedHistory merged, merge_histories(all, histories, made));
  std::vector<std::string> answers(given.size(), encode(HistoryPatch{}, merged.highest));
  for (std::size_t i = 0; i < all.size(); ++i) {
    answers[all[i].ranks.front()] = encode(merged.patches[i], merged.highest);
  }
  return answers;
}

Status apply(Vfs& vfs, const HistoryPatch& patch) {
  for (const GenerationRecord& record : patch.claims) {
    DF_TRY_VOID(
        place_durably(vfs, generation_file_name(record.generation), encode_generation(record)));
  }
  return patch.run ? place_durably(vfs, std::string(kRunFile), encode_run(*patch.run)) : Status{};
}

}  // namespace

bool is_used(const RunListing& listing, std::uint64_t generation) {
  return std::ranges::any_of(listing.attempts, [&](const AttemptState& attempt) {
    if (attempt.committed()) return attempt.manifest->point.generation == generation;
    return attempt.doubt && attempt.doubt->identity &&
           attempt.doubt->identity->generation == generation;
  });
}

Status place_durably(Vfs& vfs, const std::string& name, const std::string& text) {
  VfsTierStore store(vfs);
  const Status put = put_text(store, name, text);
  if (!put && put.error().code() != ErrorCode::kExists) return put;
  DF_TRY(const std::string found, read_file(vfs, name, kRecordBytesMax));
  if (found == text) return store.settle("");
  return fail(ErrorCode::kFenced, fmt::format("{} is another process's", vfs.path_of(name)));
}

Result<SharedHistory> share_history(RankGroup& ranks, const NodeMap& nodes, Vfs& vfs,
                                    const std::optional<ParentPoint>& parent) {
  DF_TRY(const std::string answer, ask_rank0(ranks, "share history", encode_own(nodes, vfs),
                                             [&](const std::vector<std::string>& given) {
                                               return answer_all(nodes, vfs, parent, given);
                                             }));
  DF_TRY(OwnPatch own, decode_patch(answer));
  DF_TRY_VOID(agree(&ranks, "share history", apply(vfs, own.patch)));
  return SharedHistory{.highest = own.highest, .winners = std::move(own.patch.winners)};
}

}  // namespace deepfreeze
