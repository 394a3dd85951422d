// One committed checkpoint, opened for reading: the index of its tensors and their verified
// bytes. Immutable after opening; any thread may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/records.h"
#include "storage/vfs.h"

namespace deepfreeze {

// The memory for a key's bytes, or for those of a box of it; `into` has exactly their size.
struct ReadTarget {
  std::string key;
  std::span<std::byte> into;
  std::optional<Box> box = {};  // of the whole tensor; absent: all of it
  std::int32_t device = kHostMemory;
};

class CudaDevices;

class FileReadings;

struct ReadSettings {
  bool verify = true;                // Snapshot::verify() always does
  bool check_tree = false;           // verify_attempt() also decodes the state tree
  bool one_node_only = false;        // verify_attempt(): the manifest lists one node's files alone
  FileReadings* readings = nullptr;  // verify_attempt(): of files whose data need not be read again
  std::size_t thread_count = 2;
  // The reading threads call it, never concurrently; the number never falls.
  std::function<void(std::uint64_t bytes_read)> on_progress;
  CudaDevices* devices = nullptr;  // needed if a target lies on a device
};

// One fault found, for people and for --json.
struct Fault {
  std::string file;
  std::string cause;
  std::vector<std::uint64_t> blocks = {};  // bad blocks, if the header is readable
  std::vector<std::string> tensors = {};   // keys that lie in them
  bool unread = false;                     // the reader was refused: nothing is known of the bytes
  std::vector<std::string> also_in = {};   // scrub: other checkpoints that have this file, by path
};
[[nodiscard]] Fault fault_of_error(std::string file, const Error& error);

// The results of one pass over several checkpoints, by file: one that they share is read once. One
// thread at a time.
class FileReadings {
 public:
  // The fault in its data, or that it has none; null: it was not read.
  [[nodiscard]] const std::optional<Fault>* find(const FileId& id) const {
    const auto found = faults_.find(id);
    return found == faults_.end() ? nullptr : &found->second;
  }
  void note(const FileId& id, const std::optional<Fault>& fault) { faults_.emplace(id, fault); }

 private:
  std::map<FileId, std::optional<Fault>> faults_;
};

// A file that did not verify on one tier, and was read from another.
struct MendedRead {
  std::size_t tier = 0;  // the place of the bad copy, as given to Snapshot::open()
  std::string file;
  std::string cause;
  bool is_gone = false;     // the tier has deleted the checkpoint meanwhile
  bool is_missing = false;  // the tier has the checkpoint, without this file
};

struct ShardEntry;
struct ShardFile;
struct ReadPiece;
struct ReadPlan;
using PiecesByFile = std::map<std::size_t, std::vector<ReadPiece>>;  // by place in the manifest

// Borrows the tiers, which must outlive it.
class Snapshot {
 public:
  // Reads and verifies manifest-listed headers: sizes, header CRCs, identity, each element of each
  // key stored once. kCorrupt, kIncomplete (a file is missing) or kGone (removed meanwhile).
  // `tiers` hold the same checkpoint, nearest first: a file whose header does not verify on one is
  // taken from the next, and so is a block; at last from another checkpoint that shares the file.
  [[nodiscard]] static Result<std::shared_ptr<const Snapshot>> open(std::vector<Vfs*> tiers,
                                                                    const Manifest& manifest);
  [[nodiscard]] static Result<std::shared_ptr<const Snapshot>> open(Vfs& vfs,
                                                                    const Manifest& manifest) {
    return open(std::vector<Vfs*>{&vfs}, manifest);
  }
  // Takes files that are open already: all that the manifest lists, in its order.
  [[nodiscard]] static Result<std::shared_ptr<const Snapshot>> of_files(
      Vfs& vfs, const Manifest& manifest, std::vector<ShardFile> files);
  Snapshot(Snapshot&&) noexcept;
  ~Snapshot();

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  // Sorted by key; whole tensors, in however many boxes they are stored.
  [[nodiscard]] const std::vector<TensorSpec>& tensors() const { return specs_; }
  [[nodiscard]] const TensorSpec* find(std::string_view key) const;  // null if it is not stored
  // The ranges of tensors(), by index; none if ranges were not stored, or the tensor is in boxes.
  [[nodiscard]] std::vector<std::optional<ValueRange>> ranges() const;
  // The tree as that rank gave it; empty if it gave none, or if there was no such rank.
  [[nodiscard]] const std::string& tree(std::uint32_t rank = 0) const;
  [[nodiscard]] std::uint64_t bytes() const;  // of all data sections

