// Attacks that src/format/records_test.cc does not try.
#include <array>

#include "attacks/attack.h"

namespace deepfreeze {
namespace {

using enum ErrorCode;

constexpr std::string_view kName = R"("name":"rank-00000-of-00001-0-of-1.safetensors")";
constexpr std::string_view kNoName = "is not the name of a data file";
constexpr std::string_view kStep = R"("step":9)";
constexpr std::string_view kWorld = R"("world_size":1)";
constexpr std::string_view kVersion = R"("format_version":1)";
constexpr std::string_view kAttempt = R"("attempt_id":"00000000000000cc")";

constexpr std::array kManifestAttacks = {
    Attack{"an absolute path", kName, R"("name":"/etc/passwd")", kCorrupt, kNoName},
    Attack{"a way out", kName, R"("name":"../deepfreeze.json")", kCorrupt, kNoName},
    Attack{"a way out behind a good name", kName,
           R"("name":"rank-00000-of-00001-0-of-1.safetensors/../../deepfreeze.json")", kCorrupt,
           kNoName},
    Attack{"a path", kName, R"("name":"a/rank-00000-of-00001-0-of-1.safetensors")", kCorrupt,
           kNoName},
    Attack{"the directory above", kName, R"("name":"..")", kCorrupt, kNoName},
    Attack{"no name", kName, R"("name":"")", kCorrupt, kNoName},
    Attack{"a NUL behind a good name", kName,
           R"("name":"rank-00000-of-00001-0-of-1.safetensors\u0000x")", kCorrupt, kNoName},
    Attack{"a line break behind a good name", kName,
           R"("name":"rank-00000-of-00001-0-of-1.safetensors\n")", kCorrupt, kNoName},
    Attack{"the name of another kind of file", kName, R"("name":"manifest.json")", kCorrupt,
           kNoName},
    Attack{"a rank beyond the world", kName, R"("name":"rank-00001-of-00001-0-of-1.safetensors")",
           kCorrupt, kNoName},
    Attack{"a second spelling of a name", kName, R"("name":"rank-0-of-1-0-of-1.safetensors")",
           kCorrupt, kNoName},
    Attack{"a name that is a list", kName, R"("name":[])", kCorrupt,
           R"(member "name" is not a string)"},
    Attack{"a name of half a surrogate pair", kName, R"("name":"\udfff")", kCorrupt,
           "half a surrogate pair"},
    Attack{"a file that is not there", kName, R"("name":"rank-00000-of-00001-0-of-2.safetensors")",
           kIncomplete, "missing: open"},
    Attack{"files that are an object", R"("files":[)", R"("files":{},"was":[)", kCorrupt,
           R"(member "files" is not an array)"},
    Attack{"files that are numbers", R"("files":[)", R"("files":[1,)", kCorrupt,
           R"(member "name" is missing)"},
    Attack{"committed without files", R"("files":[)", R"("files":[],"was":[)", kCorrupt,
           "the manifest lists no file 0 of rank 0 of 1"},
    Attack{"more bytes than there are", R"("bytes":5596)", R"("bytes":"9223372036854775808")",
           kCorrupt, "it has 5596 bytes, the manifest says 9223372036854775808"},
    Attack{"no bytes", R"("bytes":5596)", R"("bytes":0)", kCorrupt,
           "it has 5596 bytes, the manifest says 0"},
    Attack{"another header", R"("header_crc":")", R"("header_crc":"00000000","was":")", kCorrupt,
           "header checksum differs from the manifest"},
    Attack{"a checksum in upper case", R"("header_crc":")", R"("header_crc":"ABCDEF01","was":")",
           kCorrupt, R"(member "header_crc" is not hexadecimal digits)"},
    Attack{"a world of no ranks", kWorld, R"("world_size":0)", kCorrupt, "it is of no ranks"},
    Attack{"a world of 2^31 ranks", kWorld, R"("world_size":2147483648)", kCorrupt,
           "its header says 1 ranks, the manifest 2147483648"},
    Attack{"a world of -1 ranks", kWorld, R"("world_size":-1)", kCorrupt,
           R"(member "world_size" is not a whole number)"},
    Attack{"a step below zero", kStep, R"("step":-1)", kCorrupt,
           R"(member "step" is not a whole number)"},
    Attack{"a step beyond 64 bits", kStep, R"("step":"18446744073709551616")", kCorrupt,
           R"(member "step" is not a whole number)"},
    Attack{"a step that is true", kStep, R"("step":true)", kCorrupt,
           R"(member "step" is not a whole number)"},
    Attack{"another step", kStep, R"("step":10)", kCorrupt,
           "it is of attempt step-000000000010-00000000000000cc"},
    Attack{"the greatest step", kStep, R"("step":"18446744073709551615")", kCorrupt,
           "it is of attempt step-18446744073709551615-00000000000000cc"},
    Attack{"two steps", kStep, R"("step":9,"step":9)", kCorrupt,
           R"(the key "step" twice in one object)"},
    Attack{"two steps, one escaped", kStep, R"("step":9,"\u0073tep":9)", kCorrupt,
           R"(the key "step" twice in one object)"},
    Attack{"another attempt", kAttempt, R"("attempt_id":"00000000000000aa")", kCorrupt,
           "it is of attempt step-000000000009-00000000000000aa"},
    Attack{"an attempt that is a number", kAttempt, R"("attempt_id":204)", kCorrupt,
           R"(member "attempt_id" is not a string)"},
    Attack{"another run", R"("run_id":"0123456789abcdef")", R"("run_id":"ffffffffffffffff")",
           kCorrupt, "it is of run ffffffffffffffff, not 0123456789abcdef"},
    Attack{"a path for a run id", R"("run_id":"0123456789abcdef")",
           R"("run_id":"../../../../etc/")", kCorrupt,
           R"(member "run_id" is not hexadecimal digits)"},
    Attack{"another generation than the header's", R"("generation":2)", R"("generation":1)",
           kCorrupt, "it belongs to run 0123456789abcdef, generation 2"},
    Attack{"a version that is far from known", kVersion, R"("format_version":4294967296)",
           kUnsupported, "its format is 4294967296"},
    Attack{"version zero", kVersion, R"("format_version":0)", kCorrupt,
           "there is no format version 0"},
    Attack{"a version that is text", kVersion, R"("format_version":"1")", kCorrupt,
           R"(member "format_version" is not a whole number)"},
    Attack{"another kind", R"("kind":"manifest")", R"("kind":"manifest\u0000")", kCorrupt,
           "its kind is"},
    Attack{"another checksum", "crc32c-64k", "none", kUnsupported, "unknown integrity mode none"},
    Attack{"no outcome", R"("outcome":"committed")", R"("outcome":null)", kCorrupt,
           R"(member "outcome" is not a string)"},
    Attack{"annotations nested beyond the bound", R"("tags":{)",
           R"("tags":{"a":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[)",
           kCorrupt, "nested too deep"},
    Attack{"text that is not UTF-8", R"("tags":{)", "\"tags\":{\"a\":\"\xed\xa0\x80\"", kCorrupt,
           "a string that is not UTF-8"},
    Attack{"more than one text", "]}\n", "]}{}\n", kCorrupt, "bytes after the end"},
};

}  // namespace

std::span<const Attack> manifest_attacks() { return kManifestAttacks; }

}  // namespace deepfreeze
