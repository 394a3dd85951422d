// Attacks that src/format/hostile_header_test.cc does not try.
#include <array>

#include "attacks/attack.h"

namespace deepfreeze {
namespace {

using enum ErrorCode;

constexpr std::string_view kStepInAnObject = R"(\"step\":9)";
constexpr std::string_view kShape = R"("shape":[1500])";
constexpr std::string_view kKey = R"("weights_0_0":{)";
constexpr std::string_view kBlocks = R"("deepfreeze.blocks")";
constexpr std::string_view kMetrics = R"(\"metrics\":{\"loss\":0.1})";

constexpr std::array kHeaderAttacks = {
    Attack{"a step with a fraction", kStepInAnObject, R"(\"step\":9.0)", kCorrupt,
           R"(member "step" is not a whole number)"},
    Attack{"a step below zero", kStepInAnObject, R"(\"step\":-9)", kCorrupt,
           R"(member "step" is not a whole number)"},
    Attack{"a step beyond 64 bits", kStepInAnObject, R"(\"step\":18446744073709551616)", kCorrupt,
           "a number out of range"},
    Attack{"a step that doubles would round", kStepInAnObject, R"(\"step\":9007199254740993)",
           kCorrupt, R"(member "step" is not a whole number)"},
    Attack{"a step as text where a number does", kStepInAnObject, R"(\"step\":\"9\")", kCorrupt,
           R"(member "step" is not a whole number)"},
    Attack{"another step than the manifest's", kStepInAnObject, R"(\"step\":8)", kCorrupt,
           "it belongs to run 0123456789abcdef, generation 2, step 8"},
    Attack{"two steps", kStepInAnObject, R"(\"step\":8,\"step\":9)", kCorrupt,
           R"(the key "step" twice in one object)"},
    Attack{"a step without a value", kStepInAnObject, R"(\"step\":null)", kCorrupt,
           R"(member "step" is not a whole number)"},
    Attack{"another run", R"(\"run_id\":\"0)", R"(\"run_id\":\"f)", kCorrupt,
           "it belongs to run f123456789abcdef"},
    Attack{"a path for a run id", R"(0123456789abcdef)", "../../../../etc/", kCorrupt,
           R"(member "run_id" is not hexadecimal digits)"},
    Attack{"a world of no ranks", R"(\"world_size\":1)", R"(\"world_size\":0)", kCorrupt,
           "its rank or file number is not below the count"},
    Attack{"a world of 2^31 ranks", R"(\"world_size\":1)", R"(\"world_size\":2147483648)", kCorrupt,
           "its header names another rank or file"},
    Attack{"a world of 2^32 ranks", R"(\"world_size\":1)", R"(\"world_size\":4294967296)", kCorrupt,
           R"(member "world_size" is too large)"},
    Attack{"no files", R"(\"file_count\":1)", R"(\"file_count\":0)", kCorrupt,
           "its rank or file number is not below the count"},
    Attack{"2^32-1 files", R"(\"file_count\":1)", R"(\"file_count\":4294967295)", kCorrupt,
           "its header names another rank or file"},
    Attack{"an identity that is a list", R"("deepfreeze.identity":"{)",
           R"("deepfreeze.identity":"[]","x":"{)", kCorrupt, R"(member "run_id" is missing)"},
    Attack{"an identity that is no text", R"("deepfreeze.identity":")",
           R"("deepfreeze.identity":1,"x":")", kCorrupt, R"(expected ")"},
    Attack{"metrics that are a list", kMetrics, R"(\"metrics\":[])", kCorrupt,
           R"(member "metrics" is not an object)"},
    Attack{"a metric without a value", kMetrics, R"(\"metrics\":{\"loss\":null})", kCorrupt,
           R"(metric "loss" is not a number)"},
    Attack{"a metric that is no JSON", kMetrics, R"(\"metrics\":{\"loss\":NaN})", kCorrupt,
           "expected a value"},
    Attack{
        "metrics nested beyond the bound", kMetrics,
        R"(\"metrics\":{\"loss\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[)",
        kCorrupt, "nested too deep"},
    Attack{"a tag that is a number", R"(\"tags\":{})", R"(\"tags\":{\"a\":1})", kCorrupt,
           R"(member "a" is not a string)"},
    Attack{"a tag that is not UTF-8", R"(\"tags\":{})", "\\\"tags\\\":{\\\"a\\\":\\\"\xff\\\"}",
           kCorrupt, "a string that is not UTF-8"},
    Attack{"a parent that is text", R"(\"tags\":{})", R"(\"tags\":{},\"parent\":\"x\")", kCorrupt,
           R"(member "run" is missing)"},
    Attack{"a size with an exponent", kShape, R"("shape":[15e2])", kCorrupt, "expected a size"},
    Attack{"a size with a fraction", kShape, R"("shape":[1500.0])", kCorrupt, "expected a size"},
    Attack{"a size of minus zero", kShape, R"("shape":[-0])", kCorrupt, "expected a size"},
    Attack{"a size beyond 64 bits", kShape, R"("shape":[18446744073709551616])", kCorrupt,
           "expected a size"},
    Attack{"a size with a leading zero", kShape, R"("shape":[01500])", kCorrupt, "expected ,"},
    Attack{"a size with a sign", kShape, R"("shape":[+1500])", kCorrupt, "expected a digit"},
    Attack{"a size that is text", kShape, R"("shape":["1500"])", kCorrupt, "expected a digit"},
    Attack{"a shape whose product wraps to its bytes", kShape,
           R"("shape":[9223372036854775808,2,1500])", kCorrupt, "does not fit 64 bits"},
    Attack{"a shape that a zero empties", kShape, R"("shape":[0,18446744073709551615,1500])",
           kCorrupt, "its shape has 0 bytes"},
    Attack{"a dtype in lower case", R"("U8")", R"("u8")", kCorrupt, "an unknown dtype"},
    Attack{"a dtype and a NUL", R"("U8")", R"("U8\u0000")", kCorrupt, "an unknown dtype"},
    Attack{"a dtype that other programs have", R"("U8")", R"("F8_E8M0")", kCorrupt,
           "an unknown dtype"},
    Attack{"half a surrogate pair for a name", kKey, R"("\ud800":{)", kCorrupt,
           "half a surrogate pair"},
    Attack{"an overlong .. for a name", kKey, "\"\xc0\xae\xc0\xae/\":{", kCorrupt,
           "a string that is not UTF-8"},
    Attack{"a line break in a name", kKey, "\"a\nb\":{", kCorrupt, "a control character"},
    Attack{"the metadata's name, escaped", kKey, R"("__metadata\u005f_":{)", kCorrupt,
           R"(the key "__metadata__" twice in one object)"},
    Attack{"a part that leaves its tensor", kBlocks,
           R"("deepfreeze.tensors":"{\"weights_0_0\":{\"offset\":[1],\"global_shape\":[1500]}}",)"
           R"("deepfreeze.blocks")",
           kCorrupt, "its box leaves its global shape"},
    Attack{"a tensor's extras twice", kBlocks,
           R"("deepfreeze.tensors":"{\"weights_0_0\":{},\"weights_0_0\":{}}","deepfreeze.blocks")",
           kCorrupt, R"(the key "weights_0_0" twice in one object)"},
    Attack{"a logical dtype that is a number", kBlocks,
           R"("deepfreeze.tensors":"{\"weights_0_0\":{\"logical_dtype\":1}}","deepfreeze.blocks")",
           kCorrupt, R"(expected ")"},
    Attack{"extras that are a list", kBlocks, R"("deepfreeze.tensors":"[]","deepfreeze.blocks")",
           kCorrupt, "expected {"},
    Attack{"a version that is far from known", R"(version":"1")", R"(version":"4294967296")",
           kUnsupported, "its format is 4294967296"},
};

}  // namespace

std::span<const Attack> header_attacks() { return kHeaderAttacks; }

}  // namespace deepfreeze