  // Fills the targets, from whatever boxes are stored: reads the blocks that they lie in and no
  // others. kNotFound or kMismatch before anything is written; else some targets may have been:
  // kCorrupt names file, blocks and tensors; kIncomplete, kGone as open().
  [[nodiscard]] Status read(std::span<const ReadTarget> targets,
                            const ReadSettings& settings) const;

  // Bad copies that open() and read() have found; the bytes came from other tiers.
  [[nodiscard]] std::vector<MendedRead> mended() const;
  // The tier of which the file, by its place in the manifest, is read.
  [[nodiscard]] std::size_t tier_of(std::size_t file) const { return tier_of_[file]; }

  // Reads everything on the nearest tier and lists all faults. Fails only if reading itself is
  // impossible.
  [[nodiscard]] Result<std::vector<Fault>> verify(const ReadSettings& settings) const;

 private:
  // A tensor's place: files_[file].header.entries[entry].
  struct Place {
    std::size_t file = 0;
    std::size_t entry = 0;
  };

  Snapshot(std::vector<Vfs*> tiers, const Manifest& manifest);
  [[nodiscard]] static Result<std::shared_ptr<const Snapshot>> filled(
      Snapshot snapshot, const std::function<Status(Snapshot&)>& fill);
  [[nodiscard]] Status open_file(const ManifestFile& file);
  [[nodiscard]] bool open_other_copy(const ManifestFile& file);
  [[nodiscard]] bool read_other_copies(std::size_t index, ReadPlan plan) const;
  [[nodiscard]] Status index_keys();
  [[nodiscard]] std::vector<Place> sorted_places() const;
  [[nodiscard]] const ShardEntry& entry_at(const Place& place) const;
  [[nodiscard]] std::span<const Place> places_of(std::size_t spec) const;
  [[nodiscard]] Status check_places(std::size_t spec) const;
  [[nodiscard]] Status add_pieces(const ReadTarget& target, PiecesByFile& pieces) const;
  [[nodiscard]] Status read_file_pieces(std::size_t index, std::vector<ReadPiece> pieces,
                                        const ReadSettings& settings) const;
  void note_mended(MendedRead mended) const;

  // Filled by readers, which may be several threads.
  struct Notes {
    std::mutex mutex;
    std::vector<MendedRead> mended;
  };

  std::vector<Vfs*> tiers_;  // borrowed, nearest first
  Manifest manifest_;
  std::vector<ShardFile> files_;
  std::vector<std::size_t> tier_of_;  // by file: the one on which its header verified
  std::unique_ptr<Notes> notes_ = std::make_unique<Notes>();
  std::vector<TensorSpec> specs_;         // sorted by key
  std::vector<Place> places_;             // of all boxes, in the order of their keys
  std::vector<std::size_t> first_place_;  // of specs_, by index, and the end of places_
  std::vector<std::string> trees_;        // by rank
};

// verify() of one attempt; errors that keep it from opening are faults, too.
[[nodiscard]] Result<std::vector<Fault>> verify_attempt(Vfs& vfs, const Manifest& manifest,
                                                        const ReadSettings& settings);
// Checks without reading the data: sizes, headers, the checksums that the place itself keeps of
// whole files, and faults that only all headers together show. These are left out if
// `one_node_only`.
struct HeaderCheck {
  std::vector<Fault> faults;
  std::vector<std::string> without_checksum;  // files of which the place keeps none, and no fault
};
[[nodiscard]] Result<HeaderCheck> verify_headers(Vfs& vfs, const Manifest& manifest,
                                                 bool one_node_only = false);

}  // namespace deepfreeze
