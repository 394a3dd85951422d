// The three sealed JSON records of a run: run file, generation claim, manifest. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deepfreeze/options.h"
#include "format/point.h"
#include "format/shard_header.h"

namespace deepfreeze {

// deepfreeze.json: written once, rebuilt from any manifest.
struct RunRecord {
  std::string run_id;  // 16 hex digits
  std::optional<ParentPoint> parent;
  std::int64_t wall_micros = 0;
  bool operator==(const RunRecord&) const = default;
};

// generation-<g>.json: the process that continues this run, and the step from which it continues.
struct GenerationRecord {
  std::string run_id;
  std::uint64_t generation = 0;
  std::uint64_t claimant = 0;         // random: tells two claimants of one generation apart
  std::optional<Point> resumed_from;  // empty: from scratch
  std::int64_t wall_micros = 0;
  Keep keep;  // the claimant's rules; empty if it keeps everything
  // The digits of the directory that decides the attempts of this generation, if nodes have near
  // tiers of their own (decision 0026); empty: each directory decides for itself.
  std::optional<std::uint64_t> node = {};
  bool operator==(const GenerationRecord&) const = default;
};

enum class Outcome : std::uint8_t { kCommitted, kAborted };

inline constexpr std::size_t kManifestFilesMax = 1'000'000;

struct ManifestFile {
  std::string name;  // is_safe_name, and parse_sealed_file_name knows it
  std::uint64_t bytes = 0;
  std::uint32_t header_crc = 0;
  std::optional<Origin> origin = {};  // of a file that was written for another attempt
  bool operator==(const ManifestFile&) const = default;
};

inline constexpr std::size_t kDivergencesMax = 100;

// manifest.json: the commit record of one attempt. Aborted ones list no files.
struct Manifest {
  Outcome outcome = Outcome::kCommitted;
  std::string run_id;
  Point point;
  std::uint32_t world_size = 1;
  std::string integrity = "crc32c-64k";
  Annotations annotations;
  std::vector<ManifestFile> files;
  // NaN and infinite values of all floating-point tensors; absent if they were not counted.
  std::optional<std::uint64_t> non_finite;
  std::vector<Divergence> diverged;  // of replicas; kDivergencesMax at most
  bool operator==(const Manifest&) const = default;
};

// The attempt that the file's header must name: the manifest's own, unless the file is shared.
[[nodiscard]] Origin origin_of(const Manifest& manifest, const ManifestFile& file);
[[nodiscard]] std::uint64_t stored_bytes(const Manifest& manifest);  // of all its files
// The bytes of those files that were written for other attempts.
[[nodiscard]] std::uint64_t shared_bytes(const Manifest& manifest);

[[nodiscard]] std::string encode_run(const RunRecord& record);
[[nodiscard]] Result<RunRecord> decode_run(std::string_view text);
[[nodiscard]] std::string encode_generation(const GenerationRecord& record);
[[nodiscard]] Result<GenerationRecord> decode_generation(std::string_view text);
[[nodiscard]] std::string encode_manifest(const Manifest& manifest);
[[nodiscard]] Result<Manifest> decode_manifest(std::string_view text);

}  // namespace deepfreeze
