#include "inspect/doctor_words.h"

namespace deepfreeze {
namespace {

using enum Weight;

constexpr DoctorWords kRunFileMissing{
    "run_file_missing", kFault, "only the other records show which run this is",
    "--repair writes it anew from them, as does the next process that writes the run"};
constexpr DoctorWords kRunFileDamaged{
    "run_file_damaged", kFault, "only the other records show which run this is",
    "--repair writes it anew from them and keeps the bad one, as does the next writer"};
constexpr DoctorWords kRunFileUnread{
    "run_file_unread", kFault, "it may be whole; only the other records show which run this is",
    "find out why it could not be read, then look again"};
constexpr DoctorWords kRunFileKept{"run_file_kept", kNote, "a bad run record that was replaced",
                                   "delete it by hand once nobody needs it"};
constexpr DoctorWords kClaimDamaged{"claim_damaged", kFault,
                                    "the step that this generation resumed from is lost; it is "
                                    "taken to have passed all older steps",
                                    "leave it: its number must stay taken"};
constexpr DoctorWords kClaimUnread{
    "claim_unread", kFault,
    "it may be whole; until it is read, this generation is taken to have passed all older steps",
    "find out why it could not be read, then look again"};
constexpr DoctorWords kClaimVoid{"claim_void", kNote,
                                 "a claim of a number that two jobs took; the other one holds",
                                 "delete it by hand once nobody needs it"};
constexpr DoctorWords kNodeDamaged{
    "node_damaged", kFault,
    "this directory decides nothing that a claim gives to a node, and deletes nothing in doubt",
    "bring it back from a copy of this directory; its digits must stay the same"};
constexpr DoctorWords kNodeUnread{"node_unread", kFault,
                                  "it may be whole; until it is read, this directory decides "
                                  "nothing that a claim gives to a node",
                                  "find out why it could not be read, then look again"};
constexpr DoctorWords kManifestDamaged{"manifest_damaged", kFault,
                                       "the checkpoint can't be restored from",
                                       "--repair publishes it anew, if all its data verifies"};
constexpr DoctorWords kManifestUnread{"manifest_unread", kFault,
                                      "it may be whole; readers skip the checkpoint meanwhile",
                                      "find out why it could not be read, then look again"};
constexpr DoctorWords kManifestKept{"manifest_kept", kNote, "a bad manifest that was replaced",
                                    "it is deleted with its checkpoint"};
constexpr DoctorWords kTagsUnread{
    "tags_unread", kFault, "nobody knows the tags that were given to it, so no gc deletes it",
    "bring the file back from a copy; or delete it by hand, and give the tags again"};
constexpr DoctorWords kTemporary{
    "temporary", kDebris, "a record whose writer died before renaming it, or is still at work",
    "--delete-debris deletes it once it is an hour old"};
constexpr DoctorWords kHalfDeleted{
    "half_deleted", kDebris, "its deletion was interrupted, or is under way; readers leave it out",
    "--delete-debris finishes it, as does the next gc"};
constexpr DoctorWords kAborted{"aborted", kDebris, "given up by its process; it promises nothing",
                               "--delete-debris deletes it, as does the next gc"};
constexpr DoctorWords kFenced{"fenced", kDebris,
                              "never decided, and a newer claim keeps it from being committed",
                              "--delete-debris aborts and deletes it; else the next process that "
                              "claims the run aborts it, and the next gc then deletes it"};
constexpr DoctorWords kUndecided{"undecided", kNote, "in flight, or left by a process that died",
                                 "leave it: the next process that claims the run decides it"};
constexpr DoctorWords kInDoubt{
    "in_doubt", kNote,
    "sealed on this node; another node's directory decides whether it is committed",
    "leave it: the next process that claims the run with that node brings the outcome; without it, "
    "gc deletes it once newer checkpoints are enough by the rules"};
constexpr DoctorWords kRankFailed{"rank_failed", kNote, "this rank gave up, and said why",
                                  "it is deleted with its attempt"};
constexpr DoctorWords kUnlisted{"unlisted", kNote, "the checkpoint's manifest does not list it",
                                "find out how it came there; it is deleted with its checkpoint"};
constexpr DoctorWords kForeign{"foreign", kNote, "not of DeepFreeze, and ignored",
                               "nothing: it is never touched in the run's own directory"};
constexpr DoctorWords kForeignInside{
    "foreign", kNote, "not of DeepFreeze, and ignored",
    "take it out if you want it: gc deletes it with its attempt; --delete-debris leaves both"};
constexpr DoctorWords kCheckpointDamaged{
    "checkpoint_damaged", kFault, "restore passes it over and takes an older step",
    "bring the file back from a copy; else keep it for inspection"};
constexpr DoctorWords kCheckpointUnread{"checkpoint_unread", kFault,
                                        "it could not be read, and not because it is damaged",
                                        "find out why it could not be read, then look again"};

constexpr DoctorWords kRememberedFault{
    "fault_when_last_read", kFault, "the last full reading of this checkpoint found a fault in it",
    "read it again with --verify, which names the file; verify --deep and scrub remember the "
    "result"};

constexpr DoctorWords kElsewhere{
    "on_other_nodes", kNote, "the other files of this checkpoint are on other nodes",
    "nothing: each node keeps its own; a rank whose only file is lost looks the same"};

}  // namespace

Complaint complaint_of(const DoctorWords& words, std::string place, std::string detail) {
  return {.kind = words.kind,
          .weight = words.weight,
          .place = std::move(place),
          .detail = std::move(detail),
          .means = words.means,
          .remedy = std::string(words.remedy)};
}

const DoctorWords& words_for(OddityKind kind) {
  switch (kind) {
    case OddityKind::kRunFileMissing:
      return kRunFileMissing;
    case OddityKind::kRunFileDamaged:
      return kRunFileDamaged;
    case OddityKind::kRunFileUnread:
      return kRunFileUnread;
    case OddityKind::kRunFileKept:
      return kRunFileKept;
    case OddityKind::kClaimDamaged:
      return kClaimDamaged;
    case OddityKind::kClaimUnread:
      return kClaimUnread;
    case OddityKind::kManifestDamaged:
      return kManifestDamaged;
    case OddityKind::kManifestUnread:
      return kManifestUnread;
    case OddityKind::kManifestKept:
      return kManifestKept;
    case OddityKind::kTagsUnread:
      return kTagsUnread;
    case OddityKind::kTemporary:
      return kTemporary;
    case OddityKind::kHalfDeleted:
      return kHalfDeleted;
    case OddityKind::kAborted:
      return kAborted;
    case OddityKind::kFenced:
      return kFenced;
    case OddityKind::kUndecided:
      return kUndecided;
    case OddityKind::kInDoubt:
      return kInDoubt;
    case OddityKind::kClaimVoid:
      return kClaimVoid;
    case OddityKind::kNodeDamaged:
      return kNodeDamaged;
    case OddityKind::kNodeUnread:
      return kNodeUnread;
    case OddityKind::kRankFailed:
      return kRankFailed;
    case OddityKind::kUnlisted:
      return kUnlisted;
    case OddityKind::kForeignInside:
      return kForeignInside;
    case OddityKind::kForeign:
      break;
  }
  return kForeign;
}

const DoctorWords& words_for_damaged_checkpoint() { return kCheckpointDamaged; }
const DoctorWords& words_for_unread_checkpoint() { return kCheckpointUnread; }
const DoctorWords& words_for_files_elsewhere() { return kElsewhere; }
const DoctorWords& words_for_remembered_fault() { return kRememberedFault; }

}  // namespace deepfreeze
