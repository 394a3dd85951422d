// Claims and the run file.
#include <array>

#include "attacks/attack.h"
#include "format/header_fixture.h"

namespace deepfreeze {
namespace {

using enum ErrorCode;

constexpr std::string_view kGeneration = R"("generation":2)";
constexpr std::string_view kFrom = R"("resumed_from":{)";
constexpr std::string_view kWall = R"("wall_micros":0)";

constexpr std::array kClaimAttacks = {
    Attack{"a generation below zero", kGeneration, R"("generation":-2)", kCorrupt,
           R"(member "generation" is not a whole number)"},
    Attack{"a generation with a fraction", kGeneration, R"("generation":2.0)", kCorrupt,
           R"(member "generation" is not a whole number)"},
    Attack{"two generations", kGeneration, R"("generation":2,"generation":3)", kCorrupt,
           R"(the key "generation" twice in one object)"},
    Attack{"a claimant of other digits", R"("claimant":"0)", R"("claimant":"g)", kCorrupt,
           R"(member "claimant" is not hexadecimal digits)"},
    Attack{"resumed from nothing", kFrom, R"("resumed_from":null,"was":{)", kCorrupt,
           R"(member "generation" is missing)"},
    Attack{"resumed from a path", kFrom, R"("resumed_from":"../other","was":{)", kCorrupt,
           R"(member "generation" is missing)"},
    Attack{"resumed from a step below zero", R"("step":7)", R"("step":-7)", kCorrupt,
           R"(member "step" is not a whole number)"},
    Attack{"another kind", R"("kind":"generation")", R"("kind":"run")", kCorrupt,
           R"(its kind is "run", not "generation")"},
    Attack{"a newer version", R"("format_version":1)", R"("format_version":3)", kUnsupported,
           "written by a newer version"},
};

constexpr std::array kRunFileAttacks = {
    Attack{"a path for a run id", R"("run_id":"0123456789abcdef")",
           R"("run_id":"../../../../etc/")", kCorrupt,
           R"(member "run_id" is not hexadecimal digits)"},
    Attack{"a run id that is too long", R"("run_id":"0)", R"("run_id":"00)", kCorrupt,
           R"(member "run_id" is not hexadecimal digits)"},
    Attack{"no run id", R"("run_id")", R"("was")", kCorrupt, R"(member "run_id" is missing)"},
    Attack{"a time with an exponent", kWall, R"("wall_micros":0e0)", kCorrupt,
           R"(member "wall_micros" is not a whole number)"},
    Attack{"a time beyond 64 bits", kWall, R"("wall_micros":"9223372036854775808")", kCorrupt,
           R"(member "wall_micros" is not a whole number)"},
    Attack{"a parent that is a list", kWall, R"("wall_micros":0,"parent":[])", kCorrupt,
           R"(member "run" is missing)"},
    Attack{"a parent that is a number", kWall, R"("wall_micros":0,"parent":{"run":1,"step":1})",
           kCorrupt, R"(member "run" is not a string)"},
    Attack{"another kind", R"("kind":"run")", R"("kind":"manifest")", kCorrupt,
           R"(its kind is "manifest", not "run")"},
    Attack{"a newer version", R"("format_version":1)", R"("format_version":3)", kUnsupported,
           "written by a newer version"},
};

}  // namespace

std::span<const Attack> claim_attacks() { return kClaimAttacks; }
std::span<const Attack> run_file_attacks() { return kRunFileAttacks; }

std::string attacked(std::string_view good, const Attack& attack) {
  return replaced(std::string(good), attack.from, attack.to);
}

}  // namespace deepfreeze
