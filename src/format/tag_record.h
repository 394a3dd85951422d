// tags-00000003.json: the tags that people gave to a checkpoint after it was saved. Each record has
// all of them, and the highest number counts. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "deepfreeze/result.h"
#include "format/names.h"

namespace deepfreeze {

using Tags = std::map<std::string, std::string>;

inline constexpr std::size_t kTagNameBytesMax = 128;
inline constexpr std::size_t kTagValueBytesMax = 4096;
inline constexpr std::size_t kTagsMax = 100;  // of one checkpoint

struct TagRecord {
  std::string run_id;
  AttemptName attempt;
  std::uint64_t number = 1;
  std::int64_t wall_micros = 0;
  Tags tags;
  bool operator==(const TagRecord&) const = default;
};

[[nodiscard]] std::string tag_file_name(std::uint64_t number);
[[nodiscard]] std::optional<std::uint64_t> parse_tag_file_name(std::string_view text);

// kInvalidArgument: no name, a name with control characters, white space, quotes or one of "=<>!",
// text that is not UTF-8, or too long or too many.
[[nodiscard]] Status check_tags(const Tags& tags);

[[nodiscard]] std::string encode_tags(const TagRecord& record);
[[nodiscard]] Result<TagRecord> decode_tags(std::string_view text);

}  // namespace deepfreeze
