#include "agreement/attempt_rounds.h"

#include "agreement/leader_texts.h"
#include "base/log.h"
#include "base/message.h"
#include "base/try.h"
#include "storage/os_error.h"

namespace deepfreeze {
namespace {

std::string encode(const std::vector<AttemptName>& names) {
  MessageWriter message;
  message.number(static_cast<std::uint64_t>(names.size()));
  for (const AttemptName& name : names) message.number(name.step).number(name.attempt_id);
  return message.take();
}

Result<std::vector<AttemptName>> decode_attempts(std::string_view bytes) {
  MessageReader message(bytes);
  std::vector<AttemptName> names(message.count(2 * sizeof(std::uint64_t)));
  for (AttemptName& name : names) {
    name.step = message.number<std::uint64_t>();
    name.attempt_id = message.number<std::uint64_t>();
  }
  DF_TRY_VOID(message.end());
  return names;
}

// An error: they may be there, so an older checkpoint must not be taken in its place.
Result<std::string> sealed_files_in(Vfs& vfs, const AttemptName& attempt) {
  auto entries = vfs.list(attempt_dir_name(attempt));
  if (!entries) {
    if (may_have_good_copy(entries.error())) return std::unexpected(entries.error());
    if (entries.error().code() != ErrorCode::kNotFound) log_warning(entries.error().message());
    entries = std::vector<DirEntry>();
  }
  std::vector<std::string> files;
  for (const DirEntry& entry : *entries) {
    const bool is_sealed = entry.name == kManifestFile || parse_sealed_file_name(entry.name) ||
                           is_parity_file_name(entry.name);
    if (is_sealed) files.push_back(entry.name);
  }
  MessageWriter message;
  message.number(static_cast<std::uint64_t>(files.size()));
  for (const std::string& file : files) message.text(file);
  return message.take();
}

}  // namespace

Result<std::vector<std::vector<AttemptName>>> share_attempts(
    RankGroup& ranks, const NodeMap& nodes, const Result<std::vector<AttemptName>>& own) {
  Result<std::string> text;
  if (own) {
    text = encode(*own);
  } else {
    text = std::unexpected(own.error());
  }
  DF_TRY(const std::vector<std::string> texts,
         share_leader_texts(ranks, nodes, "list nodes", text));
  std::vector<std::vector<AttemptName>> all;
  for (const std::string& one : texts) {
    DF_TRY(std::vector<AttemptName> names, decode_attempts(one));
    all.push_back(std::move(names));
  }
  return all;
}

Result<FilePlaces> share_files(RankGroup& ranks, const NodeMap& nodes, Vfs& vfs,
                               const AttemptName& attempt) {
  const Result<std::string> own = nodes.leads() ? sealed_files_in(vfs, attempt) : "";
  DF_TRY(const std::vector<std::string> texts,
         share_leader_texts(ranks, nodes, "locate files", own));
  FilePlaces places;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    MessageReader message(texts[i]);
    for (std::size_t left = message.count(sizeof(std::uint64_t)); left > 0; --left) {
      places[message.text()].push_back(nodes.nodes()[i].ranks.front());
    }
    DF_TRY_VOID(message.end());
  }
  return places;
}

}  // namespace deepfreeze
