#include "nodes/leader_heir.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/try.h"
#include "manifest/run_records.h"
#include "manifest/sealed_parts.h"
#include "nodes/answered.h"

namespace deepfreeze {
namespace {

// The one under which the save was begun; without a save, the newest.
Result<GenerationRecord> find_claim(Vfs& near, const std::string& run_id,
                                    const std::optional<Identity>& identity) {
  DF_TRY(const std::vector<Claim> claims, read_claims(near));
  for (auto claim = claims.rbegin(); claim != claims.rend(); ++claim) {
    if (identity && claim->generation != identity->generation) continue;
    if (claim->record && claim->record->run_id == run_id) return *claim->record;
  }
  return fail(ErrorCode::kNotFound,
              near.path_of("") + " has no claim of the process that has led this node");
}

}  // namespace

Result<std::unique_ptr<LeaderHeir>> LeaderHeir::start(Left left, std::unique_ptr<Vfs> near) {
  DF_TRY(LeftLeader leader, left.handover.read());
  DF_TRY(GenerationRecord claim, find_claim(*near, leader.run_id, left.identity));
  DF_TRY(const TlsIdentity identity, left.handover.take_identity());
  DF_TRY(auto endpoint, Endpoint::start(identity, {.run = std::move(leader.run_id),
                                                   .rank = leader.rank,
                                                   .listener = std::move(left.listener),
                                                   .peers = std::move(leader.peers)}));
  auto heir = std::make_unique<LeaderHeir>(Parts{.near = std::move(near),
                                                 .endpoint = std::move(endpoint),
                                                 .nodes = JobNodes(std::move(leader.nodes)),
                                                 .rank = leader.rank,
                                                 .claim = std::move(claim)});
  // Before the first letter: only this attempt can still get an outcome from here.
  if (left.identity) {
    heir->left_ = link_attempt(*left.identity);
    heir->ledger_.begin(*heir->left_);
  }
  heir->ledger_.close();
  DF_TRY(heir->dispatcher_, LinkDispatcher::start(*heir->endpoint_, {.commits = &heir->letters_,
                                                                     .parity = &heir->parity_}));
  return heir;
}

LeaderHeir::LeaderHeir(Parts parts)
    : near_(std::move(parts.near)),
      endpoint_(std::move(parts.endpoint)),
      letters_(*endpoint_),
      parity_(*endpoint_),
      mail_(letters_),
      ledger_(std::move(parts.nodes), parts.rank),
      claim_(std::move(parts.claim)) {}

// A link that is lost again comes up again.
void LeaderHeir::NoParity::note(const LinkState& state) {
  if (state.is_up) {
    (void)endpoint_.send(state.rank, LinkProtected{.attempt = {}, .stage = ParityStage::kEnded});
  }
}

Result<Manifest> LeaderHeir::commit(const NodeSave& save, const Patience& patience) {
  std::string seen;
  auto changed = Monotonic::now();
  const auto is_enough = [&] {
    std::string now =
        fmt::format("{} {}", mail_.taken(), attempt_progress(*near_, attempt_of(save.identity)));
    if (now != seen) {
      seen = std::move(now);
      changed = Monotonic::now();
    }
    return patience.is_awaited() && Monotonic::now() - changed >= patience.quiet_max;
  };
  return commit_node(leader(), save, is_enough);
}

bool LeaderHeir::answer(std::chrono::milliseconds timeout) {
  // It had an outcome already, or nobody may give it one any more.
  if (left_) ledger_.end(*std::exchange(left_, std::nullopt));
  const std::uint64_t before = mail_.taken();
  if (!take_letters(leader(), timeout)) std::this_thread::sleep_for(timeout);
  return mail_.taken() != before;
}

Result<Letter> LeaderHeir::CountedMail::take(std::chrono::milliseconds timeout) {
  auto letter = mail_.take(timeout);
  if (letter) ++taken_;
  return letter;
}

}  // namespace deepfreeze
