// The options of a Checkpointer. Every default suits most runs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deepfreeze/result.h"

namespace deepfreeze {

class RankGroup;  // deepfreeze/ranks.h

// Says whether a save that arrives while one is in flight, or for which there is no room
// (Options::bytes_max), waits or is skipped.
enum class OnBusy : std::uint8_t { kBlock, kSkip };

// When guarded tensors are copied. Latency: behind training, by one thread; least time blocked per
// save. Throughput: before save() returns, by all cores; least total time if training keeps them
// busy. Auto: latency while training leaves a core free, else throughput. Tensors that do not fit
// into arena_bytes_max, and captures begun by begin_capture(), are copied behind training in any
// case.
enum class Profile : std::uint8_t { kAuto, kLatency, kThroughput };

// Whether all ranks see one directory at the run's path, or the ranks of each node see one that is
// theirs, such as a local disk: then each node's files lie in its own, and the nodes agree on every
// checkpoint. The second must be asked for, so that a forgotten mount stays an error.
enum class Near : std::uint8_t { kShared, kNode };

// Parity over the nodes of a job whose directories are their own (Near::kNode): each checkpoint
// outlives the loss of any `parity` nodes of a group, without a farther tier. Groups have about
// data + parity nodes, and each node stores about parity / data of its own bytes more. With one
// data and one parity piece nodes are pairs that keep copies of each other.
struct Parity {
  std::size_t data = 6;
  std::size_t parity = 2;
  std::uint64_t bytes_per_second = 0;  // that a node reads for it, at most; 0: no limit
  // Of this process's node: the unit that may fail as a whole and takes the node along, such as its
  // switch. Nodes of one domain are put into different groups if there are enough. Empty: the host.
  std::string domain = {};
  bool operator==(const Parity&) const = default;
};

// Which checkpoints stay. No rule set: all of them.
struct Keep {
  enum class Better : std::uint8_t { kMin, kMax };
  struct Best {
    std::string metric;
    Better better = Better::kMin;
    std::size_t count = 1;
    bool operator==(const Best&) const = default;
  };
  std::optional<std::size_t> last;     // this many newest of the current line; at least 1
  std::optional<std::uint64_t> every;  // and those whose step is a multiple of it
  std::optional<Best> best;            // and this many best by a metric (NaN never counts)
  bool operator==(const Keep&) const = default;
};

// Asks for the best checkpoint. Absent members are taken from the run's own rule, its Keep::best;
// without a rule, less is better for a metric whose name ends in "loss".
struct BestBy {
  std::optional<std::string> metric = {};
  std::optional<Keep::Better> better = {};
};

// The origin of a branch: a step of another run.
struct ParentPoint {
  std::string run;  // its path; open() makes a relative one absolute, and so it is recorded
  std::uint64_t step = 0;
  bool operator==(const ParentPoint&) const = default;
};

// Keys for a tier in an object store.
struct ObjectKeys {
  std::string access_key;
  std::string secret_key;
  std::string session_token = {};  // may be empty
  // New ones are asked for some minutes before; absent: once the store refuses them.
  std::optional<std::chrono::system_clock::time_point> expires = {};
};
// Called by one thread at a time, any; may block. An error counts as one of the store.
using KeySource = std::function<Result<ObjectKeys>()>;

// kAuto: files are packed on their way, without loss, if that is faster than to send them as
// they are. They are smaller there, and other programs can't read them: `deepfreeze fetch` and
// `export` give plain ones. kNone: each file is the same safetensors file on all tiers.
enum class Compress : std::uint8_t { kNone, kAuto };

// A farther place of the run, such as a shared file system. Checkpoints are committed in the run's
// own directory first and copied behind training, newest first, every block checked on the way. A
// tier holds the same run: it can be opened by its own path, on any machine that sees it.
struct Tier {
  std::string path;  // a directory; open() makes it if there is none. Or "s3://bucket/prefix"
  std::optional<std::uint64_t> every = {};  // only steps that are multiples of it; absent: all
  Keep keep = {};                           // the tier's own rules
  std::uint64_t bytes_per_second = 0;       // at most so many; 0: no limit
  Compress compress = Compress::kNone;      // kAuto: kUnsupported without libzstd
  // Of a store: its server, such as "https://minio.example:9000", and its region. Empty: as
  // AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, and AWS_REGION or AWS_DEFAULT_REGION say.
  std::string endpoint = {};
  std::string region = {};
  // Of a store: asked instead of the places that AWS's own tools look at. An agent does not have
  // it, and looks at those.
  KeySource keys = {};
  // Leaves `keys` out: functions can't be compared.
  bool operator==(const Tier& other) const {
    return path == other.path && every == other.every && keep == other.keep &&
           bytes_per_second == other.bytes_per_second && compress == other.compress &&
           endpoint == other.endpoint && region == other.region;
  }
};

// A process of this machine that outlives the program: a save that is captured is then finished
// even if the program is killed, and copies to the tiers go on after its end.
struct Agent {
  // Of its socket, for this user alone; empty: $DEEPFREEZE_AGENT_DIR, or a directory below
  // $XDG_RUNTIME_DIR or among temporary files.
  std::string directory = {};
  // Starts one if none is there; empty: none is started.
  std::vector<std::string> command = {"deepfreeze", "agent", "--idle", "60"};
};

struct Options {
  // The other ranks of the job; null: there are none. All open one directory that all of them see
  // (but see `near`), with the same options, and then make the calls that are marked "collective"
  // together: the same ones in the same order.
  std::shared_ptr<RankGroup> ranks;
  Near near = Near::kShared;
  // For Near::kNode: the network interface by which nodes reach each other, encrypted and with keys
  // that are made at open(). Empty: all that are up but the loopback.
  std::string link = {};
  // Needs Near::kNode, and more nodes than `parity`; a job on one node has none, with a warning.
  std::optional<Parity> protect;
  Keep keep;
  // Nearest first. A checkpoint leaves the run's directory only when `keep` allows it and no tier
  // waits for it.
  std::vector<Tier> tiers;
  // The most bytes that checkpoints take in the run's directory while some of them stay only
  // because a tier waits for them; otherwise it does not count. A save for which there is no room
  // is skipped (OnBusy::kSkip), or waits while such a tier is at work, at most busy_wait_max, and
  // then fails with kBusy. It counts with the bytes of the newest checkpoint, or of its own tensors
  // if they are more. Nothing is deleted for it. Needs tiers, and a rule in `keep`.
  std::optional<std::uint64_t> bytes_max;
  // Absent: a save that is not committed when the program ends is lost. Saves whose state is larger
  // than arena_bytes_max are lost in any case.
  std::optional<Agent> agent;
  std::optional<ParentPoint> parent;  // recorded when the run is created
  // For restoring only: the run must exist; nothing is made, claimed or changed, and save() and
  // prewarm() are refused. Without this option a directory that can't be written is not opened.
  bool read_only = false;
  OnBusy on_busy = OnBusy::kBlock;
  Profile profile = Profile::kAuto;
  // Memory for the file's image, at least two slabs of 4 MiB. A larger state streams through it:
  // fences then wait for the disk. If it is absent, the engine takes as much as the state needs.
  std::optional<std::size_t> arena_bytes_max;
  // Checksums all tensors that are captured later before save() returns, and so finds every change
  // of them. DEEPFREEZE_PARANOID=1 in the environment does the same.
  bool paranoid = false;
  // Stores the least and the greatest value of each floating-point tensor, and how many of its
  // values are NaN or infinite: one more pass over it, behind training. A checkpoint that holds
  // such values is then never Keep::Best, and does not push out the newest that holds none.
  bool statistics = false;
  // Tensors that have not changed for some saves get a file of their own, which later checkpoints
  // share by hard links. They are compared byte by byte with the save before. Not for tensors on
  // devices, nor for a state larger than arena_bytes_max.
  bool reuse_unchanged = true;
  // Such a file has so many bytes, and a tenth of the state, at least: one more file costs each
  // save a sync, and so does a new division of the state.
  std::uint64_t reuse_bytes_min = 16'000'000;
  // Compares the copies that several ranks have: a part with every save, and all of it within this
  // many saves of the run (more if it is over 60 GB or 240,000 tensors); 0: never. It costs each
  // rank a copy of that part, which also takes room in arena_bytes_max. Rank 0's value counts.
  std::uint32_t audit_saves = 100;
  std::chrono::milliseconds busy_wait_max{600'000};    // then kBusy; see OnBusy
  std::chrono::milliseconds commit_wait_max{600'000};  // for other ranks' parts
  std::chrono::milliseconds drain_wait_max{600'000};   // close() waits so long for the tiers
  std::size_t copy_threads = 0;                        // 0: one per core the process may use
  std::size_t write_threads = 4;                       // writes in flight
  std::size_t read_threads = 4;
};

}  // namespace deepfreeze
