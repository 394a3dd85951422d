#include "api/near_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "agreement/attempt_rounds.h"
#include "agreement/claim_rounds.h"
#include "api/rebuilt_on_demand.h"
#include "base/log.h"
#include "base/named_threads.h"
#include "base/polling.h"
#include "base/try.h"
#include "nodes/answered.h"
#include "nodes/routed_files.h"
#include "ranks/collective.h"
#include "storage/posix_vfs.h"

namespace deepfreeze {
namespace {

constexpr std::chrono::seconds kLetterWait{60};  // then it waits again

JobNodes job_nodes(const NodeMap& map) {
  std::vector<std::vector<std::uint32_t>> nodes;
  for (const JobNode& node : map.nodes()) nodes.push_back(node.ranks);
  return JobNodes(std::move(nodes));
}

bool is_leader(const NodeMap& map, std::uint32_t rank) {
  return std::ranges::any_of(map.nodes(),
                             [&](const JobNode& node) { return node.ranks.front() == rank; });
}

std::vector<AttemptName> committed_in(const RunListing& listing) {
  std::vector<AttemptName> names;
  for (const AttemptState& attempt : listing.attempts) {
    if (attempt.committed()) names.push_back(attempt.name);
  }
  return names;
}

// From `known`, or read from the node that has it. Nothing: it was deleted meanwhile.
Result<std::optional<AttemptState>> find_attempt(const std::vector<AttemptState>& known,
                                                 const AttemptName& name, Vfs& files,
                                                 const std::string& run) {
  const auto found = std::ranges::find_if(known, [&](const AttemptState& attempt) {
    return attempt.name == name && attempt.committed();
  });
  if (found != known.end()) return AttemptState{.name = name, .manifest = found->manifest};
  auto manifest = read_manifest(files, name, run);
  if (manifest) return AttemptState{.name = name, .manifest = *std::move(manifest)};
  const ErrorCode code = manifest.error().code();
  if (code == ErrorCode::kNotFound || code == ErrorCode::kGone) return std::nullopt;
  if (code != ErrorCode::kCorrupt) return std::unexpected(manifest.error());
  return AttemptState{.name = name, .manifest = {}, .fault = manifest.error()};
}

}  // namespace

Result<std::shared_ptr<NearNodes>> NearNodes::open(RankGroup& ranks, NodeMap map, Vfs& near,
                                                   const std::string& run,
                                                   const std::string& interface) {
  DF_TRY(Links links, open_links(ranks, map, run, interface));
  std::shared_ptr<NearNodes> nodes;
  Status started;
  try {
    nodes = std::make_shared<NearNodes>(ranks, std::move(map), near, run, std::move(links));
    started = nodes->start();
    if (started) started = nodes->await_links();
  } catch (const std::exception& cause) {  // the others must hear of it
    started = fail(ErrorCode::kNoSpace, fmt::format("memory is refused: {}", cause.what()));
  }
  DF_TRY_VOID(agree(&ranks, "start links", started));
  return nodes;
}

NearNodes::NearNodes(RankGroup& ranks, NodeMap map, Vfs& near, const std::string& run, Links links)
    : ranks_(ranks),
      map_(std::move(map)),
      near_(near),
      identity_(std::move(links.identity)),
      peers_(std::move(links.peers)),
      run_(run),
      endpoint_(std::move(links.endpoint)),
      letters_(*endpoint_),
      ledger_(job_nodes(map_), ranks.rank()),
      asks_(*endpoint_) {}

// A directory that is replaced is opened anew for saving, and nobody else may use that Vfs then.
Status NearNodes::start() {
  if (map_.leads()) {
    DF_TRY(auto served, open_posix_vfs(near_.path_of("")));
    DF_TRY(server_, FileServer::start(*endpoint_, std::move(served)));
  }
  DF_TRY(dispatcher_, LinkDispatcher::start(*endpoint_, {.reads = server_.get(),
                                                         .answers = &asks_,
                                                         .commits = &letters_,
                                                         .parity = &parity_}));
  return ranks_.rank() == 0 ? start_answering() : Status{};
}

// A node whose answer was lost with its link asks again, and may not wait for the next save.
Status NearNodes::start_answering() {
  DF_TRY(answers_, open_posix_vfs(near_.path_of("")));
  answering_ = start_threads(1, "df-answer", [this] { answer(); });
  if (!answering_.empty()) return {};
  return fail(ErrorCode::kNoSpace, "the system refuses a thread");
}

void NearNodes::answer() {
  for (bool goes_on = true; goes_on;) {
    try {
      goes_on = take_letters(leader(*answers_), kLetterWait);
    } catch (const std::exception& cause) {  // that letter is lost: it comes again
      log_exception("a message of another node", cause);
    }
  }
}

Leader NearNodes::leader(Vfs& vfs) {
  const std::lock_guard lock(claim_mutex_);
  return {vfs, letters_, ledger_, claim_};
}

// A closed port or a wrong interface would else be found by the first save, at its deadline.
Status NearNodes::await_links() const {
  if (!map_.leads()) return {};
  Polling polling(kLinkUpMax);
  std::optional<LinkState> missing;
  do {
    missing.reset();
    for (const LinkState& state : endpoint_->states()) {
      const bool is_needed = ranks_.rank() == 0 ? is_leader(map_, state.rank) : state.rank == 0;
      if (is_needed && !state.is_up && !missing) missing = state;
    }
    if (!missing) return {};
  } while (polling.again());
  return fail(ErrorCode::kIo,
              fmt::format("there is no link with rank {} after {} s{}{}. link chooses the network "
                          "interface between the nodes",
                          missing->rank, kLinkUpMax.count() / 1000, missing->error ? ": " : "",
                          missing->error ? missing->error->message() : ""));
}

Result<Vfs*> NearNodes::files_on(const JobNode& node) {
  const std::uint32_t leader = node.ranks.front();
  const auto known = files_.find(leader);
  if (known != files_.end()) return known->second.get();
  DF_TRY(auto files, open_remote_files(asks_, {leader, place_of(node)}));
  return files_.emplace(leader, std::move(files)).first->second.get();
}

// A manifest has the same bytes on every node.
Result<std::vector<NearNodes::Other>> NearNodes::list_others(const Result<RunListing>& own) {
  Result<std::vector<AttemptName>> names;
  if (own) {
    names = committed_in(*own);
  } else {
    names = std::unexpected(own.error());
  }
  DF_TRY(const auto all, share_attempts(ranks_, map_, names));
  if (!own) return std::unexpected(own.error());
  std::vector<Other> others;
  std::vector<AttemptState> known = own->attempts;
  std::map<std::uint64_t, Error> unread;  // by attempt: of a node that could not be asked
  for (std::size_t i = 0; i < all.size(); ++i) {
    const JobNode& node = map_.nodes()[i];
    if (node == map_.own()) continue;
    DF_TRY(Vfs* const files, files_on(node));
    Other other{.files = files, .listing = {.run = own->run}};
    for (const AttemptName& name : all[i]) {
      auto attempt = find_attempt(known, name, *files, own->run.run_id);
      if (!attempt) {
        unread.emplace(name.attempt_id, attempt.error());
      } else if (*attempt) {
        unread.erase(name.attempt_id);
        other.listing.attempts.push_back(**std::move(attempt));
      }
    }
    known.insert(known.end(), other.listing.attempts.begin(), other.listing.attempts.end());
    others.push_back(std::move(other));
  }
  if (!unread.empty()) return std::unexpected(unread.begin()->second);
  return others;
}

Result<CheckpointFiles> NearNodes::files_of(const AttemptName& attempt) {
  DF_TRY(const FilePlaces places, share_files(ranks_, map_, near_, attempt));
  FileRoutes routes;
  std::vector<std::string> parity;
  for (const auto& [file, leaders] : places) {
    std::vector<Vfs*> nodes;
    for (const JobNode& node : map_.nodes()) {
      const bool has_it = std::ranges::find(leaders, node.ranks.front()) != leaders.end();
      if (!has_it || node == map_.own()) continue;
      DF_TRY(Vfs* const files, files_on(node));
      nodes.push_back(files);
    }
    if (is_parity_file_name(file)) parity.push_back(file);
    if (!nodes.empty()) routes.emplace(attempt_dir_name(attempt) + "/" + file, std::move(nodes));
  }
  CheckpointFiles files{.others = route_files(routes), .rebuild = {}};
  if (parity.empty()) return files;
  files.rebuild = [near = near_.path_of(""), routes = std::move(routes),
                   parity = std::move(parity)](const Manifest& manifest) {
    return rebuild_on_demand(near, route_files(routes), manifest, parity);
  };
  return files;
}

Result<std::vector<NodeParity::Peer>> NearNodes::peers(std::span<const std::size_t> group) {
  std::vector<NodeParity::Peer> peers;
  for (const std::size_t place : group) {
    const JobNode& node = map_.nodes()[place];
    NodeParity::Peer peer{.node = place, .ranks = node.ranks, .files = {}};
    if (node == map_.own()) {
      DF_TRY(peer.files, open_posix_vfs(near_.path_of("")));
    } else {
      DF_TRY(peer.files, open_remote_files(asks_, {node.ranks.front(), place_of(node)}));
    }
    peers.push_back(std::move(peer));
  }
  return peers;
}

// Leaders commit with rank 0 alone.
Result<NearNodes::Estate> NearNodes::estate() const {
  LeftLeader left{.run_id = run_, .rank = ranks_.rank()};
  for (const JobNode& node : map_.nodes()) left.nodes.push_back(node.ranks);
  for (const LinkPeer& peer : peers_) {
    const bool is_needed = ranks_.rank() == 0 ? is_leader(map_, peer.rank) : peer.rank == 0;
    if (is_needed) left.peers.push_back(peer);
  }
  DF_TRY(LeaderHandover handover, LeaderHandover::make(left, identity_));
  UniqueFd listener;
  if (ranks_.rank() == 0) {
    DF_TRY(listener, endpoint_->share_listener());
  }
  return Estate{std::move(handover), std::move(listener)};
}

void NearNodes::close() {
  asks_.close();
  if (dispatcher_) dispatcher_->close();  // no more letters come
  answering_.clear();                     // joins
  if (server_) server_->close();
}

Status NearNodes::claim(RunWriter& writer, std::uint64_t step) {
  DF_TRY(GenerationRecord claimed, claim_on_nodes(ranks_, map_, near_, writer, step));
  const std::lock_guard lock(claim_mutex_);
  claim_ = std::move(claimed);
  return {};
}

void NearNodes::begin(const Identity& identity) { ledger_.begin(link_attempt(identity)); }

Result<Manifest> NearNodes::commit(const NodeSave& save) {
  const Leader own = leader(near_);
  ask_about_doubts(own);
  auto outcome = commit_node(own, save);
  settle_doubts(own);  // the answers have come meanwhile, or to the next save
  return outcome;
}

}  // namespace deepfreeze
